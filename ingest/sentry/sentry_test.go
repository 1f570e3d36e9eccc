package sentry

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/ingest"
	"gatehouse/ingest/sourcetest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	corpus  = "../testdata/corpus/sentry"
	testKey = "a client secret of the test integration"
)

func source(t testing.TB) *Source {
	t.Helper()
	s, err := New(Options{Secrets: []secret.Value{secret.FromString(testKey)}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// payloads are the corpus, with the resource that its index states.
func payloads(t testing.TB) []sourcetest.Payload {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(corpus, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index []struct{ File, Resource string }
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	var out []sourcetest.Payload
	for _, e := range index {
		p := sourcetest.Read(t, filepath.Join(corpus, e.File))
		p.Kind = e.Resource
		out = append(out, p)
	}
	return append(out, sourcetest.Load(t, "testdata/authored")...)
}

func build(t testing.TB, s *Source, p sourcetest.Payload) *event.Event {
	t.Helper()
	return sourcetest.Build(t, s, p, ingest.Delivery{Kind: p.Kind, JSON: p.Raw, Auth: event.Auth{Scheme: scheme, Key: "k1", Signed: []string{"body"}}})
}

func signed(body []byte) http.Header {
	m := hmac.New(sha256.New, []byte(testKey))
	m.Write(body)
	return http.Header{signatureHeader: {hex.EncodeToString(m.Sum(nil))}, "Content-Type": {"application/json"}, resourceHeader: {"issue"}}
}

func TestGolden(t *testing.T) {
	s := source(t)
	for _, p := range payloads(t) {
		t.Run(p.Name, func(t *testing.T) { sourcetest.Golden(t, p.Name, build(t, s, p), *update) })
	}
}

func TestEveryRowCounts(t *testing.T) {
	s := source(t)
	tables := map[string]sourcetest.Table{}
	for name, k := range s.kinds {
		tables[name] = sourcetest.Table{Rows: [][]ingest.Row{common, k.rows}, Rebuild: func() { k.table = ingest.NewTable(join(common, k.rows)) }}
	}
	sourcetest.EveryRowCounts(t, tables, payloads(t), func(p sourcetest.Payload) *event.Event { return build(t, s, p) })
}

// Issue 5, Shows 1: what no row knows is an outsider's.
func TestUnknownIsOutsider(t *testing.T) {
	s := source(t)
	sourcetest.UnknownIsOutsider(t, payloads(t), func(p sourcetest.Payload) *event.Event { return build(t, s, p) })
}

func TestVerify(t *testing.T) {
	sourcetest.Verify(t, source(t), []byte(`{"t":1790928930.0,"s":"é"}`), signed, signatureHeader)
	t.Run("IN-27 legacy plugin", func(t *testing.T) {
		p := sourcetest.Read(t, filepath.Join(corpus, "legacy_plugin__alert.json"))
		if _, err := source(t).Verify(http.Header{"Content-Type": {"application/json"}}, p.Raw); problem.CodeOf(err) != problem.Unauthorized {
			t.Errorf("verified without a signature: %v", err)
		}
	})
	t.Run("prefix", func(t *testing.T) {
		h := signed([]byte("{}"))
		h.Set(signatureHeader, "sha256="+h.Get(signatureHeader))
		if _, err := source(t).Verify(h, []byte("{}")); problem.CodeOf(err) != problem.Unauthorized {
			t.Errorf("verified with a prefix: %v", err)
		}
	})
	t.Run("type", func(t *testing.T) {
		h := signed([]byte("{}"))
		h.Set("Content-Type", "text/plain")
		if _, err := source(t).Verify(h, []byte("{}")); problem.CodeOf(err) != problem.ContentType {
			t.Errorf("want content_type: %v", err)
		}
	})
	if s, err := New(Options{}); s != nil || problem.CodeOf(err) != problem.SecretMissing {
		t.Errorf("started without a secret: %v", err)
	}
}

// However private the organisation, an error's text is its sender's.
func TestLevels(t *testing.T) {
	s := source(t)
	for _, p := range payloads(t) {
		e := build(t, s, p)
		for at, o := range sourcetest.Origins(e) {
			inEvent := strings.HasPrefix(at, "/data/event/") || strings.HasPrefix(at, "/data/error/") || strings.HasPrefix(at, "/data/issue/")
			if inEvent && !o.Below(event.Contributor) {
				t.Errorf("%s: %s is %s", p.Name, at, o)
			}
		}
	}
	t.Run("IN-11 real alert", func(t *testing.T) {
		e := build(t, s, sourcetest.Read(t, filepath.Join(corpus, "event_alert__triggered_full.json")))
		want := map[string]string{"event_id": strings.Repeat("a1", 16), "issue.id": "7700000001", "project.id": "4501", "level": "error"}
		for k, v := range want {
			if e.Facts[k] != v {
				t.Errorf("fact %s is %q, want %q", k, e.Facts[k], v)
			}
		}
		if sourcetest.Origins(e)["/data/triggered_rule"] != event.Member {
			t.Error("the rule's name is not its owner's")
		}
	})
	t.Run("IN-24 one issue, two events", func(t *testing.T) {
		a := build(t, s, sourcetest.Read(t, filepath.Join(corpus, "issue__created.json")))
		b := build(t, s, sourcetest.Read(t, filepath.Join(corpus, "issue__resolved.json")))
		if a.ID == b.ID || a.Slug() != b.Slug() || a.Slug() != "issue-123" {
			t.Errorf("ids %s and %s, slugs %s and %s", a.ID, b.ID, a.Slug(), b.Slug())
		}
	})
	t.Run("level outside the list", func(t *testing.T) {
		e := build(t, s, sourcetest.Read(t, filepath.Join(corpus, "issue__created.json"), `"level":"error"`, `"level":"run rm -rf"`))
		if e.Facts["level"] != "" || !cmp.Equal(e.Anomalies, []string{"form.level"}) {
			t.Errorf("level %q, anomalies %v", e.Facts["level"], e.Anomalies)
		}
	})
	t.Run("IN-23 installation deleted", func(t *testing.T) {
		scope, ids, ok := build(t, s, sourcetest.Read(t, filepath.Join(corpus, "installation__deleted.json"))).Stop()
		if !ok || scope != event.StopInstallation || len(ids) != 1 {
			t.Errorf("stops %s %v", scope, ids)
		}
		if _, _, ok := build(t, s, sourcetest.Read(t, filepath.Join(corpus, "installation__created.json"))).Stop(); ok {
			t.Error("a new installation stops something")
		}
	})
}

// IN-13: neither the grant code nor what an SDK collects about people is kept,
// in the payload or in text made of it.
func TestHidden(t *testing.T) {
	s := source(t)
	const file = "event_alert__triggered_full.json"
	for name, edit := range map[string][2]string{
		"IN-13 cookies":    {`"cookies":null`, `"cookies":[["session","canary-value"]]`},
		"IN-13 headers":    {`["X-Forwarded-For","203.0.113.9"]`, `["Authorization","canary-value"]`},
		"IN-13 data":       {`"customer typed text"`, `"canary-value"`},
		"IN-13 local vars": {`"items":"None"`, `"items":"canary-value"`},
		"IN-13 e-mail":     {`person-42@example.com`, `canary-value`},
		"IN-13 address":    {`"ip_address":"203.0.113.9"`, `"ip_address":"canary-value"`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, resource := range []string{"event_alert", "brand_new", "issue"} {
				p := sourcetest.Read(t, filepath.Join(corpus, file), edit[0], edit[1])
				p.Kind = resource
				b, err := build(t, s, p).Encode()
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(b, []byte("canary-value")) {
					t.Errorf("as %s the event holds it: %s", resource, b)
				}
			}
		})
	}
	t.Run("IN-13 grant code", func(t *testing.T) {
		b, err := build(t, s, sourcetest.Read(t, filepath.Join(corpus, "installation__created_pending_with_code.json"))).Encode()
		if err != nil || bytes.Contains(b, []byte("example-grant-code")) {
			t.Errorf("the event holds the code: %s, %v", b, err)
		}
	})
}

func FuzzVerify(f *testing.F) {
	f.Add("", "application/json", "issue", []byte("{}"), true)
	f.Add(strings.Repeat("0", 64), "application/json", "a.>", []byte("{}"), false)
	s := source(f)
	f.Fuzz(func(t *testing.T, sig, contentType, resource string, body []byte, right bool) {
		want := signed(body).Get(signatureHeader)
		if right {
			sig = want
		}
		d, err := s.Verify(http.Header{signatureHeader: {sig}, "Content-Type": {contentType}, resourceHeader: {resource}}, body)
		if err == nil && (!strings.EqualFold(sig, want) || d.Kind != "" && !event.IsToken(d.Kind)) {
			t.Fatalf("verified %q, delivery %+v", sig, d)
		}
	})
}

func FuzzNormalize(f *testing.F) {
	s := source(f)
	for _, p := range payloads(f) {
		f.Add(p.Kind, p.Raw)
	}
	f.Fuzz(func(t *testing.T, kind string, raw []byte) {
		sourcetest.Fuzz(t, s, ingest.Delivery{Kind: ingest.Token(kind), JSON: raw})
	})
}

func TestVocabulary(t *testing.T) {
	s := source(t)
	sourcetest.Vocabulary(t, Vocabulary, payloads(t), func(p sourcetest.Payload) *event.Event { return build(t, s, p) })
}
