package sourcetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// Received is when every delivery of these tests arrived.
var Received = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Payload is one body, named <kind>__<what>.
type Payload struct {
	Name, Kind string
	Raw        []byte
}

// Load reads the payloads of folders.
func Load(t testing.TB, dirs ...string) []Payload {
	t.Helper()
	var out []Payload
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*__*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no payloads in %s: %v", dir, err)
		}
		for _, f := range files {
			out = append(out, Read(t, f))
		}
	}
	return out
}

// Read reads one payload and applies edits, pairs of old and new text.
func Read(t testing.TB, file string, edits ...string) Payload {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(edits); i += 2 {
		out := bytes.ReplaceAll(raw, []byte(edits[i]), []byte(edits[i+1]))
		if bytes.Equal(out, raw) {
			t.Fatalf("%s does not hold %s", file, edits[i])
		}
		raw = out
	}
	base := filepath.Base(file)
	kind, _, _ := strings.Cut(base, "__")
	return Payload{Name: strings.TrimSuffix(base, filepath.Ext(base)), Kind: kind, Raw: raw}
}

// Build makes the event of a payload.
func Build(t testing.TB, s ingest.Source, p Payload, d ingest.Delivery) *event.Event {
	t.Helper()
	ep := ingest.Endpoint{Name: "main", Source: s}
	e, err := ep.Build(d, p.Raw, Received)
	if err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	return e
}

// Golden pins the event of a payload in testdata/golden. The payload itself is
// left out of the file: it is in the corpus.
func Golden(t *testing.T, name string, e *event.Event, update bool) {
	t.Helper()
	whole, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := event.Decode(whole)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, again, cmp.AllowUnexported(event.Text{})); diff != "" {
		t.Errorf("decoded event differs (-built +decoded):\n%s", diff)
	}
	short := *e
	short.Payload = nil
	b, err := short.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, b, "", " "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	file := filepath.Join("testdata", "golden", name+".json")
	if update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil { //nolint:gosec // G306: a test file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("event changed (-want +got), -update writes it:\n%s", diff)
	}
}

// Origins returns the origin of each text of e by pointer.
func Origins(e *event.Event) map[string]event.Origin {
	out := map[string]event.Origin{}
	for _, p := range e.Text {
		out[p.Pointer] = p.Origin
	}
	return out
}

// Table is one provenance table as it stands in the source's code.
type Table struct {
	Rows    [][]ingest.Row
	Rebuild func() // flattens Rows again
}

// EveryRowCounts removes each row in turn: some event has to change. A row that
// no payload reaches would be a claim that nothing backs. build makes the event
// of a payload; tables are by kind.
func EveryRowCounts(t *testing.T, tables map[string]Table, payloads []Payload, build func(Payload) *event.Event) {
	t.Helper()
	encode := func(p Payload) []byte {
		b, err := build(p).Encode()
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		return b
	}
	byKind := map[string][]Payload{}
	whole := map[string][]byte{}
	for _, p := range payloads {
		byKind[p.Kind] = append(byKind[p.Kind], p)
		whole[p.Name] = encode(p)
	}
	rows := map[*ingest.Row]declared{}
	for kind, table := range tables {
		for _, part := range table.Rows {
			collect(kind, part, rows, kind+" ")
		}
	}
	for r, d := range rows {
		kept := *r
		*r = ingest.Row{Path: "/removed by the test", Rule: ingest.Rule(event.Outsider)}
		counts := false
		for kind := range d.kinds {
			tables[kind].Rebuild()
			for _, p := range byKind[kind] {
				if counts = !bytes.Equal(whole[p.Name], encode(p)); counts {
					break
				}
			}
			if counts {
				break
			}
		}
		*r = kept
		for kind := range d.kinds {
			tables[kind].Rebuild()
		}
		if !counts {
			t.Errorf("no payload needs the row %s", d.at)
		}
	}
	if len(rows) == 0 {
		t.Error("there are no rows")
	}
}

// declared is one row as it stands in the source, with the kinds that use it.
type declared struct {
	at    string
	kinds map[string]bool
}

func collect(kind string, rows []ingest.Row, seen map[*ingest.Row]declared, at string) {
	for i := range rows {
		r := &rows[i]
		if seen[r].kinds == nil {
			seen[r] = declared{at + r.Path, map[string]bool{}}
		}
		seen[r].kinds[kind] = true
		collect(kind, r.Use, seen, at+r.Path)
	}
}

// Refused is a request that a source must not verify.
type Refused struct {
	Header http.Header
	Body   []byte
}

