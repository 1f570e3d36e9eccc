package ui

import (
	"fmt"
	"net/http"

	"gatehouse/internal/view"
)

// toLookAt selects what waits for a person: what hard mode would newly stop.
var toLookAt = []view.Term{{Key: "status", Value: view.StatusNew}, {Key: "implied", Value: "false"}, {Key: "verdict", Value: "would_block"}}

func (u *UI) wouldBlocks(r *http.Request) (answer, error) {
	f, cursor, err := asked(r, view.GroupKeys)
	if err != nil {
		return answer{}, err
	}
	q := view.GroupQuery{Terms: f.terms, Sort: f.sort, Accepts: u.o.Accepts}
	if len(f.terms) == 0 {
		// What is expected, noise, stopped anyway, or implied by another group is one
		// click away.
		q.Terms = toLookAt
	}
	p, err := u.o.View.Groups(q, cursor, pageRows)
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
	g, err := u.o.View.Group(r.PathValue("id"), u.o.Accepts)
	if err != nil {
		return answer{}, err
	}
	return answer{title: targetOf(g.Group), body: groupPage(g)}, nil
}

// targetOf says what a group's attempts go for, in one line.
func targetOf(g view.Group) string {
	switch {
	case g.Host != "" && g.Port != 0 && g.Port != 443 && g.Port != 80:
		return fmt.Sprintf("%s:%d%s", g.Host, g.Port, g.Path)
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
	return fmt.Sprintf("%s would be refused because %s: rule %s, reason %s.", doing(g), by, word(g.Rule), word(g.Reason))
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
