package sentry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/secret"
)

// Name is the source token of ids and subjects.
const Name = "sentry"

// Options configures a Source.
type Options struct {
	Secrets []secret.Value // client secret of the integration; two while one is rotated
}

// Source is one integration of Sentry.
type Source struct {
	secrets *ingest.Secrets
	kinds   map[string]*kind
	other   *kind
	traits  ingest.Traits
}

var _ ingest.Source = (*Source)(nil)

// New checks the options.
func New(o Options) (*Source, error) {
	secrets, err := ingest.NewSecrets(o.Secrets)
	if err != nil {
		return nil, err
	}
	other := &kind{}
	other.finish(event.KindUnrecognized)
	return &Source{secrets: secrets, kinds: kinds(), other: other, traits: traits()}, nil
}

// Traits returns the vendor's constants: Sentry waits one second, and an internal integration gets one attempt.
// Published ones retry for about a quarter of an hour with the same body.
func (s *Source) Traits() ingest.Traits { return s.traits }

func traits() ingest.Traits {
	t := ingest.Traits{Name: Name, MaxBody: 1 << 20, Timeout: 900 * time.Millisecond, Window: 24 * time.Hour, ByBody: true,
		Hidden: []string{"/data/installation/code"}}
	// What an SDK collects about people and processes: dropped before anything
	// is stored. The names are those of the occurrence table.
	for _, at := range []string{"/data/event", "/data/error"} {
		for _, r := range occurrence {
			if r.Rule == credential {
				t.Hidden = append(t.Hidden, at+r.Path)
			}
		}
	}
	return t
}

// Normalize labels a body of the resource that the unsigned header claims.
func (s *Source) Normalize(d ingest.Delivery, doc *ingest.Doc) (*event.Event, error) {
	k, ok := s.kinds[d.Kind]
	if !ok {
		k = s.other
	}
	if !k.fits(doc) {
		return nil, ingest.ErrShape
	}
	e := &event.Event{Kind: k.name, Lists: map[string][]string{}}
	if action, ok := doc.At("/action").Text(); ok && k != s.other {
		if e.Action = ingest.Token(action); e.Action == "" {
			e.Anomalies = append(e.Anomalies, "action")
		}
	}
	v := view{doc.At("/actor")}
	t := k.table.Apply(doc, v.resolve)
	e.Prov, e.Text = t.Prov, t.Text
	facts, odd := ingest.Facts(doc, k.facts)
	e.Facts, e.Anomalies = facts, append(e.Anomalies, odd...)
	e.Actor = v.actor()
	e.Facts["actor.level"] = string(e.Actor.Level)
	e.Entity = event.Entity{Kind: k.entity, Scope: map[string]string{}}
	if k.entity == "" {
		e.Entity.Kind = k.name
	}
	for scope, fact := range map[string]string{"installation": "installation.uuid", "project": "project.id", "org": "organization.id"} {
		if id := e.Facts[fact]; id != "" {
			e.Entity.Scope[scope] = id
		}
	}
	if k.id != "" {
		e.Entity.ID = doc.At(k.id).ID()
	}
	if e.Entity.Kind == "issue" {
		e.Entity.Number = e.Entity.ID // unique in the organisation: one slug for an issue, its alerts and its comments
	}
	if e.Entity.ID != "" {
		e.EntityPath = e.Entity.Kind + "/" + e.Entity.ID
	}
	if k.time != "" {
		if at, ok := ingest.Time(doc.At(k.time)); ok {
			e.Time = at
		}
	}
	if k.same != nil {
		e.SameSHA256 = same(doc, e, k.same(doc))
	}
	// IN-23: authority goes away with the installation.
	if k.stops != "" && e.Action == k.stops && e.Entity.ID != "" {
		e.SetStop(event.StopInstallation, e.Entity.ID)
	}
	return e, nil
}

// same digests what makes two bodies of one installation say the same. Without
// any of the parts they say nothing of each other.
func same(doc *ingest.Doc, e *event.Event, parts []ingest.Node) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s", e.Kind, e.Action, doc.At("/installation/uuid").Bytes())
	for _, p := range parts {
		if p.Null() {
			return ""
		}
		fmt.Fprintf(h, "\n%s", p.Bytes())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// view is one document seen with the question who acted.
type view struct{ who ingest.Node }

// resolve decides byActor: a user of the organisation is a member, an
// application or nobody is not.
func (v view) resolve(_ ingest.Rule, _, _ ingest.Node) ingest.Label {
	a := v.actor()
	return ingest.Label{Origin: a.Level, Author: a.ID}
}

func (v view) actor() event.Actor {
	a := event.Actor{ID: v.who.Get("id").ID(), Kind: "none", Level: event.Outsider}
	switch t := v.who.Get("type"); {
	case t.Is("user"):
		a.Kind, a.Level = "user", event.Member
	case t.Is("application"):
		a.Kind = "app"
	}
	return a
}
