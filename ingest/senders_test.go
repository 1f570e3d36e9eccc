package ingest_test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gatehouse/ingest"
	"gatehouse/ingest/webhook"
	"gatehouse/internal/secret"
)

// senders runs the libraries that real senders use.
type senders struct {
	t   *testing.T
	in  *json.Encoder
	out *bufio.Scanner
}

func startSenders(t *testing.T) *senders {
	t.Helper()
	const dir = "testdata/senders"
	if _, err := os.Stat(dir + "/node_modules"); err != nil {
		if out, err := exec.Command("npm", "ci", "--prefix", dir, "--ignore-scripts").CombinedOutput(); err != nil {
			t.Fatalf("install the senders: %v\n%s", err, out)
		}
	}
	cmd := exec.Command("node", dir+"/senders.mjs")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	s := &senders{t: t, in: json.NewEncoder(in), out: bufio.NewScanner(out)}
	s.in.SetEscapeHTML(false)
	return s
}

func ask[T any](s *senders, request map[string]any) (answer T) {
	s.t.Helper()
	if err := s.in.Encode(request); err != nil {
		s.t.Fatal(err)
	}
	if !s.out.Scan() {
		s.t.Fatalf("no answer: %v", s.out.Err())
	}
	if err := json.Unmarshal(s.out.Bytes(), &answer); err != nil {
		s.t.Fatalf("answer %s: %v", s.out.Bytes(), err)
	}
	return answer
}

const whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func standard(t testing.TB, now func() time.Time) ingest.Source {
	t.Helper()
	s, err := webhook.New(webhook.Options{Name: webhook.NameStandard, Scheme: webhook.Standard{}, Secrets: []secret.Value{secret.FromString(whsec)}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signStandard(t testing.TB, id string, at int64, body []byte) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(whsec, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s.%d.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// Issue 5, Shows 5: what @octokit/webhooks and standardwebhooks sign we accept,
// and what we sign they verify.
func TestRealSenders(t *testing.T) {
	if testing.Short() {
		t.Skip("runs node")
	}
	js := startSenders(t)
	n := start(t, nodeOptions{endpoints: []ingest.Endpoint{{Name: "main", Source: gh(t, key1)}, {Name: "partner", Source: standard(t, time.Now)}}})
	body := corpus(t, "github/issues__opened_unicode_outsider.json")
	t.Run("octokit signs", func(t *testing.T) {
		sig := ask[string](js, map[string]any{"op": "githubSign", "secret": key1, "body": string(body)})
		a := n.send(delivery{body: body, kind: "issues", header: map[string][]string{"X-Hub-Signature-256": {sig}}})
		if a.code != 200 {
			t.Errorf("answered %d %s", a.code, a.raw)
		}
	})
	t.Run("octokit verifies", func(t *testing.T) {
		for want, b := range map[bool][]byte{true: body, false: append(bytes.Clone(body), ' ')} {
			if got := ask[bool](js, map[string]any{"op": "githubVerify", "secret": key1, "body": string(b), "signature": sign(key1, body)}); got != want {
				t.Errorf("octokit says %v, want %v", got, want)
			}
		}
	})
	now := time.Now().Unix()
	send := func(id, sig string, b []byte) reply {
		r, err := http.NewRequest(http.MethodPost, n.url+"/hooks/partner", bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {id}, "Webhook-Timestamp": {fmt.Sprint(now)}, "Webhook-Signature": {sig}}
		return n.do(r)
	}
	t.Run("standardwebhooks signs", func(t *testing.T) {
		b := corpus(t, "standard-webhooks/user_created.json")
		sig := ask[string](js, map[string]any{"op": "standardSign", "secret": whsec, "id": "msg_js", "time": now, "body": string(b)})
		if a := send("msg_js", sig, b); a.code != 200 {
			t.Errorf("answered %d %s", a.code, a.raw)
		}
	})
	t.Run("standardwebhooks verifies", func(t *testing.T) {
		b := corpus(t, "standard-webhooks/invoice_paid.json")
		headers := map[string]string{"webhook-id": "msg_go", "webhook-timestamp": fmt.Sprint(now), "webhook-signature": signStandard(t, "msg_go", now, b)}
		if !ask[bool](js, map[string]any{"op": "standardVerify", "secret": whsec, "headers": headers, "body": string(b)}) {
			t.Error("standardwebhooks does not verify what we sign")
		}
		if a := send("msg_go", headers["webhook-signature"], b); a.code != 200 {
			t.Errorf("answered %d %s", a.code, a.raw)
		}
	})
	if got := len(n.events()); got != 3 {
		t.Errorf("stored %d events, want 3", got)
	}
}
