package webhook

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"time"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// The source tokens of ids and subjects.
const (
	Name         = "webhook"
	NameStandard = "standard-webhooks"
)

// KindReceived is the kind of a delivery whose kinds the operator did not name.
const KindReceived = "received"

const (
	defaultTolerance = 5 * time.Minute
	defaultWindow    = 72 * time.Hour
	defaultMaxBody   = 256 << 10
)

// Options configures a Source.
type Options struct {
	Name    string // Name or NameStandard
	Secrets []secret.Value
	Scheme  Scheme
	// Tolerance is how far a signed time may be off, 5 minutes by default.
	Tolerance time.Duration
	// IDHeader or IDPath name the delivery id, for dedupe; a signed id goes
	// first. With neither, ByBody takes equal bodies for the same delivery;
	// without it every request is a delivery of its own.
	IDHeader, IDPath string
	ByBody           bool
	Window           time.Duration // of dedupe, 72 h by default
	MaxBody          int64         // bytes, 256 KiB by default
	// KindPath is where the body says what happened, and Kinds the closed list:
	// value -> kind. Without a list every delivery is of kind "received"; with
	// one, a value outside it is unrecognized.
	KindPath string
	Kinds    map[string]string
	Facts    []Declared
	// Entity is the name of the declared fact that names what a delivery is
	// about.
	Entity string
	// Challenge answers a verified body {"type": "url_verification",
	// "challenge": ...} with the challenge.
	Challenge bool
	Now       func() time.Time // time.Now by default
}

// Source is one sender.
type Source struct {
	o      Options
	verify verifier
	forms  map[ingest.Rule]ingest.Form
	table  *ingest.Table
	facts  []ingest.Fact
}

var _ ingest.Source = (*Source)(nil)

