package linear

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/ingest"
	"gatehouse/ingest/sourcetest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	corpus  = "../testdata/corpus/linear"
	testKey = "a signing secret of the test workspace"
)

// sent is the signed time of the corpus.
var sent = time.UnixMilli(1790928930250)

func source(t testing.TB, now time.Time) *Source {
	t.Helper()
	s, err := New(Options{Secrets: []secret.Value{secret.FromString(testKey)}, Now: func() time.Time { return now },
		Services: map[string]event.Origin{"figma": event.Contributor}, Clients: map[string]event.Origin{"c-1": event.Member}})
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
	return sourcetest.Build(t, s, p, ingest.Delivery{ID: "234d1a4e-b617-4388-90fe-adc3633d6b72", JSON: p.Raw,
		Auth: event.Auth{Scheme: scheme, Key: "k1", Signed: []string{"body", "timestamp"}}})
}

func signed(body []byte) http.Header {
	m := hmac.New(sha256.New, []byte(testKey))
	m.Write(body)
	return http.Header{signatureHeader: {hex.EncodeToString(m.Sum(nil))}, "Content-Type": {"application/json; charset=utf-8"}, deliveryHeader: {"d-1"}, "Linear-Event": {"Issue"}}
}

func TestGolden(t *testing.T) {
	s := source(t, sent)
	for _, p := range payloads(t) {
		t.Run(p.Name, func(t *testing.T) { sourcetest.Golden(t, p.Name, build(t, s, p), *update) })
	}
}

func TestEveryRowCounts(t *testing.T) {
	s := source(t, sent)
	tables := map[string]sourcetest.Table{}
	for name, k := range s.kinds {
		tables[name] = sourcetest.Table{Rows: [][]ingest.Row{common, k.rows}, Rebuild: func() { k.table = ingest.NewTable(join(common, k.rows)) }}
	}
	sourcetest.EveryRowCounts(t, tables, payloads(t), func(p sourcetest.Payload) *event.Event { return build(t, s, p) })
}

// Issue 5, Shows 1: what no row knows is an outsider's.
func TestUnknownIsOutsider(t *testing.T) {
	s := source(t, sent)
	sourcetest.UnknownIsOutsider(t, payloads(t), func(p sourcetest.Payload) *event.Event { return build(t, s, p) })
}

func TestVocabulary(t *testing.T) {
	s := source(t, sent)
	sourcetest.Vocabulary(t, Vocabulary, payloads(t), func(p sourcetest.Payload) *event.Event { return build(t, s, p) })
}

