package github

import (
	"bytes"
	"flag"
	"net/http"
	"path/filepath"
	"testing"

	"gatehouse/ingest"
	"gatehouse/ingest/sourcetest"
	"gatehouse/internal/event"
	"gatehouse/internal/secret"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	corpus  = "../testdata/corpus/github"
	testKey = "a secret of the test, long enough"
)

func source(t testing.TB) *Source {
	t.Helper()
	s, err := New(Options{
		Secrets:  []secret.Value{secret.FromString(testKey)},
		Commands: Commands{Mention: "@gatehouse", Words: []string{"fix", "explain"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func payloads(t testing.TB) []sourcetest.Payload {
	t.Helper()
	return sourcetest.Load(t, corpus, "testdata/authored")
}

func read(t testing.TB, name string, edits ...string) sourcetest.Payload {
	t.Helper()
	return sourcetest.Read(t, filepath.Join(corpus, name), edits...)
}

func build(t testing.TB, s *Source, p sourcetest.Payload) *event.Event {
	t.Helper()
	ct := "application/json"
	if !bytes.HasPrefix(p.Raw, []byte("{")) {
		ct = "application/x-www-form-urlencoded"
	}
	doc, err := document(ct, p.Raw)
	if err != nil {
		t.Fatal(err)
	}
	return sourcetest.Build(t, s, p, ingest.Delivery{ID: "72d3162e-cc78-11e3-81ab-4c9367dc0958", Kind: p.Kind, JSON: doc,
		Auth: event.Auth{Scheme: scheme, Key: "k1", Signed: []string{"body"}}})
}

// TestGolden pins the event of every payload of the corpus.
func TestGolden(t *testing.T) {
	s := source(t)
	for _, p := range payloads(t) {
		t.Run(p.Name, func(t *testing.T) { sourcetest.Golden(t, p.Name, build(t, s, p), *update) })
	}
}

func TestContract(t *testing.T) {
	sourcetest.Verify(t, source(t), []byte(`{"zen":"x"}`), func(body []byte) http.Header {
		return header(signatureHeader, "sha256="+mac(testKey, body), "Content-Type", "application/json", deliveryHeader, "1", kindHeader, "ping")
	}, signatureHeader)
}

func header(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	return h
}
