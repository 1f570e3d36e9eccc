package ingest_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gatehouse/ingest"
	"gatehouse/ingest/linear"
	"gatehouse/ingest/sentry"
	"gatehouse/ingest/webhook"
	"gatehouse/internal/event"
	"gatehouse/internal/secret"
)

// sentAt is the signed time of the Linear corpus.
var sentAt = time.UnixMilli(1790928930250)

// every returns one endpoint for each source.
func every(t testing.TB, now time.Time) []ingest.Endpoint {
	t.Helper()
	clock := func() time.Time { return now }
	secrets := []secret.Value{secret.FromString(key1)}
	se, err := sentry.New(sentry.Options{Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	li, err := linear.New(linear.Options{Secrets: secrets, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	token, err := webhook.New(webhook.Options{Name: webhook.Name, Scheme: webhook.Token{}, Secrets: secrets, IDHeader: "Idempotency-Key", Challenge: true})
	if err != nil {
		t.Fatal(err)
	}
	return []ingest.Endpoint{{Name: "main", Source: gh(t, key1)}, {Name: "errors", Source: se}, {Name: "tasks", Source: li},
		{Name: "partner", Source: standard(t, clock)}, {Name: "shared", Source: token}}
}

// signedFor makes the request that a source's sender would make.
func (n *node) signedFor(endpoint, kind, id string, at time.Time, body []byte) *http.Request {
	n.t.Helper()
	r, err := http.NewRequest(http.MethodPost, n.url+"/hooks/"+endpoint, bytes.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	m := hmac.New(sha256.New, []byte(key1))
	m.Write(body)
	mac := hex.EncodeToString(m.Sum(nil))
	r.Header.Set("Content-Type", "application/json")
	set := func(kv ...string) {
		for i := 0; i < len(kv); i += 2 {
			r.Header.Set(kv[i], kv[i+1])
		}
	}
	switch endpoint {
	case "main":
		set("X-Hub-Signature-256", "sha256="+mac, "X-GitHub-Event", kind, "X-GitHub-Delivery", id)
	case "errors":
		set("Sentry-Hook-Signature", mac, "Sentry-Hook-Resource", kind, "Request-ID", id)
	case "tasks":
		set("Linear-Signature", mac, "Linear-Delivery", id, "Linear-Event", "Anything")
	case "partner":
		set("Webhook-Id", id, "Webhook-Timestamp", fmt.Sprint(at.Unix()), "Webhook-Signature", signStandard(n.t, id, at.Unix(), body))
	case "shared":
		set("Authorization", "Bearer "+key1, "Idempotency-Key", id)
	}
	return r
}

// IN-05: exactly 200 for whatever is accepted, on every source; the second time
// too.
func TestEverySource(t *testing.T) {
	tests := map[string]struct{ endpoint, kind, file, stored string }{
		"IN-05 github":                  {"main", "issues", "github/issues__opened.json", "issues"},
		"IN-05 sentry":                  {"errors", "issue", "sentry/issue__created_full.json", "issue"},
		"IN-05 linear":                  {"tasks", "", "linear/Issue__create.json", "issue"},
		"IN-05 standard webhooks":       {"partner", "", "standard-webhooks/user_created.json", "received"},
		"IN-05 token":                   {"shared", "", "standard-webhooks/user_created.json", "received"},
		"IN-10 unknown Sentry resource": {"errors", "brand_new", "sentry/unknown_resource__created.json", "unrecognized"},
		"Linear reaction":               {"tasks", "", "linear/Reaction__create.json", "reaction"},
		"IN-11 Sentry alert":            {"errors", "event_alert", "sentry/event_alert__triggered_full.json", "event_alert"},
		"Sentry kind of another body":   {"errors", "metric_alert", "sentry/issue__created_full.json", "quarantined"},
		"IN-22 Linear stop":             {"tasks", "", "linear/AgentSessionEvent__prompted_stop_signal.json", "agent_session_event"},
		"IN-23 Linear revoked":          {"tasks", "", "linear/OAuthApp__revoked.json", "oauth_app"},
		"IN-27 legacy plugin":           {"shared", "", "sentry/legacy_plugin__alert.json", "received"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := start(t, nodeOptions{endpoints: every(t, sentAt)})
			body := corpus(t, tt.file)
			first := n.do(n.signedFor(tt.endpoint, tt.kind, "d-1", sentAt, body))
			second := n.do(n.signedFor(tt.endpoint, tt.kind, "d-1", sentAt, body))
			if first.code != 200 || first.Status != "accepted" || second.code != 200 || second.Status != "duplicate" || second.ID != first.ID {
				t.Errorf("answered %d %s, then %d %s", first.code, first.raw, second.code, second.raw)
			}
			events := n.events()
			if len(events) != 1 || events[0].Kind != tt.stored {
				t.Fatalf("stored %d events, first %+v", len(events), events)
			}
			if events[0].Trust != event.TrustUntrusted {
				t.Errorf("trust %s", events[0].Trust)
			}
			unsigned := n.signedFor(tt.endpoint, tt.kind, "d-2", sentAt, body)
			for _, h := range []string{"X-Hub-Signature-256", "Sentry-Hook-Signature", "Linear-Signature", "Webhook-Signature", "Authorization"} {
				unsigned.Header.Del(h)
			}
			if a := n.do(unsigned); a.code != 401 || len(n.events()) != 1 {
				t.Errorf("unsigned answered %d %s", a.code, a.raw)
			}
		})
	}
}

// A vendor's repetition, by the rules of each.
func TestRetries(t *testing.T) {
	t.Run("Sentry, new request id", func(t *testing.T) {
		n := start(t, nodeOptions{endpoints: every(t, sentAt)})
		body := corpus(t, "sentry/issue__created_full.json")
		first := n.do(n.signedFor("errors", "issue", "r-1", sentAt, body))
		second := n.do(n.signedFor("errors", "issue", "r-2", sentAt, body))
		if first.Status != "accepted" || second.Status != "duplicate" || second.ID != first.ID {
			t.Errorf("answered %s, then %s", first.raw, second.raw)
		}
	})
	// The same thing in other words, with a restart in between: Sentry's second
	// key. What differs in it is another thing.
	for name, tt := range map[string]struct {
		kind, file string
		edit       [2]string
		want       string
	}{
		"the alert, another count": {"event_alert", "event_alert__triggered_full.json", [2]string{`"issue_alert":{"title"`, `"issue_alert":{"seen":2,"title"`}, "duplicate"},
		"the alert, another rule":  {"event_alert", "event_alert__triggered_full.json", [2]string{`"triggered_rule":"`, `"triggered_rule":"other `}, "accepted"},
		"another event":            {"event_alert", "event_alert__triggered_full.json", [2]string{strings.Repeat("a1", 16), strings.Repeat("b2", 16)}, "accepted"},
		"the error, one key more":  {"error", "error__created_full.json", [2]string{`"error":{`, `"error":{"more":1,`}, "duplicate"},
		"the issue, another count": {"issue", "issue__created_full.json", [2]string{`"count":"`, `"count":"9`}, "duplicate"},
		"the issue, seen again":    {"issue", "issue__created_full.json", [2]string{`"lastSeen":"2026`, `"lastSeen":"2027`}, "accepted"},
		"the issue, assigned":      {"issue", "issue__created_full.json", [2]string{`"assignedTo":null`, `"assignedTo":{"id":"7"}`}, "accepted"},
		"no id of its own":         {"error", "error__created_full.json", [2]string{`"event_id":"`, `"other_id":"`}, "accepted"},
	} {
		t.Run("Sentry, "+name, func(t *testing.T) {
			dir := t.TempDir()
			n := start(t, nodeOptions{dir: dir, endpoints: every(t, sentAt)})
			body := corpus(t, "sentry/"+tt.file)
			other := bytes.ReplaceAll(body, []byte(tt.edit[0]), []byte(tt.edit[1]))
			if bytes.Equal(body, other) {
				t.Fatalf("%s holds no %s", tt.file, tt.edit[0])
			}
			first := n.do(n.signedFor("errors", tt.kind, "s-1", sentAt, body))
			n.stop()
			n = start(t, nodeOptions{dir: dir, endpoints: every(t, sentAt)})
			second := n.do(n.signedFor("errors", tt.kind, "s-2", sentAt, other))
			if first.Status != "accepted" || second.Status != tt.want || (second.ID == first.ID) != (tt.want == "duplicate") {
				t.Errorf("answered %s, then %s", first.raw, second.raw)
			}
		})
	}
	t.Run("IN-24 one issue, created and resolved", func(t *testing.T) {
		n := start(t, nodeOptions{endpoints: every(t, sentAt)})
		for _, file := range []string{"issue__created.json", "issue__resolved.json"} {
			if a := n.do(n.signedFor("errors", "issue", "r-1", sentAt, corpus(t, "sentry/"+file))); a.Status != "accepted" {
				t.Errorf("%s answered %s", file, a.raw)
			}
		}
	})
	for name, age := range map[string]time.Duration{"a minute": 61 * time.Second, "an hour": time.Hour, "six hours": 6 * time.Hour} {
		t.Run("Linear, unseen after "+name, func(t *testing.T) {
			n := start(t, nodeOptions{endpoints: every(t, sentAt.Add(age))})
			body := corpus(t, "linear/Issue__create.json")
			if a := n.do(n.signedFor("tasks", "", "d-1", sentAt, body)); a.code != 200 || a.Status != "accepted" {
				t.Errorf("answered %d %s", a.code, a.raw)
			}
			if e := n.events()[0]; !e.Auth.Late {
				t.Error("a late delivery is not flagged")
			}
			if a := n.do(n.signedFor("tasks", "", "d-1", sentAt, body)); a.Status != "duplicate" {
				t.Errorf("seen, answered %s", a.raw)
			}
		})
	}
	t.Run("Linear, replayed after nine hours", func(t *testing.T) {
		n := start(t, nodeOptions{endpoints: every(t, sentAt.Add(9*time.Hour))})
		if a := n.do(n.signedFor("tasks", "", "d-1", sentAt, corpus(t, "linear/Issue__create.json"))); a.code != 400 || a.Code != "stale" {
			t.Errorf("answered %d %s", a.code, a.raw)
		}
	})
	t.Run("a signed id with another body", func(t *testing.T) {
		n := start(t, nodeOptions{endpoints: every(t, sentAt)})
		n.do(n.signedFor("partner", "", "msg_1", sentAt, []byte(`{"n":1}`)))
		if a := n.do(n.signedFor("partner", "", "msg_1", sentAt, []byte(`{"n":2}`))); a.code != 200 || n.events()[1].Kind != event.KindQuarantined {
			t.Errorf("answered %d %s", a.code, a.raw)
		}
	})
	t.Run("equal bodies under two signed ids are two", func(t *testing.T) {
		n := start(t, nodeOptions{endpoints: every(t, sentAt)})
		for _, id := range []string{"msg_1", "msg_2"} {
			if a := n.do(n.signedFor("partner", "", id, sentAt, []byte(`{"n":1}`))); a.Status != "accepted" {
				t.Errorf("answered %s", a.raw)
			}
		}
	})
}

// IN-12: a challenge comes back in the answer of a verified request only.
func TestChallengeIsRepeated(t *testing.T) {
	n := start(t, nodeOptions{endpoints: every(t, sentAt)})
	body := []byte(`{"type":"url_verification","challenge":"abc-123"}`)
	a := n.do(n.signedFor("shared", "", "c-1", sentAt, body))
	var got struct{ Challenge string }
	if err := json.Unmarshal([]byte(a.raw), &got); err != nil || a.code != 200 || got.Challenge != "abc-123" {
		t.Errorf("IN-12: answered %d %s", a.code, a.raw)
	}
	if e := n.events()[0]; event.Startable(e.Kind) {
		t.Errorf("IN-12: kind %s", e.Kind)
	}
	r := n.signedFor("shared", "", "c-2", sentAt, body)
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 32))
	if a := n.do(r); a.code != 401 || strings.Contains(a.raw, "abc-123") {
		t.Errorf("answered a stranger %d %s", a.code, a.raw)
	}
}
