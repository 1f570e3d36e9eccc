package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// maxInline is the largest payload that stays in the event; a larger one goes to
// a blob before the record that names it. maxEvent bounds the record, which has
// to fit one NATS message.
const (
	maxInline = 512 << 10
	maxEvent  = 960 << 10
)

// built is an event before its payload is placed.
type built struct {
	*event.Event
	payload []byte // redacted; nil when the body could not be indexed
}

// Build makes the event of a delivery to ep, quarantined if it is odd. It is
// what the intake does between the signature and the journal, for callers that
// have a body and no request. An error is a body that a sender is told to be
// wrong: not one JSON object, or nested too deep.
func (ep *Endpoint) Build(d Delivery, raw []byte, received time.Time) (*event.Event, error) {
	doc, err := index(d)
	if err != nil {
		return nil, err
	}
	b := ep.build(d, doc, raw, received)
	b.Payload = b.payload
	return b.Event, nil
}

// index scans the document of a delivery; nil means beyond the limits.
func index(d Delivery) (*Doc, error) {
	if d.Doc != nil {
		return d.Doc, nil
	}
	doc, err := Scan(d.JSON)
	if err == errTooComplex { //nolint:errorlint // Scan returns the value itself
		return nil, nil
	}
	return doc, err
}

// build normalizes, or quarantines what is odd.
func (ep *Endpoint) build(d Delivery, doc *Doc, raw []byte, received time.Time) built {
	if doc == nil {
		return ep.quarantine(d, nil, raw, received, anomalyTooLarge)
	}
	if doc.odd[anomalyTwinKeys] {
		return ep.quarantine(d, doc, raw, received, anomalyTwinKeys)
	}
	e, err := ep.Source.Normalize(d, doc)
	if err != nil {
		return ep.quarantine(d, doc, raw, received, anomalyShape)
	}
	ep.envelope(e, d, raw, received)
	e.ID = ep.id(ep.key(d, e.BodySHA256))
	e.Anomalies = merge(e.Anomalies, doc)
	hidden := slices.Clone(ep.Source.Traits().Hidden)
	for row, o := range e.Prov {
		if o == event.Credential {
			hidden = append(hidden, row)
		}
	}
	return built{e, doc.redacted(hidden)}
}

// quarantineMark stands in the id of a quarantined event between the key and the
// body digest; no key has it.
const quarantineMark = '~'

// quarantine keeps a verified delivery that nobody may act on. Its id carries
// the body digest, because its delivery id may be another event's already.
func (ep *Endpoint) quarantine(d Delivery, doc *Doc, raw []byte, received time.Time, why string) built {
	e := &event.Event{Kind: event.KindQuarantined, Anomalies: []string{why}}
	e.Actor = event.Actor{Kind: "none", Level: event.Outsider}
	ep.envelope(e, d, raw, received)
	e.ID = ep.id(ep.key(d, e.BodySHA256) + string(quarantineMark) + e.BodySHA256)
	b := built{Event: e}
	if doc != nil {
		e.Anomalies = merge(e.Anomalies, doc)
		b.payload = doc.redacted(ep.Source.Traits().Hidden)
	}
	return b
}

// envelope fills what the intake knows and the source does not.
func (ep *Endpoint) envelope(e *event.Event, d Delivery, raw []byte, received time.Time) {
	sum := sha256.Sum256(raw)
	e.Source, e.Endpoint = ep.Source.Traits().Name, ep.Name
	e.BodySHA256 = hex.EncodeToString(sum[:])
	e.Received = received.UTC()
	if e.Time.IsZero() {
		e.Time = e.Received
	}
	e.Delivery, e.Auth, e.Trust = d.ID, d.Auth, event.TrustUntrusted
	e.Facts, e.Lists, e.Prov, e.Entity.Scope = filled(e.Facts), filled(e.Lists), filled(e.Prov), filled(e.Entity.Scope)
}

// filled turns an empty map into nil, as Decode does.
func filled[M ~map[K]V, K comparable, V any](m M) M {
	if len(m) == 0 {
		return nil
	}
	return m
}

// key is the primary dedupe key: reference section 5.4.
func (ep *Endpoint) key(d Delivery, body string) string {
	if d.ID != "" {
		return d.ID
	}
	return body
}

func (ep *Endpoint) id(key string) string {
	return ep.Source.Traits().Name + ":" + ep.Name + ":" + key
}

func merge(a []string, doc *Doc) []string {
	for k := range doc.odd {
		a = append(a, k)
	}
	slices.Sort(a)
	return slices.Compact(a)
}

// redacted returns the document without white space and without the values at
// the hidden pointers. Keys are compared without case, so that a twin key hides
// no secret. A document with nothing to change is its own raw bytes.
func (d *Doc) redacted(hidden []string) []byte {
	var hide func(Node) bool
	if set := d.find(hidden); len(set) > 0 {
		hide = func(n Node) bool { return set[n.i] }
	}
	if hide == nil && !d.loose && !d.odd[anomalyLossy] {
		return d.raw
	}
	return d.Root().compact(make([]byte, 0, len(d.raw)), hide)
}

func (d *Doc) find(pointers []string) map[uint32]bool {
	set := map[uint32]bool{}
	for _, p := range pointers {
		at := []Node{d.Root()}
		for _, seg := range segments(p) {
			var below []Node
			for _, n := range at {
				below = append(below, n.all(seg)...)
			}
			at = below
		}
		for _, n := range at {
			if !n.Null() {
				set[n.i] = true
			}
		}
	}
	return set
}

// all returns every member that a reader might take for seg, or every item.
func (n Node) all(seg string) []Node {
	var out []Node
	for i := n.first(); i != 0; i = n.d.values[i].next {
		v := &n.d.values[i]
		key := n.d.raw[v.key:v.keyEnd]
		if v.keyEscaped {
			key = unquote(key)
		}
		if n.Array() && seg == "*" || n.Object() && strings.EqualFold(string(key), unescape(seg)) {
			out = append(out, Node{n.d, i})
		}
	}
	return out
}

// Token returns s when it may be a token of a subject, else "" (IN-21).
func Token(s string) string {
	if event.IsToken(s) {
		return s
	}
	return ""
}

// ErrShape is what Normalize returns for a body that is not of the claimed kind.
var ErrShape = problem.New(problem.BadJSON, "body does not have the shape of the claimed kind", "")
