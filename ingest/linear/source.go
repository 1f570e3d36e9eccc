package linear

import (
	"strings"
	"time"
	"unicode"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Name is the source token of ids and subjects.
const Name = "linear"

// Options configures a Source.
type Options struct {
	Secrets []secret.Value // of the webhook; two while one is rotated
	// Services and Clients are the operator's lists: name of an integration that
	// relays text, id of an OAuth client -> level of what it writes. Anything
	// else that is not a person of the workspace is outsider.
	Services, Clients map[string]event.Origin
	Now               func() time.Time // time.Now by default
}

// Source is one workspace of Linear.
type Source struct {
	o       Options
	secrets *ingest.Secrets
	now     func() time.Time
	kinds   map[string]*kind
	other   *kind
}

var _ ingest.Source = (*Source)(nil)

// New checks the options.
func New(o Options) (*Source, error) {
	secrets, err := ingest.NewSecrets(o.Secrets)
	if err != nil {
		return nil, err
	}
	for _, list := range []map[string]event.Origin{o.Services, o.Clients} {
		for _, level := range list {
			if !level.Valid() || !level.Below(event.Operator) || level == event.Credential {
				return nil, problem.New(problem.ConfigInvalid, "a service or client has a level that no account can have",
					"Use member, contributor or outsider.")
			}
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	other := &kind{name: event.KindUnrecognized}
	other.finish()
	return &Source{o: o, secrets: secrets, now: o.Now, kinds: kinds(), other: other}, nil
}

// Traits returns the vendor's constants: Linear waits 5 s, counts nothing but 200 as success and repeats a
// failed delivery for six hours.
func (*Source) Traits() ingest.Traits {
	return ingest.Traits{Name: Name, MaxBody: 1 << 20, Timeout: 4500 * time.Millisecond, Window: 24 * time.Hour, ByBody: true}
}

// Normalize labels a body by the type inside it, which is signed.
func (s *Source) Normalize(d ingest.Delivery, doc *ingest.Doc) (*event.Event, error) {
	typed, _ := doc.At("/type").Text()
	k, ok := s.kinds[typed]
	if !ok {
		k = s.other
	}
	if !k.fits(doc) {
		return nil, ingest.ErrShape
	}
	e := &event.Event{Kind: k.name, Lists: map[string][]string{}}
	if action, ok := doc.At("/action").Text(); ok && k != s.other {
		if e.Action = ingest.Token(snake(action)); e.Action == "" {
			e.Anomalies = append(e.Anomalies, "action")
		}
	}
	if d.Auth.Late {
		e.Anomalies = append(e.Anomalies, "late_delivery")
	}
	v := &view{s: s, doc: doc, action: e.Action}
	t := k.table.Apply(doc, v.resolve)
	e.Prov, e.Text = t.Prov, t.Text
	facts, odd := ingest.Facts(doc, k.facts)
	e.Facts, e.Anomalies = facts, append(e.Anomalies, odd...)
	for name, path := range k.lists {
		if ids := idList(doc.At(path)); len(ids) > 0 {
			e.Lists[name] = ids
		}
	}
	e.Actor = v.actor()
	e.Facts["actor.level"] = string(e.Actor.Level)
	if e.Actor.Kind == "none" {
		e.Anomalies = append(e.Anomalies, "missing_actor")
	}
	e.Entity = event.Entity{Kind: k.entity, Scope: map[string]string{}}
	if k.entity == "" {
		e.Entity.Kind = k.name
	}
	for scope, fact := range map[string]string{"org": "organization.id", "team": "team.id", "project": "project.id"} {
		if id := e.Facts[fact]; id != "" {
			e.Entity.Scope[scope] = id
		}
	}
	if k.id != "" {
		e.Entity.ID = doc.At(k.id).ID()
	}
	if e.Entity.ID != "" {
		e.EntityPath = e.Entity.Kind + "/" + e.Entity.ID
	}
	if at, ok := ingest.Time(doc.At(k.time)); ok && k.time != "" {
		e.Time = at
	}
	if k.extra != nil {
		k.extra(v, e)
	}
	return e, nil
}

// idList reads an array of ids.
func idList(n ingest.Node) []string {
	var ids []string
	for i, item := range n.Items() {
		if i == 100 {
			break
		}
		if id, ok := ingest.FormUUID(item); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// snake turns teamAccessChanged into team_access_changed.
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
