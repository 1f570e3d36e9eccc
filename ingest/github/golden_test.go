package github

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/secret"
)

var update = flag.Bool("update", false, "write the golden files")

const corpus = "../testdata/corpus/github"

var received = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func source(t testing.TB) *Source {
	t.Helper()
	s, err := New(Options{
		Secrets:  []secret.Value{secret.FromString("a secret of the test, long enough")},
		Commands: Commands{Mention: "@gatehouse", Words: []string{"fix", "explain"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// payload is one body with the kind its file name says.
type payload struct {
	name, kind string
	raw        []byte
}

func payloads(t testing.TB) []payload {
	t.Helper()
	var out []payload
	for _, dir := range []string{corpus, "testdata/authored"} {
		files, err := filepath.Glob(dir + "/*__*")
		if err != nil || len(files) == 0 {
			t.Fatalf("no payloads in %s: %v", dir, err)
		}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			base := filepath.Base(f)
			kind, _, _ := strings.Cut(base, "__")
			out = append(out, payload{name: strings.TrimSuffix(base, filepath.Ext(base)), kind: kind, raw: raw})
		}
	}
	return out
}

func build(t testing.TB, s *Source, p payload) *event.Event {
	t.Helper()
	ct := "application/json"
	if !bytes.HasPrefix(p.raw, []byte("{")) {
		ct = "application/x-www-form-urlencoded"
	}
	doc, err := document(ct, p.raw)
	if err != nil {
		t.Fatal(err)
	}
	ep := ingest.Endpoint{Name: "main", Source: s}
	d := ingest.Delivery{ID: "72d3162e-cc78-11e3-81ab-4c9367dc0958", Kind: p.kind, JSON: doc,
		Auth: event.Auth{Scheme: scheme, Key: "k1", Signed: []string{"body"}}}
	e, err := ep.Build(d, p.raw, received)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestGolden pins the event of every payload of the corpus. Payloads are left
// out of the golden files: they are in the corpus.
func TestGolden(t *testing.T) {
	s := source(t)
	for _, p := range payloads(t) {
		t.Run(p.name, func(t *testing.T) {
			e := build(t, s, p)
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
			e.Payload = nil
			b, err := e.Encode()
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, b, "", " "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			file := filepath.Join("testdata", "golden", p.name+".json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
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
		})
	}
}

func header(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	return h
}
