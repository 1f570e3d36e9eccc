package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/operations"
	"gatehouse/enforcers/operations/operationstest"
	"gatehouse/enforcers/operations/webhook"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

const (
	name   = "webhook.send.chat"
	schema = `{"type":"object","additionalProperties":false,"required":["text"],"properties":{"text":{"type":"string","maxLength":100}}}`
)

func receiver(t *testing.T, o *operationstest.Outside) operations.Operation {
	t.Helper()
	r := &webhook.Receiver{Name: name, Summary: "Tells the team.", Remote: o.Remote(t), Path: "/in", Schema: json.RawMessage(schema), Calls: 3,
		Secret: secret.FromString("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))), Clock: func() time.Time { return time.Unix(1_800_000_000, 0) }}
	op, err := r.Operation()
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func TestSend(t *testing.T) {
	o := &operationstest.Outside{Answer: func(operationstest.Seen) (int, string) { return 200, "canary: the receiver's words" }}
	op := receiver(t, o)
	d := operationstest.New(t, receipts.Hard, []string{name}, op)
	d.Run(t, o, []operationstest.Row{
		{Name: "send", Op: name, Key: "k1", Args: `{"text":"hello"}`, Status: 200, Want: `{"id":"msg_`, Left: 1},
		{Name: "send_replayed", Op: name, Key: "k1", Args: `{ "text":"hello" }`, Status: 200, Want: `{"id":"msg_`, Left: 1},
		{Name: "send_elsewhere", Op: name, Key: "k2", Args: `{"text":"x","url":"https://evil.test"}`, Status: 400, Code: operations.CodeArguments, Left: 1},
		{Name: "send_too_long", Op: name, Key: "k2", Args: `{"text":"` + fmt.Sprintf("%0101d", 0) + `"}`, Status: 400, Code: operations.CodeArguments, Left: 1},
	})
	sent := o.Requests()[0]
	mac := hmac.New(sha256.New, make([]byte, 32))
	fmt.Fprintf(mac, "%s.%s.%s", sent.Header.Get("Webhook-Id"), sent.Header.Get("Webhook-Timestamp"), sent.Body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); sent.Header.Get("Webhook-Signature") != want || sent.Method != "POST" || sent.Target != "/in" {
		t.Errorf("%+v, want signature %s", sent, want)
	}
	t.Run("tried_again_has_the_same_id", func(t *testing.T) {
		again := operationstest.New(t, receipts.Hard, []string{name}, op)
		again.Call(t, name, "k1", `{"text":"hello"}`)
		if all := o.Requests(); all[len(all)-1].Header.Get("Webhook-Id") != sent.Header.Get("Webhook-Id") {
			t.Error("the receiver cannot tell that it is the same message")
		}
	})
	t.Run("refused", func(t *testing.T) {
		left := len(o.Requests())
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			if a := operationstest.New(t, mode, nil, op).Call(t, name, "k", `{"text":"x"}`); a.Status != 403 || len(o.Requests()) != left {
				t.Errorf("%s: %s", mode, a.Text)
			}
		}
	})
	t.Run("over_limit", func(t *testing.T) {
		d.Call(t, name, "k3", `{"text":"x"}`)
		d.Call(t, name, "k4", `{"text":"x"}`)
		left := len(o.Requests())
		if a := d.Call(t, name, "k5", `{"text":"x"}`); a.Code != operations.CodeLimit || len(o.Requests()) != left || d.Receipts.Last().Effect != enforcers.NotForwarded {
			t.Errorf("%s", a.Text)
		}
	})
}

func TestSecret(t *testing.T) {
	for name, s := range map[string]string{"no_prefix": base64.StdEncoding.EncodeToString(make([]byte, 32)), "short": "whsec_YQ==", "not_base64": "whsec_!!!"} {
		t.Run(name, func(t *testing.T) {
			r := &webhook.Receiver{Secret: secret.FromString(s)}
			if _, err := r.Operation(); problem.CodeOf(err) != problem.ConfigInvalid {
				t.Errorf("%v", err)
			}
		})
	}
}
