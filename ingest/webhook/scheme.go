package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Scheme is how a sender proves itself.
type Scheme interface {
	// open checks the keys and returns the verifier.
	open(keys []secret.Value) (verifier, error)
}

// verifier checks one request. It returns the signed id and time, if the scheme
// signs any.
type verifier func(h http.Header, raw []byte) (proof, error)

type proof struct {
	auth event.Auth
	id   string    // signed delivery id, "" if none
	sent time.Time // signed time, zero if none
}

// Standard is Standard Webhooks 1.0.0, with v1 (HMAC-SHA256, secrets whsec_...)
// and v1a (Ed25519, public keys whpk_...). The older svix- header names are read
// too. A MAC over another version, or an id that the signed form could not be
// taken apart for, does not verify (IN-26).
type Standard struct{}

const (
	minStandardKey = 24
	maxStandardKey = 64
	maxSignatures  = 16
)

func (Standard) open(keys []secret.Value) (verifier, error) {
	type key struct {
		mac    []byte
		public ed25519.PublicKey
	}
	if len(keys) == 0 {
		return nil, problem.New(problem.SecretMissing, "the endpoint has no secret", "Copy the sender's whsec_ or whpk_ key.")
	}
	if len(keys) > 3 {
		return nil, problem.New(problem.SecretTooMany, "the endpoint has more than 3 secrets", "Remove those that no sender uses.")
	}
	var list []key
	for i, k := range keys {
		text := string(k.Reveal())
		public := strings.HasPrefix(text, "whpk_")
		b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimPrefix(text, "whsec_"), "whpk_"))
		switch {
		case err != nil:
			return nil, problem.New(problem.ConfigInvalid, fmt.Sprintf("secret %d is not base64 after whsec_ or whpk_", i+1), "Copy the key as the sender shows it.")
		case public && len(b) == ed25519.PublicKeySize:
			list = append(list, key{public: b})
		case public || len(b) > maxStandardKey:
			return nil, problem.New(problem.ConfigInvalid, fmt.Sprintf("secret %d does not have the length of a key", i+1), "Copy the key as the sender shows it.")
		case len(b) == 0:
			return nil, problem.New(problem.SecretMissing, fmt.Sprintf("secret %d is empty", i+1), "Copy the sender's whsec_ or whpk_ key.")
		case len(b) < minStandardKey:
			return nil, problem.New(problem.SecretTooShort, fmt.Sprintf("secret %d is shorter than %d bytes", i+1, minStandardKey), "Make a longer one at the sender.")
		default:
			list = append(list, key{mac: b})
		}
	}
	return func(h http.Header, raw []byte) (proof, error) {
		id, stamp, sigs := standardHeader(h, "id"), standardHeader(h, "timestamp"), standardHeader(h, "signature")
		signed := []byte(id + "." + stamp + ".")
		var v1, v1a [][]byte
		for i, s := range strings.Fields(sigs) {
			version, b64, _ := strings.Cut(s, ",")
			b, err := base64.StdEncoding.DecodeString(b64)
			if err != nil || i == maxSignatures {
				continue
			}
			switch version {
			case "v1":
				v1 = append(v1, b)
			case "v1a":
				v1a = append(v1a, b)
			}
		}
		found, version := 0, ""
		for i, k := range list {
			if k.mac != nil {
				m := hmac.New(sha256.New, k.mac)
				m.Write(signed)
				m.Write(raw)
				sum := m.Sum(nil)
				for _, s := range v1 {
					if subtle.ConstantTimeCompare(sum, s) == 1 {
						found, version = i+1, "v1"
					}
				}
				continue
			}
			message := append(append([]byte{}, signed...), raw...)
			for _, s := range v1a {
				if len(s) == ed25519.SignatureSize && ed25519.Verify(k.public, message, s) {
					found, version = i+1, "v1a"
				}
			}
		}
		sent, err := strconv.ParseInt(stamp, 10, 64)
		// A full stop in the id would let another id, time and body give the same
		// signed bytes; so would a second spelling of the time.
		if found == 0 || strings.Contains(id, ".") || err != nil || strconv.FormatInt(sent, 10) != stamp {
			return proof{}, ingest.Unauthorized
		}
		return proof{id: id, sent: time.Unix(sent, 0),
			auth: event.Auth{Scheme: "standard-" + version, Key: "k" + strconv.Itoa(found), Signed: []string{"id", "timestamp", "body"}}}, nil
	}, nil
}

// standardHeader reads webhook-x or svix-x. A sender may set both, but to one
// value: which of two is meant is not for us to guess.
func standardHeader(h http.Header, name string) string {
	a, b := ingest.Header(h, "Webhook-"+name), ingest.Header(h, "Svix-"+name)
	switch {
	case a == "" || a == b:
		return b
	case b == "" && len(h.Values("Svix-"+name)) == 0:
		return a
	}
	return ""
}