func TestVerify(t *testing.T) {
	p := read(t, "Issue__create.json")
	sourcetest.Verify(t, source(t, sent), p.Raw, signed, signatureHeader)
	tests := map[string]struct {
		now  time.Time
		edit []string
		code problem.Code
		late bool
	}{
		"fresh":                        {sent.Add(59 * time.Second), nil, "", false},
		"clock a little behind":        {sent.Add(-59 * time.Second), nil, "", false},
		"from the future":              {sent.Add(-61 * time.Second), nil, problem.Stale, false},
		"retry after a minute":         {sent.Add(61 * time.Second), nil, "", true},
		"retry after an hour":          {sent.Add(time.Hour), nil, "", true},
		"retry after six hours":        {sent.Add(6*time.Hour + time.Minute), nil, "", true},
		"replay after nine":            {sent.Add(9 * time.Hour), nil, problem.Stale, false},
		"no signed time":               {sent, []string{`"webhookTimestamp":1790928930250,`, ``}, problem.Stale, false},
		"time as text":                 {sent, []string{`1790928930250`, `"1790928930250"`}, problem.Stale, false},
		"time beyond what an int says": {sent, []string{`1790928930250`, `99999999999999999999`}, problem.Stale, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := read(t, "Issue__create.json", tt.edit...)
			d, err := source(t, tt.now).Verify(signed(p.Raw), p.Raw)
			code := problem.Code("")
			if err != nil {
				code = problem.CodeOf(err)
			}
			if code != tt.code || d.Auth.Late != tt.late {
				t.Errorf("error %v, late %v, want %q, late %v", err, d.Auth.Late, tt.code, tt.late)
			}
		})
	}
	t.Run("late is flagged", func(t *testing.T) {
		s := source(t, sent.Add(time.Hour))
		d, err := s.Verify(signed(p.Raw), p.Raw)
		if err != nil {
			t.Fatal(err)
		}
		if e := sourcetest.Build(t, s, p, d); !e.Auth.Late || !cmp.Equal(e.Anomalies, []string{"late_delivery"}) {
			t.Errorf("late %v, anomalies %v", e.Auth.Late, e.Anomalies)
		}
	})
	t.Run("no delivery id", func(t *testing.T) {
		h := signed(p.Raw)
		h.Del(deliveryHeader)
		if _, err := source(t, sent).Verify(h, p.Raw); problem.CodeOf(err) != problem.DeliveryIDMissing {
			t.Errorf("want delivery_id_missing: %v", err)
		}
	})
	if s, err := New(Options{}); s != nil || problem.CodeOf(err) != problem.SecretMissing {
		t.Errorf("started without a secret: %v", err)
	}
	if s, err := New(Options{Secrets: []secret.Value{secret.FromString(testKey)}, Services: map[string]event.Origin{"slack": event.Operator}}); s != nil || err == nil {
		t.Error("a service above member was taken")
	}
}

// The header that names the kind is not signed.
func TestKindComesFromBody(t *testing.T) {
	p := read(t, "Issue__create.json")
	s := source(t, sent)
	h := signed(p.Raw)
	h.Set("Linear-Event", "AgentSessionEvent")
	d, err := s.Verify(h, p.Raw)
	if err != nil {
		t.Fatal(err)
	}
	if e := sourcetest.Build(t, s, p, d); e.Kind != "issue" {
		t.Errorf("kind %s", e.Kind)
	}
}

func TestLevels(t *testing.T) {
	const actor = `"actor":{"id":"33333333-3333-4333-8333-333333333333","type":"user"`
	tests := map[string]struct {
		p    sourcetest.Payload
		text map[string]event.Origin
	}{
		"member":                     {read(t, "Issue__create.json"), map[string]event.Origin{"/data/title": event.Member, "/data/description": event.Member}},
		"external user":              {read(t, "Issue__create_by_external_user.json"), map[string]event.Origin{"/data/title": event.Outsider, "/data/description": event.Outsider}},
		"relayed by an integration":  {read(t, "Issue__create_by_integration_github_sync.json"), map[string]event.Origin{"/data/title": event.Outsider}},
		"automation without actor":   {read(t, "Issue__create.json", actor, `"actor":null,"was":{"id":"x"`), map[string]event.Origin{"/data/title": event.Derived}},
		"null actor touches nothing": {read(t, "Issue__update_null_actor.json"), map[string]event.Origin{"/data/title": event.Member}},
		"member's text, new words of an integration": {read(t, "Issue__update_description.json", actor, `"actor":{"id":"a","type":"integration","service":"zendesk"`),
			map[string]event.Origin{"/data/title": event.Member, "/data/description": event.Outsider, "/updatedFrom/description": event.Member}},
		"listed integration": {read(t, "Issue__update_description.json", actor, `"actor":{"id":"a","type":"integration","service":"figma"`),
			map[string]event.Origin{"/data/description": event.Contributor}},
		"unlisted client": {read(t, "Issue__update_description.json", actor, `"actor":{"id":"c-2","type":"oauthClient"`), map[string]event.Origin{"/data/description": event.Outsider}},
		"listed client":   {read(t, "Issue__update_description.json", actor, `"actor":{"id":"c-1","type":"oauthClient"`), map[string]event.Origin{"/data/description": event.Member}},
		"member touches an outsider's issue": {read(t, "Issue__create_by_external_user.json", `"action":"create"`, `"action":"update"`, `"type":"externalUser"`, `"type":"user"`),
			map[string]event.Origin{"/data/title": event.Outsider}},
		"comment out of a chat": {read(t, "Comment__create_external_user_slack_thread.json"), map[string]event.Origin{"/data/body": event.Outsider}},
		"comment":               {read(t, "Comment__create_current.json"), map[string]event.Origin{"/data/body": event.Member, "/data/issue/title": event.Outsider}},
		"IN-22 agent session": {read(t, "AgentSessionEvent__created.json"), map[string]event.Origin{"/agentSession/comment/body": event.Member,
			"/agentSession/issue/title": event.Outsider, "/previousComments/0/body": event.Member, "/guidance/0/body": event.Member}},
		"prompt": {read(t, "AgentSessionEvent__prompted.json"), map[string]event.Origin{"/agentActivity/content/body": event.Member}},
	}
	s := source(t, sent)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := build(t, s, tt.p)
			got := sourcetest.Origins(e)
			for at, want := range tt.text {
				if got[at] != want {
					t.Errorf("%s is %s, want %s", at, got[at], want)
				}
			}
			if _, ok := got["/promptContext"]; ok {
				t.Error("IN-22: promptContext became text")
			}
		})
	}
}

