package github

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"gatehouse/ingest"
	"gatehouse/ingest/sourcetest"
	"gatehouse/internal/event"
)

func mac(key string, body []byte) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write(body)
	return hex.EncodeToString(m.Sum(nil))
}

// The vendor's published test vector.
func TestPublishedVector(t *testing.T) {
	s, err := New(Options{Secrets: secrets("It's a Secret to Everybody")})
	if err != nil {
		t.Fatal(err)
	}
	h := header(signatureHeader, "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
		"Content-Type", "application/json", deliveryHeader, "1", kindHeader, "ping")
	if _, err := s.Verify(h, []byte("Hello, World!")); err != nil {
		t.Error(err)
	}
	if _, err := s.Verify(h, []byte("Hello, World?")); err == nil {
		t.Error("verified another body")
	}
}

// FuzzVerify: what verifies has exactly the MAC of the body, said as sha256.
func FuzzVerify(f *testing.F) {
	const key = testKey
	body := []byte(`{"a":1}`)
	f.Add("sha256="+mac(key, body), "application/json", "1", "ping", body, false)
	f.Add("sha256="+strings.ToUpper(mac(key, body)), "application/json; charset=utf-8", "1", "ping", body, false)
	f.Add("sha1="+mac(key, body), "application/json", "1", "ping", body, false)
	f.Add("sha256="+mac(key, []byte("payload=%7B%7D")), "application/x-www-form-urlencoded", "1", "ping", []byte("payload=%7B%7D"), false)
	f.Add("", "", "", "", []byte{}, true)
	f.Add("sha256="+strings.Repeat("0", 64), "a/b;", "a.>", "*", []byte("&&&&=%zz"), true)
	s := source(f)
	f.Fuzz(func(t *testing.T, sig, contentType, id, kind string, body []byte, right bool) {
		if right {
			sig = "sha256=" + mac(key, body)
		}
		d, err := s.Verify(header(signatureHeader, sig, "Content-Type", contentType, deliveryHeader, id, kindHeader, kind), body)
		if err != nil {
			return
		}
		digits, ok := strings.CutPrefix(sig, "sha256=")
		if !ok || !strings.EqualFold(digits, mac(key, body)) {
			t.Fatalf("verified %q over %q", sig, body)
		}
		if d.ID == "" || !event.IsClosed(d.ID) || d.Kind != "" && !event.IsToken(d.Kind) || d.JSON == nil && len(body) > 0 {
			t.Fatalf("delivery %+v", d)
		}
	})
}

// FuzzNormalize: whatever the document, the event is well formed, comes back
// from its bytes, and holds no credential of the table.
func FuzzNormalize(f *testing.F) {
	s := source(f)
	for _, p := range payloads(f) {
		if bytes.HasPrefix(p.Raw, []byte("{")) {
			f.Add(p.Kind, p.Raw)
		}
	}
	f.Add("secret_scanning_alert", []byte(`{"alert":{"secret_type":"x","secret":{"canary":["canary"]}},"repository":{}}`))
	f.Add("ping", []byte(`{"hook":{"config":{"secret":"canary"}}}`))
	f.Fuzz(func(t *testing.T, kind string, raw []byte) {
		sourcetest.Fuzz(t, s, ingest.Delivery{ID: "1", Kind: ingest.Token(kind), JSON: raw})
	})
}
