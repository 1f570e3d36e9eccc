package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

const (
	schemaVersion = 1
	sourcePrefix  = "urn:gatehouse:"
)

// Encode returns e as one CloudEvents 1.0 structured-mode JSON object. The
// bytes are a function of the event alone: attributes in byte order of their
// names, no white space, times in UTC with nine decimals. The payload is copied
// as it is; that it is JSON is the caller's promise, which Decode checks. Encode
// refuses an event that breaks the other rules of the fields.
func (e *Event) Encode() ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	w := writer{b: make([]byte, 0, e.size())}
	w.open()
	w.str("actorlevel", string(e.Actor.Level))
	w.str("bodysha256", e.BodySHA256)
	w.name("data")
	prov := e.appendData(&w)
	w.str("datacontenttype", "application/json")
	w.str("dataschema", e.schema())
	w.str("delivery", e.Delivery)
	w.str("endpoint", e.Endpoint)
	w.str("id", e.ID)
	w.str("provsha256", digest(prov))
	w.str("received", stamp(e.Received))
	if e.SameSHA256 != "" {
		w.str("samesha256", e.SameSHA256)
	}
	w.str("source", sourcePrefix+e.Source+":"+e.Endpoint)
	w.str("specversion", "1.0")
	if e.EntityPath != "" {
		w.str("subject", e.EntityPath)
	}
	w.str("time", stamp(e.Time))
	w.str("trust", e.Trust)
	w.str("type", e.ceType())
	w.close()
	return w.b, nil
}

// appendData returns what it wrote as prov.
func (e *Event) appendData(w *writer) (prov []byte) {
	w.open()
	w.str("action", e.Action)
	w.name("actor")
	w.open()
	w.str("id", e.Actor.ID)
	w.str("kind", e.Actor.Kind)
	w.str("level", string(e.Actor.Level))
	w.close()
	w.list("anomalies", e.Anomalies)
	w.name("auth")
	w.open()
	w.str("key", e.Auth.Key)
	w.bool("late", e.Auth.Late)
	w.str("scheme", e.Auth.Scheme)
	w.list("signed", e.Auth.Signed)
	w.close()
	w.name("entity")
	w.open()
	w.str("id", e.Entity.ID)
	w.str("kind", e.Entity.Kind)
	w.str("number", e.Entity.Number)
	w.strings("scope", e.Entity.Scope)
	w.close()
	w.strings("facts", e.Facts)
	w.str("kind", e.Kind)
	w.name("lists")
	w.open()
	for _, k := range sorted(e.Lists) {
		w.list(k, e.Lists[k])
	}
	w.close()
	if e.Payload != nil {
		w.raw("payload", e.Payload)
	}
	w.name("prov")
	from := len(w.b)
	w.origins(e.Prov)
	prov = w.b[from:]
	if e.Raw != "" {
		w.str("raw", e.Raw)
	}
	w.name("text")
	w.b = append(w.b, '[')
	for i := range e.Text {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.passage(&e.Text[i])
	}
	w.b = append(w.b, ']')
	w.num("v", schemaVersion)
	w.close()
	return prov
}

func (w *writer) passage(p *Passage) {
	w.open()
	w.str("as", p.As)
	w.str("author", p.Author)
	w.bool("cut", p.Cut)
	w.num("len", p.Len)
	w.list("marks", p.Marks)
	w.str("origin", string(p.Origin))
	w.str("pointer", p.Pointer)
	w.str("value", p.Value.v)
	w.close()
}

func (w *writer) origins(prov map[string]Origin) {
	w.open()
	for _, k := range sorted(prov) {
		w.str(k, string(prov[k]))
	}
	w.close()
}

// size is how long e is when it is encoded, without the escapes of its text and
// at most a kilobyte more: a larger guess costs a page of memory for each event.
func (e *Event) size() int {
	const (
		fixed = 1024 // names, digests, times and brackets of the envelope and of data
		pair  = len(`"":"",`)
		part  = len(`{"as":"","author":"","cut":false,"len":1048576,"marks":[],"origin":"","pointer":"","value":""},`)
	)
	n := fixed + len(e.Payload) + len(e.Raw) + len(e.ID) + len(e.Delivery) + 3*len(e.Kind) + 2*len(e.Action) + 2*len(e.Endpoint) + len(e.EntityPath)
	for _, s := range [][]string{e.Anomalies, e.Auth.Signed} {
		n += listSize(s)
	}
	for _, m := range []map[string]string{e.Facts, e.Entity.Scope} {
		for k, v := range m {
			n += len(k) + len(v) + pair
		}
	}
	for k, v := range e.Lists {
		n += len(k) + pair + listSize(v)
	}
	for k, v := range e.Prov {
		n += len(k) + len(v) + pair
	}
	for i := range e.Text {
		p := &e.Text[i]
		n += part + len(p.Value.v) + len(p.Pointer) + len(p.As) + len(p.Author) + len(p.Origin) + listSize(p.Marks)
	}
	return n
}

func listSize(l []string) int {
	n := 0
	for _, s := range l {
		n += len(s) + len(`"",`)
	}
	return n
}

