package bundle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// Choice is what admission makes of an event and the bundles in force: one
// bundle and all that its session needs, or a refusal with its code.
type Choice struct {
	Bundle  *Bundle      // also set on a refusal that concerns one bundle
	Code    problem.Code // "" when the event may start a session
	Why     string       // for people: facts and the operator's own words only
	Floor   Floor
	Task    string
	Key     string // concurrency key, "" if none
	Subject Subject
}

// Choose picks the bundle that an event starts. all are the bundles in force,
// each in its effective mode (WithModes); repositories is the node's list. It
// reads nothing else, so that a test, a simulation and admission agree.
//
// The most specific bundle is chosen by facts before its floor is compared: a
// bundle that refuses an outsider's words must not make way for a wider one
// that takes them.
func Choose(all []*Bundle, e *event.Event, repositories map[string]string, now time.Time) Choice {
	if !event.Startable(e.Kind) {
		return Choice{Code: problem.NoMatch, Why: "no session starts from " + e.Kind + " events"}
	}
	f := FactsOf(e, repositories)
	var matching []*Bundle
	var lacks []string
	for _, b := range all {
		if m, ok := b.Match(f); ok {
			matching = append(matching, b)
		} else {
			lacks = append(lacks, b.Name+": "+m.Why)
		}
	}
	if len(matching) == 0 {
		slices.Sort(lacks)
		return Choice{Code: problem.NoMatch, Why: strings.Join(lacks, "; ")}
	}
	i := MostSpecific(matching)
	if i < 0 {
		return Choice{Code: problem.AmbiguousBundles, Why: names(matching) + " match and none is covered by all others; narrow one or give one a priority"}
	}
	return choose(matching[i], e, f, now)
}

// ChooseNamed is Choose for a session that names its bundle: a child's, which no
// trigger has to match.
func ChooseNamed(b *Bundle, e *event.Event, repositories map[string]string, now time.Time) Choice {
	return choose(b, e, FactsOf(e, repositories), now)
}

func choose(b *Bundle, e *event.Event, f Facts, now time.Time) Choice {
	c := Choice{Bundle: b, Floor: b.Floor(e)}
	if err := c.prepare(f); err != nil {
		c.Code = problem.CodeOf(err)
		c.Why = err.Error()
		var p *problem.Error
		if errors.As(err, &p) {
			c.Why = strings.TrimSuffix(p.Msg+"; "+p.Hint, "; ")
		}
		return c
	}
	if accepts := c.Bundle.AcceptsIn(c.Bundle.Mode, now); c.Floor.Origin.Below(accepts) {
		c.Code = problem.BelowAccepts
		c.Why = fmt.Sprintf("%s accepts %s in %s mode; %s is %s", c.Bundle.Name, accepts, c.Bundle.Mode, c.Floor.Pointer, c.Floor.Origin)
	}
	return c
}

// prepare resolves what the session is bound to.
func (c *Choice) prepare(f Facts) (err error) {
	if c.Subject, err = c.Bundle.Subject(f); err != nil {
		return err
	}
	if c.Task, err = c.Bundle.Task(f); err != nil {
		return err
	}
	c.Key, err = c.Bundle.ConcurrencyKey(f)
	return err
}

func names(bs []*Bundle) string {
	var out []string
	for _, b := range bs {
		out = append(out, b.Name)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
