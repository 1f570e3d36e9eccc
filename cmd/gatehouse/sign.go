package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gatehouse/internal/config"
)

// sign returns the headers that d's sender would set at a time, over d.Body. A
// zero d.Endpoint is a plain endpoint of its source.
func (d delivery) sign(id string, at time.Time) (http.Header, error) {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	unix := strconv.FormatInt(at.Unix(), 10)
	key := d.Secret.Reveal()
	switch d.Source {
	case "github":
		h.Set("X-GitHub-Event", d.Kind)
		h.Set("X-GitHub-Delivery", id)
		h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac(sha256.New, key, d.Body)))
	case "sentry":
		h.Set("Sentry-Hook-Resource", d.Kind)
		h.Set("Sentry-Hook-Timestamp", unix)
		h.Set("Request-ID", strings.ReplaceAll(id, "-", ""))
		h.Set("Sentry-Hook-Signature", hex.EncodeToString(mac(sha256.New, key, d.Body)))
	case "linear":
		h.Set("Linear-Event", d.Kind)
		h.Set("Linear-Delivery", id)
		h.Set("Linear-Signature", hex.EncodeToString(mac(sha256.New, key, d.Body)))
	case "standard-webhooks":
		text := string(key)
		if strings.HasPrefix(text, "whpk_") {
			return nil, usage("the endpoint holds a public key: only its sender can sign", "use the endpoint's whsec_ secret")
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
		if err != nil {
			return nil, usage("the endpoint's secret is not base64 after whsec_", "copy the key as the sender shows it")
		}
		h.Set("Webhook-Id", id)
		h.Set("Webhook-Timestamp", unix)
		h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac(sha256.New, raw, []byte(id+"."+unix+"."), d.Body)))
	case "webhook":
		d.signGeneric(h, id, unix)
	default:
		return nil, usage("a delivery of source "+d.Source+" cannot be sent", "events of cron are made by the node itself")
	}
	return h, nil
}

// signGeneric follows the endpoint's own hmac or token.
func (d delivery) signGeneric(h http.Header, id, unix string) {
	if d.Endpoint.ID != nil && d.Endpoint.ID.Header != "" {
		h.Set(d.Endpoint.ID.Header, id)
	}
	if t := d.Endpoint.Token; t != nil {
		name, prefix := t.Header, t.Prefix
		if name == "" {
			name, prefix = "Authorization", "Bearer "
		}
		h.Set(name, prefix+string(d.Secret.Reveal()))
		return
	}
	m := d.Endpoint.HMAC
	if m.Time != "" {
		h.Set(m.Time, unix)
	}
	if m.ID != "" {
		h.Set(m.ID, id)
	}
	signed := m.Signed
	if signed == "" {
		signed = "{body}"
	}
	// The body may hold {id} or {ts}: it is put in last and never looked into.
	before, after, _ := strings.Cut(signed, "{body}")
	fill := strings.NewReplacer("{id}", id, "{ts}", unix).Replace
	hashes := map[string]func() hash.Hash{"": sha256.New, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}
	sum := mac(hashes[m.Hash], d.Secret.Reveal(), []byte(fill(before)), d.Body, []byte(fill(after)))
	text := hex.EncodeToString(sum)
	if m.Encoding == "base64" {
		text = base64.StdEncoding.EncodeToString(sum)
	}
	h.Set(m.Header, m.Prefix+text)
}

func mac(h func() hash.Hash, key []byte, parts ...[]byte) []byte {
	m := hmac.New(h, key)
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

// stampLinear sets the signed time of a Linear body: an old one would be taken
// for a replay. A body without one is returned as it is.
func stampLinear(body []byte, at time.Time) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields["webhookTimestamp"] == nil {
		return body
	}
	fields["webhookTimestamp"] = strconv.AppendInt(nil, at.UnixMilli(), 10)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(fields) != nil {
		return body
	}
	return bytes.TrimSpace(b.Bytes())
}

// sample is a delivery of an endpoint's source that no session starts from: a
// ping, or of a kind that nobody knows.
func sample(e config.Endpoint, nonce string, at time.Time) (kind string, body []byte) {
	switch e.Source {
	case "github":
		return "ping", []byte(`{"zen":"gatehouse endpoint test ` + nonce + `","hook_id":1,"hook":{"id":1,"type":"Repository","active":true,"events":["push"]}}`)
	case "sentry":
		return "gatehouse_test", []byte(`{"action":"test","data":{"nonce":"` + nonce + `"}}`)
	case "linear":
		return "GatehouseTest", []byte(`{"type":"GatehouseTest","action":"test","nonce":"` + nonce + `","webhookTimestamp":` + strconv.FormatInt(at.UnixMilli(), 10) + `}`)
	}
	// A challenge is repeated to its sender and is a ping.
	fields := map[string]any{"type": "url_verification", "challenge": nonce}
	if e.ID != nil && e.ID.Path != "" {
		place(fields, strings.Split(strings.TrimPrefix(e.ID.Path, "/"), "/"), nonce)
	}
	b, _ := json.Marshal(fields) // strings only: cannot fail
	return "", b
}

// place sets the value at a pointer's segments, making the objects on the way.
func place(in map[string]any, segments []string, value string) {
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(segments[0])
	if len(segments) == 1 {
		in[name] = value
		return
	}
	below, ok := in[name].(map[string]any)
	if !ok {
		below = map[string]any{}
		in[name] = below
	}
	place(below, segments[1:], value)
}
