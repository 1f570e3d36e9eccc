package ui

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

// toLookAt selects what waits for a person: what hard mode would newly stop.
const toLookAt = "status:new implied:false own:false verdict:would_block"

// groupViews are filters that people ask for again and again.
var groupViews = []struct{ name, key, value string }{
	{"Stopped", "verdict", "refused"}, {"Kept blocked", "status", "kept"}, {"Noise", "status", "noise"}, {"Do not count", "status", "ignored"}, {"Everything", "status", "*"},
}

func (u *UI) wouldBlocks(r *http.Request) (answer, error) {
	f, cursor, err := asked(r, view.GroupKeys)
	if err != nil {
		return answer{}, err
	}
	line := f.String()
	if line == "" {
		// What is expected, noise, stopped anyway, implied by another group, or the agent's own is
		// one click away.
		line = toLookAt
	}
	p, err := u.o.Review.Groups(r.Context(), line, f.sort, cursor, pageRows)
	if err != nil {
		return answer{}, err
	}
	sessions, err := u.o.View.Sessions(view.SessionFilter{}, "", 1)
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Would-blocks", body: groupList(f, p, len(sessions.Items) > 0)}, nil
}

func (u *UI) wouldBlock(r *http.Request) (answer, error) {
	g, err := u.o.Review.Group(r.Context(), r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	x := groupView{g: g}
	if x.ladder, err = u.o.Review.Suggest(r.Context(), g.ID); err != nil {
		return answer{}, err
	}
	if len(g.Samples) > 0 {
		s := g.Samples[0]
		trace, err := u.o.Review.Explain(r.Context(), s.Session, strconv.FormatUint(s.Seq, 10))
		if err != nil {
			return answer{}, err
		}
		x.trace = &trace
	}
	return answer{title: targetOf(g.Group), body: groupPage(x)}, nil
}

// groupView is what the page of a group shows.
type groupView struct {
	g      view.GroupDetail
	ladder review.Ladder
	trace  *review.Trace // of the newest attempt that is kept
}

// rung returns the step of a group's ladder that a form names by its candidate.
// The ladder is made again: what it offers may have changed since it was shown.
func (u *UI) rung(r *http.Request, digest string) (review.Rung, error) {
	l, err := u.o.Review.Suggest(r.Context(), r.PathValue("id"))
	if err != nil {
		return review.Rung{}, err
	}
	for _, rung := range l.Rungs {
		if rung.Digest == digest {
			return rung, nil
		}
	}
	return review.Rung{}, problem.New(problem.Conflict, "this change is not offered any more: the bundle or what was observed has changed", "Look at the group again.")
}

func (u *UI) proposeRung(r *http.Request) (answer, error) {
	who, err := u.allowed(r, ActPropose)
	if err != nil {
		return answer{}, err
	}
	rung, err := u.rung(r, r.PostFormValue("digest"))
	if err != nil {
		return answer{}, err
	}
	// A look-alike or internationalized name is read letter by letter first.
	if len(rung.Caution) > 0 && r.PostFormValue("read") != "yes" {
		return answer{}, problem.New(problem.Usage, "the name has not been confirmed", "Read it letter by letter, tick the box, and propose again.")
	}
	p, err := u.o.Changes.Propose(r.Context(), []byte(rung.Candidate), r.PostFormValue("reason"), who.By)
	if err != nil {
		return answer{}, err
	}
	return answer{to: proposalURL(p.ID)}, nil
}

func (u *UI) mark(r *http.Request) (answer, error) {
	who, err := u.allowed(r, ActReview)
	if err != nil {
		return answer{}, err
	}
	var until time.Time
	if days := r.PostFormValue("days"); days != "" && days != "0" {
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > 366 {
			return answer{}, problem.New(problem.Usage, "an expiry is 1 to 366 days away", "")
		}
		until = u.o.Clock().AddDate(0, 0, n)
	}
	id := r.PathValue("id")
	if _, err := u.o.Review.Mark(r.Context(), id, r.PostFormValue("status"), r.PostFormValue("reason"), until, who.By); err != nil {
		return answer{}, err
	}
	return answer{to: "/ui/would-blocks/" + id}, nil
}

// targetOf says what a group's attempts go for, in one line.
func targetOf(g view.Group) string {
	switch {
	case g.Host != "" && g.Port != 0 && g.Port != 443 && g.Port != 80:
		return net.JoinHostPort(g.Host, strconv.Itoa(g.Port)) + g.Path
	case g.Host != "":
		return g.Host + g.Path
	case g.Name != "":
		return g.Name
	case g.Repository != "":
		return "repository " + g.Repository + " " + g.Path
	}
	if g.Path == "" {
		return "nothing that can be named" // a target that was no host and no address
	}
	return g.Path
}

// becauseOf says in a sentence why the group's attempts are denied.
func becauseOf(g view.Group) string {
	by := "no enforcer allowed it"
	if g.Enforcer != "" {
		by = "the enforcer " + g.Enforcer + " denied it"
	}
	was := "would be refused in hard mode"
	if g.WouldBlock == 0 {
		was = "was refused"
	}
	return fmt.Sprintf("%s %s because %s: rule %s, reason %s.", doing(g), was, by, word(g.Rule), word(g.Reason))
}

// doing names the kind of attempt in words.
func doing(g view.Group) string {
	switch g.Kind {
	case "net.connect":
		return "A connection to " + word(targetOf(g))
	case "http.request":
		return fmt.Sprintf("A %s request to %s", word(g.Method), word(targetOf(g)))
	case "dns.query":
		return "A question for the name " + word(targetOf(g))
	case "git.push":
		return "A push to " + word(targetOf(g))
	case "git.fetch":
		return "A fetch from " + word(targetOf(g))
	case "model.call":
		return "A call of the model " + word(targetOf(g))
	case "operation.call":
		return "The operation " + word(targetOf(g))
	case "session.spawn":
		return "A child session of the bundle " + word(targetOf(g))
	case "telemetry.emit":
		return "Telemetry to " + word(targetOf(g))
	}
	return word(g.Kind) + " of " + word(targetOf(g))
}

// spark is the path of a sparkline over the group's days, 120 by 24.
func spark(days []uint64) string {
	var most uint64 = 1
	for _, d := range days {
		most = max(most, d)
	}
	path := ""
	for i, d := range days {
		x := float64(i) * 120 / float64(max(len(days)-1, 1))
		y := 22 - float64(d)*20/float64(most)
		c := "L"
		if i == 0 {
			c = "M"
		}
		path += fmt.Sprintf("%s%.1f %.1f", c, x, y)
	}
	return path
}