// ceType is the CloudEvents type; the action part is left out where the vendor
// sends none.
func (e *Event) ceType() string {
	t := "gatehouse." + e.Source + "." + e.Kind
	if e.Action != "" {
		t += "." + e.Action
	}
	return t + ".v1"
}

func (e *Event) schema() string {
	return fmt.Sprintf("urn:gatehouse:schema:%s.%s:%d", e.Source, e.Kind, schemaVersion)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000Z") }

// wire mirrors the canonical form for Decode. Every attribute is here, derived
// ones too: re-encoding decides whether they were right.
type wire struct {
	ActorLevel string    `json:"actorlevel"`
	BodySHA256 string    `json:"bodysha256"`
	Data       wireData  `json:"data"`
	Type       string    `json:"type"`
	Content    string    `json:"datacontenttype"`
	Schema     string    `json:"dataschema"`
	Delivery   string    `json:"delivery"`
	Endpoint   string    `json:"endpoint"`
	ID         string    `json:"id"`
	ProvSHA256 string    `json:"provsha256"`
	Received   time.Time `json:"received"`
	SameSHA256 string    `json:"samesha256"`
	Source     string    `json:"source"`
	Spec       string    `json:"specversion"`
	Subject    string    `json:"subject"`
	Time       time.Time `json:"time"`
	Trust      string    `json:"trust"`
}

type wireData struct {
	Action    string              `json:"action"`
	Actor     wireActor           `json:"actor"`
	Anomalies []string            `json:"anomalies"`
	Auth      wireAuth            `json:"auth"`
	Entity    wireEntity          `json:"entity"`
	Facts     map[string]string   `json:"facts"`
	Kind      string              `json:"kind"`
	Lists     map[string][]string `json:"lists"`
	Payload   json.RawMessage     `json:"payload"`
	Prov      map[string]Origin   `json:"prov"`
	Raw       string              `json:"raw"`
	Text      []wirePassage       `json:"text"`
	V         int                 `json:"v"`
}

type wireActor struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Level Origin `json:"level"`
}

type wireAuth struct {
	Key    string   `json:"key"`
	Late   bool     `json:"late"`
	Scheme string   `json:"scheme"`
	Signed []string `json:"signed"`
}

type wireEntity struct {
	ID     string            `json:"id"`
	Kind   string            `json:"kind"`
	Number string            `json:"number"`
	Scope  map[string]string `json:"scope"`
}

type wirePassage struct {
	As      string   `json:"as"`
	Author  string   `json:"author"`
	Cut     bool     `json:"cut"`
	Len     int      `json:"len"`
	Marks   []string `json:"marks"`
	Origin  Origin   `json:"origin"`
	Pointer string   `json:"pointer"`
	Value   string   `json:"value"`
}

var errNotCanonical = errors.New("not the canonical form of an event")

// Decode reads what Encode wrote. It accepts no other bytes: the event it
// returns encodes to b exactly, so a changed label, a second key of one name or
// a stale digest is an error.
func Decode(b []byte) (*Event, error) {
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("decode event: %w", errNotCanonical)
	}
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	d := &w.Data
	e := &Event{
		ID: w.ID, Source: sourceOf(w.Source), Endpoint: w.Endpoint, Kind: d.Kind, Action: d.Action,
		EntityPath: w.Subject, Time: w.Time.UTC(), Received: w.Received.UTC(), Delivery: w.Delivery,
		Trust: w.Trust, BodySHA256: w.BodySHA256, SameSHA256: w.SameSHA256,
		Entity:    Entity{Kind: d.Entity.Kind, ID: d.Entity.ID, Number: d.Entity.Number, Scope: filled(d.Entity.Scope)},
		Actor:     Actor(d.Actor),
		Auth:      Auth{Scheme: d.Auth.Scheme, Key: d.Auth.Key, Signed: listed(d.Auth.Signed), Late: d.Auth.Late},
		Facts:     filled(d.Facts),
		Lists:     filled(d.Lists),
		Prov:      filled(d.Prov),
		Anomalies: listed(d.Anomalies),
		Payload:   []byte(d.Payload),
		Raw:       d.Raw,
	}
	for _, p := range d.Text {
		e.Text = append(e.Text, Passage{Pointer: p.Pointer, As: p.As, Value: Text{v: p.Value}, Origin: p.Origin,
			Author: p.Author, Len: p.Len, Cut: p.Cut, Marks: listed(p.Marks)})
	}
	again, err := e.Encode()
	if err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	if !bytes.Equal(again, b) {
		return nil, fmt.Errorf("decode event: %w", errNotCanonical)
	}
	return e, nil
}

// sourceOf takes the source token out of "urn:gatehouse:<source>:<endpoint>".
func sourceOf(urn string) string {
	rest, ok := bytes.CutPrefix([]byte(urn), []byte(sourcePrefix))
	if !ok {
		return ""
	}
	source, _, _ := bytes.Cut(rest, []byte{':'})
	return string(source)
}

// filled and listed turn the empty forms into nil, so that an event compares
// equal to its decoded self.
func filled[M ~map[K]V, K comparable, V any](m M) M {
	if len(m) == 0 {
		return nil
	}
	return m
}

func listed(l []string) []string {
	if len(l) == 0 {
		return nil
	}
	return l
}