// IN-22, IN-23: what ends sessions, and what starts none.
func TestStop(t *testing.T) {
	s := source(t, sent)
	tests := map[string]struct {
		file  string
		scope string
		id    string
	}{
		"IN-22 stop signal":      {"AgentSessionEvent__prompted_stop_signal.json", event.StopAgentSession, "12121212-1212-4212-8212-121212121212"},
		"IN-22 prompt":           {"AgentSessionEvent__prompted.json", "", ""},
		"IN-23 revoked":          {"OAuthApp__revoked.json", event.StopOrganization, "11111111-1111-4111-8111-111111111111"},
		"IN-23 team out of view": {"PermissionChange__teamAccessChanged.json", event.StopTeam, "44444444-4444-4444-8444-444444444444"},
		"created":                {"Issue__create.json", "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			scope, ids, ok := build(t, s, read(t, tt.file)).Stop()
			if ok != (tt.scope != "") || scope != tt.scope || ok && !cmp.Equal(ids, []string{tt.id}) {
				t.Errorf("stops %s %v, want %s %s", scope, ids, tt.scope, tt.id)
			}
		})
	}
	t.Run("IN-22 no person asked", func(t *testing.T) {
		e := build(t, s, read(t, "AgentSessionEvent__created_no_human_creator.json"))
		if e.Actor.Kind != "none" || e.Actor.Level != event.Outsider || e.Facts["creator.id"] != "" {
			t.Errorf("actor %+v, creator %q", e.Actor, e.Facts["creator.id"])
		}
	})
}

func FuzzVerify(f *testing.F) {
	f.Add("", "application/json", "d", []byte(`{"webhookTimestamp":1790928930250}`), true)
	f.Add(strings.Repeat("0", 64), "text/plain", "a.>", []byte("{}"), false)
	s := source(f, sent)
	f.Fuzz(func(t *testing.T, sig, contentType, id string, body []byte, right bool) {
		want := signed(body).Get(signatureHeader)
		if right {
			sig = want
		}
		d, err := s.Verify(http.Header{signatureHeader: {sig}, "Content-Type": {contentType}, deliveryHeader: {id}}, body)
		if err == nil && (!strings.EqualFold(sig, want) || !event.IsClosed(d.ID) || d.Doc == nil) {
			t.Fatalf("verified %q, delivery %+v", sig, d)
		}
	})
}

func FuzzNormalize(f *testing.F) {
	s := source(f, sent)
	for _, p := range payloads(f) {
		f.Add(p.Raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) { sourcetest.Fuzz(t, s, ingest.Delivery{ID: "d", JSON: raw}) })
}
