package github

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Name is the source token of ids and subjects.
const Name = "github"

// Options configures a Source.
type Options struct {
	Secrets  []secret.Value // of the webhook; two while one is rotated
	Commands Commands
	// Bots and Apps are the operator's lists: user id of a bot, id of an app ->
	// level of what it writes. Anything else automatic is outsider.
	Bots, Apps map[string]event.Origin
}

// Source is GitHub, github.com or Enterprise Server.
type Source struct {
	o       Options
	secrets *ingest.Secrets
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
	if err := o.Commands.check(); err != nil {
		return nil, err
	}
	for _, list := range []map[string]event.Origin{o.Bots, o.Apps} {
		for _, level := range list {
			if !level.Valid() || !level.Below(event.Operator) || level == event.Credential {
				return nil, problem.New(problem.ConfigInvalid, "a bot or app has a level that no account can have",
					"Use member, contributor or outsider.")
			}
		}
	}
	kinds, other := tables()
	return &Source{o: o, secrets: secrets, kinds: kinds, other: other}, nil
}

// Traits returns the vendor's constants: GitHub delivers up to 25 MB, waits 10 s, never retries by itself and
// redelivers for 3 days (7 on Enterprise Server).
func (*Source) Traits() ingest.Traits {
	return ingest.Traits{Name: Name, MaxBody: 25 << 20, Timeout: 9 * time.Second, Window: 7 * 24 * time.Hour, ByBody: true, Hidden: hidden}
}

var hidden = []string{"/hook/config/secret", "/alert/secret"}

// Normalize labels a document of the claimed kind. The kind stands in an
// unsigned header, so the body has to have its shape; a kind outside the
// published set is kept as unrecognized.
func (s *Source) Normalize(d ingest.Delivery, doc *ingest.Doc) (*event.Event, error) {
	return s.normalize(d, doc, nil)
}

// normalize takes, besides, the ids of accounts that are known to have write
// access (lift.go).
func (s *Source) normalize(d ingest.Delivery, doc *ingest.Doc, proven map[string]bool) (*event.Event, error) {
	k, ok := s.kinds[d.Kind]
	if !ok {
		k = s.other
	}
	if !k.fits(doc) {
		return nil, ingest.ErrShape
	}
	action, named := doc.At("/action").Text()
	e := &event.Event{Kind: k.name, Action: ingest.Token(action), Lists: map[string][]string{}}
	if k.freeAction {
		e.Action = "" // the caller of the API chose it: text, below
	} else if named && e.Action == "" {
		e.Anomalies = append(e.Anomalies, "action")
	}
	if k == s.other {
		e.Action = ""
	}
	v := s.view(k, doc, e.Action, proven)
	t := k.table.Apply(doc, v.resolve)
	e.Prov, e.Text = t.Prov, t.Text
	e.Facts, e.Anomalies = s.facts(k, doc, e.Anomalies)
	s.actor(v, e)
	for _, l := range k.lists {
		if ids := ingest.IDs(doc.At(l.path), l.key); len(ids) > 0 {
			e.Lists[l.name] = ids
		}
	}
	for _, l := range k.levels {
		if obj := doc.At(l.path); obj.Object() {
			e.Facts[l.fact] = string(v.author(obj).Origin)
		}
	}
	s.entity(k, doc, e)
	if k.time != "" {
		if at, ok := ingest.Time(doc.At(k.time)); ok {
			e.Time = at
		}
	}
	if k.extra != nil {
		k.extra(v, e)
	}
	return e, nil
}

func (s *Source) facts(k *kind, doc *ingest.Doc, odd []string) (map[string]string, []string) {
	facts, a := ingest.Facts(doc, k.facts)
	odd = append(odd, a...)
	if k.fork != nil {
		facts["fork"] = "false"
		if k.fork(doc) {
			facts["fork"] = "true"
		}
	}
	if facts["repository.visibility"] == "" {
		switch facts["repository.private"] {
		case "true":
			facts["repository.visibility"] = "private"
		case "false":
			facts["repository.visibility"] = "public"
		}
	}
	return facts, odd
}

func (s *Source) actor(v *view, e *event.Event) {
	e.Actor = event.Actor{ID: v.sender.Get("id").ID(), Kind: "none", Level: v.senderLevel()}
	switch t := v.sender.Get("type"); {
	case t.Is("User"):
		e.Actor.Kind = "user"
	case t.Is("Bot"):
		e.Actor.Kind = "bot"
	case v.sender.Exists() && !v.sender.Null():
		e.Actor.Kind = "external"
	default:
		e.Anomalies = append(e.Anomalies, "missing_actor")
	}
	e.Facts["actor.level"] = string(e.Actor.Level)
}

// entity names what the event is about, by ids only.
func (s *Source) entity(k *kind, doc *ingest.Doc, e *event.Event) {
	n := &e.Entity
	n.Scope = map[string]string{}
	for _, s := range []struct{ scope, path string }{{"repo", "/repository/id"}, {"org", "/organization/id"}, {"installation", "/installation/id"}} {
		if id := doc.At(s.path).ID(); id != "" {
			n.Scope[s.scope] = id
		}
	}
	n.Kind = k.entity.kind
	if n.Kind == "" {
		n.Kind = k.name
	}
	n.ID, n.Number = doc.At(k.entity.id).ID(), doc.At(k.entity.number).ID()
	if k.entity.id == "" {
		n.ID = ""
	}
	if k.entity.number == "" {
		n.Number = ""
	}
	if k.entity.pull != "" && doc.At(k.entity.pull).Object() {
		n.Kind = "pull_request"
	}
	var path []string
	if id := n.Scope["repo"]; id != "" {
		path = append(path, "repo", id)
	}
	if last := n.Number + n.ID; last != "" {
		if n.Number != "" {
			last = n.Number
		}
		path = append(path, n.Kind, last)
	}
	e.EntityPath = strings.Join(path, "/")
}

// command sets facts.command, for a new comment by an author whose level is
// proven here. A word of anybody else is text like the rest.
func command(v *view, e *event.Event, comment string) {
	if v.action != "created" {
		return
	}
	obj := v.doc.At(comment)
	body, _ := obj.Get("body").Text()
	if word := v.s.o.Commands.find(body); word != "" && !v.author(obj).Origin.Below(event.Member) {
		e.Facts["command"] = word
	}
}

func branchHash(doc *ingest.Doc, path string) string {
	name, _ := doc.At(path).Text()
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:4])
}