// HMAC is any sender that puts an HMAC into a header.
type HMAC struct {
	Header string // that carries the MAC
	Prefix string // before it, such as "sha256=" or "v0="
	Hash   string // sha256 (default), sha384, sha512
	Base64 bool   // hex otherwise
	// Signed is what the MAC covers: {body}, {ts} and {id} in a text of its own;
	// "{body}" by default. It must hold {body}.
	Signed     string
	TimeHeader string // unix seconds; required when Signed holds {ts}
	IDHeader   string // required when Signed holds {id}
}

func (s HMAC) open(keys []secret.Value) (verifier, error) {
	secrets, err := ingest.NewSecrets(keys)
	if err != nil {
		return nil, err
	}
	hashes := map[string]func() hash.Hash{"": sha256.New, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}
	newHash, ok := hashes[s.Hash]
	bad := func(msg, hint string) error { return problem.New(problem.ConfigInvalid, msg, hint) }
	if !ok {
		return nil, bad("hash is not sha256, sha384 or sha512", "SHA-1 and MD5 are not accepted.")
	}
	if s.Signed == "" {
		s.Signed = "{body}"
	}
	parts, err := template(s.Signed)
	switch {
	case err != nil:
		return nil, err
	case s.Header == "":
		return nil, bad("no header carries the signature", "Name it in header.")
	case parts.has("ts") != (s.TimeHeader != ""):
		return nil, bad("time and {ts} go together", "A time that is not signed proves nothing.")
	case parts.has("id") && s.IDHeader == "":
		return nil, bad("{id} needs the header that carries the id", "Name it in id.")
	}
	return func(h http.Header, raw []byte) (proof, error) {
		stamp, id := "", ""
		if s.TimeHeader != "" {
			stamp = ingest.Header(h, s.TimeHeader)
		}
		if s.IDHeader != "" {
			id = ingest.Header(h, s.IDHeader)
		}
		given, formed := strings.CutPrefix(ingest.Header(h, s.Header), s.Prefix)
		decode := hex.DecodeString
		if s.Base64 {
			decode = base64.StdEncoding.DecodeString
		}
		mac, err := decode(given)
		key, ok := secrets.MAC(newHash, mac, parts.fill(stamp, id, raw)...)
		if !ok || !formed || err != nil {
			return proof{}, ingest.Unauthorized
		}
		p := proof{auth: event.Auth{Scheme: "hmac", Key: key, Signed: []string{"body"}}}
		if parts.has("id") {
			p.id, p.auth.Signed = id, append(p.auth.Signed, "id")
		}
		if parts.has("ts") {
			sec, err := strconv.ParseInt(stamp, 10, 64)
			if err != nil {
				return proof{}, ingest.Unauthorized
			}
			p.sent, p.auth.Signed = time.Unix(sec, 0), append(p.auth.Signed, "timestamp")
		}
		return p, nil
	}, nil
}

// pieces is a parsed template: literal text, and the names in braces.
type pieces []string

func template(s string) (pieces, error) {
	var out pieces
	for s != "" {
		lit, rest, open := strings.Cut(s, "{")
		if lit != "" {
			out = append(out, "="+lit)
		}
		if !open {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || name != "body" && name != "ts" && name != "id" || out.has(name) {
			return nil, problem.New(problem.ConfigInvalid, "signed holds something else than {id}, {ts} and {body}, or one of them twice", `Write for example "{ts}.{body}".`)
		}
		out = append(out, name)
		s = after
	}
	if !out.has("body") {
		return nil, problem.New(problem.ConfigInvalid, "signed does not hold {body}", "A signature that does not cover the body proves nothing.")
	}
	return out, nil
}

func (p pieces) has(name string) bool {
	for _, x := range p {
		if x == name {
			return true
		}
	}
	return false
}

func (p pieces) fill(stamp, id string, raw []byte) [][]byte {
	var out [][]byte
	for _, x := range p {
		switch x {
		case "body":
			out = append(out, raw)
		case "ts":
			out = append(out, []byte(stamp))
		case "id":
			out = append(out, []byte(id))
		default:
			out = append(out, []byte(x[1:]))
		}
	}
	return out
}

// Token is a shared token in a header: it proves who knows it and nothing of the
// body, which anybody on the way may have changed.
type Token struct {
	Header string // Authorization by default
	Prefix string // "Bearer " by default, for Authorization only
}

func (s Token) open(keys []secret.Value) (verifier, error) {
	if _, err := ingest.NewSecrets(keys); err != nil {
		return nil, err
	}
	if s.Header == "" {
		s.Header, s.Prefix = "Authorization", "Bearer "
	}
	return func(h http.Header, _ []byte) (proof, error) {
		given, formed := strings.CutPrefix(ingest.Header(h, s.Header), s.Prefix)
		found := 0
		for i, k := range keys {
			if k.Equal([]byte(given)) {
				found = i + 1
			}
		}
		if found == 0 || !formed {
			return proof{}, ingest.Unauthorized
		}
		return proof{auth: event.Auth{Scheme: "shared-token", Key: "k" + strconv.Itoa(found)}}, nil
	}, nil
}