// New checks the options.
func New(o Options) (*Source, error) {
	bad := func(msg, hint string) error { return problem.New(problem.ConfigInvalid, msg, hint) }
	if o.Name != Name && o.Name != NameStandard {
		return nil, bad("the source is neither webhook nor standard-webhooks", "")
	}
	if o.Scheme == nil {
		return nil, bad("the endpoint does not say how its sender proves itself", "Use source standard-webhooks, or give hmac or token.")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Tolerance == 0 {
		o.Tolerance = defaultTolerance
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	verify, err := o.Scheme.open(o.Secrets)
	if err != nil {
		return nil, err
	}
	s := &Source{o: o, verify: verify, forms: map[ingest.Rule]ingest.Form{}}
	for _, kind := range o.Kinds {
		if !event.IsToken(kind) || !event.Startable(kind) {
			return nil, bad("a kind is not a name of its own", "Use a-z, 0-9, _ and -, and not ping, unrecognized or quarantined.")
		}
	}
	if len(o.Kinds) > 0 && o.KindPath == "" {
		return nil, bad("kinds need the path of the value that names them", "Write kind: {path: /type, values: {...}}.")
	}
	rows := []ingest.Row{{Path: "", Rule: ingest.Rule(event.Outsider), As: "body"}}
	for _, d := range o.Facts {
		form, err := d.form()
		if err != nil {
			return nil, err
		}
		rule := ingest.Rule("declared " + d.Path)
		s.forms[rule] = form
		s.facts = append(s.facts, ingest.Fact{Name: d.Name, Path: d.Path, Form: form})
		rows = append(rows, ingest.Row{Path: d.Path, Rule: rule})
	}
	if o.Entity != "" && !s.declares(o.Entity) {
		return nil, bad("the entity is not a declared fact", "Declare a fact of that name.")
	}
	s.table = ingest.NewTable(rows)
	return s, nil
}

func (s *Source) declares(name string) bool {
	for _, f := range s.facts {
		if f.Name == name {
			return true
		}
	}
	return false
}

// Traits come from the options.
func (s *Source) Traits() ingest.Traits {
	return ingest.Traits{Name: s.o.Name, MaxBody: s.o.MaxBody, Timeout: 9 * time.Second, Window: s.o.Window, ByBody: s.o.ByBody}
}

// Verify checks the scheme, then a signed time, then what the verified body says
// of itself.
func (s *Source) Verify(h http.Header, raw []byte) (ingest.Delivery, error) {
	p, err := s.verify(h, raw)
	if err != nil {
		return ingest.Delivery{}, err
	}
	if !p.sent.IsZero() {
		if age := s.o.Now().Sub(p.sent); age > s.o.Tolerance || age < -s.o.Tolerance {
			return ingest.Delivery{}, problem.New(problem.Stale, "signed time is outside the window", "")
		}
	}
	d := ingest.Delivery{Auth: p.auth}
	if d.JSON, err = document(h, raw, len(p.auth.Signed) > 0); err != nil {
		return ingest.Delivery{}, err
	}
	if d.Doc, err = ingest.Scan(d.JSON); err != nil {
		return ingest.Delivery{}, err
	}
	if s.o.Challenge && d.Doc.At("/type").Is("url_verification") {
		d.Challenge = d.Doc.At("/challenge").ID()
	}
	if d.ID, err = s.id(h, p, d.Doc); err != nil {
		return ingest.Delivery{}, err
	}
	return d, nil
}

// id finds the delivery id: signed, in the body, in a header, or none.
func (s *Source) id(h http.Header, p proof, doc *ingest.Doc) (string, error) {
	id := p.id
	switch {
	case id != "":
	case s.o.IDPath != "":
		id = doc.At(s.o.IDPath).ID()
	case s.o.IDHeader != "":
		return ingest.DeliveryID(h, s.o.IDHeader)
	case s.o.ByBody:
		return "", nil
	default:
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return "", problem.Wrap(err, problem.Unavailable, "no random number", "")
		}
		return "r-" + hex.EncodeToString(b[:]), nil
	}
	return ingest.DeliveryID(http.Header{"Id": {id}}, "Id")
}

// document returns the JSON of the body. CloudEvents in binary mode carry their
// attributes in headers: they become the structured form, so that one table
// reads both. Under a scheme that signs the body they are left out: headers are
// not covered, and an attribute must not be worth less than it looks.
func document(h http.Header, raw []byte, signed bool) ([]byte, error) {
	media, _, err := mime.ParseMediaType(ingest.Header(h, "Content-Type"))
	if err != nil {
		media = ""
	}
	json1 := media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
	switch {
	case !json1 || strings.HasPrefix(media, "application/cloudevents-batch"):
		return nil, problem.New(problem.ContentType, "body is not JSON", "")
	case media == "application/cloudevents+json" || signed || ingest.Header(h, "Ce-Specversion") == "":
		return raw, nil
	}
	attributes := map[string]json.RawMessage{}
	for name, values := range h {
		if attr, ok := strings.CutPrefix(name, "Ce-"); ok && len(values) == 1 {
			b, err := json.Marshal(values[0])
			if err != nil {
				return nil, problem.New(problem.BadJSON, "an attribute is not text", "")
			}
			attributes[strings.ToLower(attr)] = b
		}
	}
	if _, err := ingest.Scan(raw); err != nil {
		return nil, err
	}
	attributes["data"] = raw
	b, err := json.Marshal(attributes)
	if err != nil {
		return nil, problem.New(problem.BadJSON, "body is not JSON", "")
	}
	return b, nil
}

// Normalize labels everything outsider but for declared values that have their
// form.
func (s *Source) Normalize(d ingest.Delivery, doc *ingest.Doc) (*event.Event, error) {
	t := s.table.Apply(doc, func(rule ingest.Rule, _, at ingest.Node) ingest.Label {
		if form := s.forms[rule]; form != nil {
			if v, ok := form(at); ok && event.IsClosed(v) {
				return ingest.Label{Origin: event.Platform}
			}
		}
		return ingest.Label{Origin: event.Outsider}
	})
	e := &event.Event{Kind: s.kind(doc), Prov: t.Prov, Text: t.Text, Actor: event.Actor{Kind: "none", Level: event.Outsider}}
	if d.Challenge != "" {
		e.Kind = event.KindPing
	}
	e.Facts, e.Anomalies = ingest.Facts(doc, s.facts)
	e.Entity = event.Entity{Kind: e.Kind, ID: e.Facts[s.o.Entity]}
	if e.Entity.ID != "" {
		e.EntityPath = e.Entity.Kind + "/" + e.Entity.ID
	}
	return e, nil
}

func (s *Source) kind(doc *ingest.Doc) string {
	if len(s.o.Kinds) == 0 {
		return KindReceived
	}
	value, _ := doc.At(s.o.KindPath).Text()
	if kind := s.o.Kinds[value]; kind != "" {
		return kind
	}
	return event.KindUnrecognized
}
