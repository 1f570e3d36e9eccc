package ui

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

// allowed returns who asks, if they may make a change of this kind.
func (u *UI) allowed(r *http.Request, a Act) (Person, error) {
	who := u.o.Who(r)
	return who, who.May(a)
}

func proposalURL(id string) string { return "/ui/proposals/" + id }

func (u *UI) proposals(r *http.Request) (answer, error) {
	asked, err := u.o.Review.Asked(r.Context())
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Proposals", body: proposalList(u.o.Changes.Proposals(), asked)}, nil
}

// proposalView is what the page of a proposal shows: exactly what an approval is
// pinned to.
type proposalView struct {
	p      gatekeeper.Proposal
	diff   string
	growth []string
	sim    review.Simulation
	simErr string
}

func (u *UI) proposal(r *http.Request) (answer, error) {
	p, err := u.o.Changes.Proposal(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	x := proposalView{p: p}
	next, text, err := u.version(p.Digest)
	if err != nil {
		return answer{}, err
	}
	if p.Base != "" {
		base, _, err := u.version(p.Base)
		if err != nil {
			return answer{}, err
		}
		if x.diff, err = review.Diff(base, next); err != nil {
			return answer{}, err
		}
		x.growth = review.Growth(base, next)
	}
	if p.State == "open" {
		if x.sim, err = u.o.Review.Simulate(r.Context(), text, review.Window{}); err != nil {
			x.simErr = problemOf(err).Msg
		}
	}
	return answer{title: "Proposal for " + word(p.Bundle), body: proposalPage(x)}, nil
}

// version returns a version of a bundle, parsed and as its text.
func (u *UI) version(digest string) (*bundle.Bundle, []byte, error) {
	text, err := u.o.Changes.Version(digest)
	if err != nil {
		return nil, nil, err
	}
	b, err := bundle.Parse(text)
	return b, text, err
}

func (u *UI) approve(r *http.Request) (answer, error) {
	who, err := u.allowed(r, ActApprove)
	if err != nil {
		return answer{}, err
	}
	// The digest is that of the page: an approval is of what its maker saw.
	p, err := u.o.Changes.Approve(r.Context(), r.PathValue("id"), r.PostFormValue("digest"), who.By)
	if err != nil {
		return answer{}, err
	}
	return answer{to: proposalURL(p.ID)}, nil
}

func (u *UI) reject(r *http.Request) (answer, error) {
	who, err := u.allowed(r, ActReject)
	if err != nil {
		return answer{}, err
	}
	p, err := u.o.Changes.Reject(r.Context(), r.PathValue("id"), r.PostFormValue("reason"), who.By)
	if err != nil {
		return answer{}, err
	}
	return answer{to: proposalURL(p.ID)}, nil
}

func (u *UI) bundles(*http.Request) (answer, error) {
	return answer{title: "Bundles", body: bundleList(u.o.View.Bundles())}, nil
}

// bundleView is what the page of a bundle shows.
type bundleView struct {
	b       view.Bundle
	history []view.Change
	text    string
	recent  []view.Session
	ready   *review.Readiness // of a bundle in shadow
	open    []gatekeeper.Proposal
	charts  []chart
}

func (u *UI) find(name string) (view.Bundle, error) {
	all := u.o.View.Bundles()
	i := slices.IndexFunc(all, func(b view.Bundle) bool { return b.Name == name })
	if i < 0 {
		return view.Bundle{}, problem.New(problem.NotFound, "there is no bundle of that name", "Apply one with gatehouse bundle apply.")
	}
	return all[i], nil
}

func (u *UI) bundle(r *http.Request) (answer, error) {
	name := r.PathValue("name")
	x := bundleView{}
	var err error
	if x.b, err = u.find(name); err != nil {
		return answer{}, err
	}
	if x.history, err = u.o.View.History(name); err != nil {
		return answer{}, err
	}
	span, err := spansOf(r)
	if err != nil {
		return answer{}, err
	}
	perDay := int64(0)
	if x.b.Digest != "" {
		b, _, err := u.version(x.b.Digest)
		if err != nil {
			return answer{}, err
		}
		text, err := review.Source(b)
		if err != nil {
			return answer{}, err
		}
		x.text = string(text)
		if b.Spend != nil {
			perDay = int64(b.Spend.PerDay)
		}
	}
	x.charts = charts("/ui/bundles/"+name, span, u.o.View.Series(name, span.by, span.n), perDay)
	recent, err := u.o.View.Sessions(view.SessionFilter{Bundle: name}, "", 10)
	if err != nil {
		return answer{}, err
	}
	x.recent = recent.Items
	for _, p := range u.o.Changes.Proposals() {
		if p.Bundle == name && p.State == "open" {
			x.open = append(x.open, p)
		}
	}
	if x.b.Mode == string(bundle.Shadow) {
		ready, err := u.o.Review.Ready(r.Context(), name)
		if err != nil {
			return answer{}, err
		}
		x.ready = &ready
	}
	return answer{title: "Bundle " + word(name), body: bundlePage(x)}, nil
}

// source returns a version as YAML with every default written out.
func (u *UI) source(digest string) (string, error) {
	b, _, err := u.version(digest)
	if err != nil {
		return "", err
	}
	text, err := review.Source(b)
	return string(text), err
}

func (u *UI) edit(r *http.Request) (answer, error) {
	b, err := u.find(r.PathValue("name"))
	if err != nil {
		return answer{}, err
	}
	text := ""
	if b.Digest != "" {
		if text, err = u.source(b.Digest); err != nil {
			return answer{}, err
		}
	}
	return answer{title: "Edit " + word(b.Name), body: editPage(b.Name, text, "", nil, nil)}, nil
}

// simulate judges the past again under an edited bundle and shows the editor
// with what came of it. Nothing is kept.
func (u *UI) simulate(r *http.Request) (answer, error) {
	text := r.PostFormValue("source")
	b, err := bundle.Parse([]byte(text))
	if err != nil {
		return u.again(r, r.PostFormValue("bundle"), err)
	}
	sim, err := u.o.Review.Simulate(r.Context(), []byte(text), review.Window{})
	if err != nil {
		return u.again(r, b.Name, err)
	}
	return answer{title: "Simulate " + word(b.Name), body: editPage(b.Name, text, r.PostFormValue("reason"), nil, &sim)}, nil
}

// again shows the editor with the text as it was sent and what is wrong: nobody
// writes a bundle twice because of a typing error.
func (u *UI) again(r *http.Request, name string, err error) (answer, error) {
	p := problemOf(err)
	if _, missing := u.find(name); missing != nil || p.Code.Status() >= http.StatusInternalServerError {
		return answer{}, err
	}
	text := textOf(p)
	return answer{title: "Edit " + word(name), status: p.Code.Status(), body: editPage(name, r.PostFormValue("source"), r.PostFormValue("reason"), &text, nil)}, nil
}

func (u *UI) simulateRung(r *http.Request) (answer, error) {
	rung, err := u.rung(r, r.URL.Query().Get("digest"))
	if err != nil {
		return answer{}, err
	}
	sim, err := u.o.Review.Simulate(r.Context(), []byte(rung.Candidate), review.Window{})
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Simulate", body: rungSimulation(r.PathValue("id"), rung, sim)}, nil
}

func (u *UI) propose(r *http.Request) (answer, error) {
	who, err := u.allowed(r, ActPropose)
	if err != nil {
		return answer{}, err
	}
	p, err := u.o.Changes.Propose(r.Context(), []byte(r.PostFormValue("source")), r.PostFormValue("reason"), who.By)
	if err != nil {
		return u.again(r, r.PathValue("name"), err)
	}
	return answer{to: proposalURL(p.ID)}, nil
}

func (u *UI) proposeMode(r *http.Request) (answer, error) {
	who, err := u.allowed(r, ActPromote)
	if err != nil {
		return answer{}, err
	}
	p, err := u.o.Changes.ProposeMode(r.Context(), r.PathValue("name"), r.PostFormValue("enforcer"), bundle.Mode(r.PostFormValue("to")), r.PostFormValue("reason"), who.By)
	if err != nil {
		return answer{}, err
	}
	return answer{to: proposalURL(p.ID)}, nil
}

func (u *UI) rollback(r *http.Request) (answer, error) {
	return u.change(r, ActNarrow, func(who Person, name, reason string) error {
		return u.o.Changes.Rollback(r.Context(), name, r.PostFormValue("digest"), reason, who.By)
	})
}

func (u *UI) pause(r *http.Request) (answer, error) {
	return u.change(r, ActNarrow, func(who Person, name, reason string) error {
		return u.o.Changes.Pause(r.Context(), name, reason, who.By)
	})
}

func (u *UI) resume(r *http.Request) (answer, error) {
	to := ""
	a, err := u.change(r, ActResume, func(who Person, name, reason string) error {
		p, err := u.o.Changes.Resume(r.Context(), name, reason, who.By)
		if p.ID != "" {
			to = proposalURL(p.ID) // a bundle in hard waits for a second person
		}
		return err
	})
	if to != "" {
		a.to = to
	}
	return a, err
}

// change makes a change of one bundle and goes back to its page.
func (u *UI) change(r *http.Request, a Act, f func(who Person, name, reason string) error) (answer, error) {
	who, err := u.allowed(r, a)
	if err != nil {
		return answer{}, err
	}
	name := r.PathValue("name")
	if err := f(who, name, r.PostFormValue("reason")); err != nil {
		return answer{}, err
	}
	return answer{to: "/ui/bundles/" + name}, nil
}

// besideWords names the bundles that a proposal was judged beside.
func besideWords(p gatekeeper.Proposal) string {
	names := slices.Sorted(maps.Keys(p.Beside))
	if names[0] == "" {
		return "more bundles than are named"
	}
	for i := range names {
		names[i] = word(names[i])
	}
	return strings.Join(names, ", ")
}

// driftedWords says why an approval would be refused.
func driftedWords(p gatekeeper.Proposal) string {
	which := "one of many bundles"
	if p.Drifted[0] != "" {
		which = strings.Join(p.Drifted, ", ")
	}
	return "Changed since this was proposed: " + word(which) + ". An approval is refused: look at both, then propose it again."
}
