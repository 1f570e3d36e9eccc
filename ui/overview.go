package ui

import (
	"net/http"
	"time"

	"gatehouse/internal/view"
)

// recently is the window of the overview's numbers.
const recently = 24 * time.Hour

// glance is what the overview shows.
type glance struct {
	bundles  []view.Bundle
	running  []view.Session
	counts   view.Counts // of sessions started recently
	sessions int
	refused  map[string]int // refused admissions by reason
	groups   int            // would-blocks that wait for a person
	open     int            // proposals that wait
	broken   int
	spent    int64
	events   int
	heads    []view.Head
	charts   []chart
	differ   []ProviderUse // configured in one mode, in force in another
	most     bool          // there are more sessions than were looked at
}

func (u *UI) overview(r *http.Request) (answer, error) {
	g := glance{bundles: u.o.View.Bundles(), refused: map[string]int{}, heads: u.o.View.Heads()}
	span, err := spansOf(r)
	if err != nil {
		return answer{}, err
	}
	g.charts = charts("/ui/", span, u.o.View.Series("", span.by, span.n), 0)
	since := u.o.Clock().Add(-recently)
	after := ""
	for page := 0; ; page++ {
		p, err := u.o.View.Sessions(view.SessionFilter{}, after, view.MaxLimit)
		if err != nil {
			return answer{}, err
		}
		for _, s := range p.Items {
			if s.State == "running" || s.State == "preparing" || s.State == "admitted" {
				g.running = append(g.running, s)
			}
			if s.Started.Before(since) {
				p.Next = ""
				continue
			}
			g.add(s)
		}
		if after = p.Next; after == "" {
			break
		}
		if page == maxPages {
			g.most = true
			break
		}
	}
	providers, err := u.o.Inventory.Providers(r.Context())
	if err != nil {
		return answer{}, err
	}
	for _, p := range providers {
		for _, use := range p.UsedBy {
			if use.Configured != use.Effective {
				g.differ = append(g.differ, use)
			}
		}
	}
	groups, err := u.o.Review.Groups(r.Context(), toLookAt, "", "", 1)
	if err != nil {
		return answer{}, err
	}
	g.groups = groups.Total
	for _, p := range u.o.Changes.Proposals() {
		if p.State == "open" {
			g.open++
		}
	}
	events, err := u.o.View.Events(view.EventFilter{}, "", view.MaxLimit)
	if err != nil {
		return answer{}, err
	}
	for _, e := range events.Items {
		if !e.Received.Before(since) {
			g.events++
		}
	}
	return answer{title: "Overview", body: overviewPage(g)}, nil
}

func (g *glance) add(s view.Session) {
	g.spent += s.Spent
	if s.Broken != "" || s.Losses > 0 {
		g.broken++
	}
	if s.State == "refused" {
		g.refused[s.Reason]++
		return
	}
	g.sessions++
	g.counts.Allow += s.Counts.Allow
	g.counts.Deny += s.Counts.Deny
	g.counts.WouldBlock += s.Counts.WouldBlock
	g.counts.Fault += s.Counts.Fault
}

func total(by map[string]int) (n int) {
	for _, c := range by {
		n += c
	}
	return n
}

// segment is one part of a bar of width 1000.
type segment struct {
	class string
	x, w  int
}

// share divides a bar among what was decided.
func share(c view.Counts) []segment {
	all := c.Allow + c.WouldBlock + c.Deny + c.Fault
	if all == 0 {
		return nil
	}
	var out []segment
	x := 0
	for _, p := range []struct {
		class string
		n     uint64
	}{{"allow", c.Allow}, {"would", c.WouldBlock}, {"deny", c.Deny}, {"fault", c.Fault}} {
		if p.n == 0 {
			continue
		}
		w := max(int(p.n*1000/all), 4) // a single one must be seen
		out = append(out, segment{p.class, x, w})
		x += w
	}
	return out
}

func (u *UI) help(*http.Request) (answer, error) {
	return answer{title: "Keys and help", body: helpPage()}, nil
}