// Verify checks the signature side of a source: sign makes working headers for
// a body. Every flipped bit of the body, every absent and every doubled header
// in signed, and an empty signature have to be refused as unauthorized.
func Verify(t *testing.T, s ingest.Source, body []byte, sign func([]byte) http.Header, signed ...string) {
	t.Helper()
	if _, err := s.Verify(sign(body), body); err != nil {
		t.Fatalf("a signed delivery is refused: %v", err)
	}
	refused := map[string]Refused{"empty body": {sign(body), nil}}
	for _, i := range []int{0, len(body) / 2, len(body) - 1} {
		b := bytes.Clone(body)
		b[i] ^= 1
		refused["flipped bit"+string(rune('0'+i%10))] = Refused{sign(body), b}
	}
	for _, name := range signed {
		without, twice, empty := sign(body), sign(body), sign(body)
		without.Del(name)
		twice.Add(name, twice.Get(name))
		empty.Set(name, "")
		refused[name+" missing"] = Refused{without, body}
		refused[name+" twice"] = Refused{twice, body}
		refused[name+" empty"] = Refused{empty, body}
	}
	for name, r := range refused {
		d, err := s.Verify(r.Header, r.Body)
		if problem.CodeOf(err) != problem.Unauthorized || d.JSON != nil || d.ID != "" {
			t.Errorf("%s: delivery %+v, error %v, want unauthorized", name, d, err)
		}
	}
}

// Fuzz is the body of a fuzz target for Normalize: whatever the document, the
// event is well formed, comes back from its bytes, is the same each time, labels
// no text above its provenance and keeps nothing that the source hides.
func Fuzz(t *testing.T, s ingest.Source, d ingest.Delivery) {
	t.Helper()
	d.Auth = event.Auth{Scheme: "fuzz", Key: "k1", Signed: []string{"body"}}
	ep := ingest.Endpoint{Name: "main", Source: s}
	e, err := ep.Build(d, d.JSON, Received)
	if err != nil {
		return
	}
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := event.Decode(b); err != nil {
		t.Fatal(err)
	}
	for _, p := range e.Text {
		if low := e.OriginAt(p.Pointer); low != p.Origin && !low.Below(p.Origin) {
			t.Fatalf("provenance of %s is %s, above its text's %s", p.Pointer, low, p.Origin)
		}
	}
	if e.Payload != nil {
		doc, err := ingest.Scan(e.Payload)
		if err != nil {
			t.Fatalf("payload does not scan: %v", err)
		}
		for _, at := range s.Traits().Hidden {
			if n := doc.At(at); !n.Null() && !n.Is("[redacted]") {
				t.Fatalf("the payload keeps %s", at)
			}
		}
	}
	again, err := ep.Build(d, d.JSON, Received)
	if err != nil {
		t.Fatal(err)
	}
	if b2, err := again.Encode(); err != nil || !bytes.Equal(b, b2) {
		t.Fatalf("normalizing twice differs: %v", err)
	}
}

// Vocabulary checks that every fact and passage that a source makes of its
// payloads is in the vocabulary that bundles are linted with: a name that lint
// refuses must not work at run time.
func Vocabulary(t *testing.T, words func(kind string) (facts, text, passages []string, ok bool), payloads []Payload, build func(Payload) *event.Event) {
	t.Helper()
	index := regexp.MustCompile(`/\d+(/|$)`)
	tried := 0
	for _, p := range payloads {
		e := build(p)
		facts, text, passages, ok := words(e.Kind)
		if !ok {
			continue
		}
		tried++
		for _, name := range slices.Concat(slices.Collect(maps.Keys(e.Facts)), slices.Collect(maps.Keys(e.Lists))) {
			if !slices.Contains(facts, name) {
				t.Errorf("%s: fact %s is not in the vocabulary of %s", p.Name, name, e.Kind)
			}
		}
		for _, x := range e.Text {
			at := index.ReplaceAllString(x.Pointer, "/*$1")
			if !slices.Contains(passages, at) || !slices.Contains(text, at) {
				t.Errorf("%s: passage %s is not in the vocabulary of %s", p.Name, at, e.Kind)
			}
		}
	}
	if tried == 0 {
		t.Error("no payload of a known kind")
	}
	for _, kind := range []string{event.KindPing, event.KindUnrecognized, event.KindQuarantined, "nothing"} {
		if _, _, _, ok := words(kind); ok {
			t.Errorf("%s has a vocabulary: no session starts from one", kind)
		}
	}
}

// Kind is what a documentation page says of one kind.
type Kind struct {
	Name  string
	Facts []string
	Table *ingest.Table
}

// Docs keeps the generated part of a page, between the markers, equal to the
// tables that make events: a page that is edited apart from the code, or code
// apart from the page, fails.
func Docs(t *testing.T, page string, kinds []Kind, update bool) {
	t.Helper()
	const begin, end = "<!-- tables: written by go test -update -->\n", "<!-- end of tables -->\n"
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "\n### %s\n\nFacts: %s.\n\n| text | as | origin |\n|---|---|---|\n", k.Name, strings.Join(quoted(k.Facts), ", "))
		for _, l := range k.Table.Lines() {
			if l.As != "" {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", l.Path, l.As, l.Rule)
			}
		}
	}
	b.WriteByte('\n')
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers", page)
	}
	want := head + begin + b.String() + end + tail
	if update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil { //nolint:gosec // G306: a documentation page
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(old)); diff != "" {
		t.Errorf("%s is not what the tables say (-want +got), -update writes it:\n%s", page, diff)
	}
}

func quoted(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = "`" + s + "`"
	}
	return out
}
