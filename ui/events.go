package ui

import (
	"net/http"

	"gatehouse/gatekeeper"
	"gatehouse/internal/view"
)

var eventKeys = []string{"source", "endpoint", "kind", "level", "actor", "anomaly", "state", "id"}

func eventFields(e view.Event) map[string]string {
	m := map[string]string{
		"source": e.Source, "endpoint": e.Endpoint, "kind": kindOf(e), "level": e.Actor.Level, "actor": e.Actor.ID, "id": e.ID, "state": "none",
	}
	if n := len(e.Sessions); n > 0 {
		m["state"] = e.Sessions[n-1].State
	}
	if len(e.Anomalies) > 0 {
		m["anomaly"] = e.Anomalies[0]
	}
	return m
}

// kindOf is the kind as bundles name it.
func kindOf(e view.Event) string {
	if e.Action == "" || e.Action == "none" {
		return e.Kind
	}
	return e.Kind + "." + e.Action
}

func (u *UI) events(r *http.Request) (answer, error) {
	f, cursor, err := asked(r, eventKeys)
	if err != nil {
		return answer{}, err
	}
	want := view.EventFilter{Source: f.equal("source"), Endpoint: f.equal("endpoint"), Level: f.equal("level"), State: f.equal("state")}
	p, err := gather(func(after string, n int) (view.Page[view.Event], error) { return u.o.View.Events(want, after, n) },
		func(e view.Event) bool { return f.fits(eventFields(e)) }, cursor)
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Events", body: eventList(f, p, cursor != "")}, nil
}

func (u *UI) event(r *http.Request) (answer, error) {
	e, err := u.o.View.Event(r.Context(), r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Event " + short(e.ID), body: eventPage(e, false)}, nil
}

// reveal shows an event with its text, once that is written down.
func (u *UI) reveal(r *http.Request) (answer, error) {
	e, err := u.o.View.Event(r.Context(), r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	if err := u.o.Changes.Note(r.Context(), gatekeeper.StepReveal, "", e.ID, u.o.Who(r).By); err != nil {
		return answer{}, err
	}
	return answer{title: "Event " + short(e.ID), body: eventPage(e, true)}, nil
}

func (u *UI) redeliver(r *http.Request) (answer, error) {
	who, err := u.allowed(r, ActOperate)
	if err != nil {
		return answer{}, err
	}
	id, err := u.o.Do.Redeliver(r.Context(), r.PathValue("id"), who)
	if err != nil {
		return answer{}, err
	}
	return answer{to: "/ui/sessions/" + id}, nil
}
