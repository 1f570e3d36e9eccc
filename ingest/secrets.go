package ingest

import (
	"crypto/hmac"
	"crypto/subtle"
	"fmt"
	"hash"
	"net/http"
	"strconv"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Limits of the secrets of one endpoint. Two are active while one is rotated;
// a third covers a rotation that was begun twice.
const (
	minSecret  = 24
	maxSecrets = 3
)

// Secrets are the active secrets of one endpoint, named k1, k2, k3 in order.
type Secrets struct{ list []secret.Value }

// NewSecrets refuses what would verify anything or next to anything.
func NewSecrets(list []secret.Value) (*Secrets, error) {
	const hint = "Set one, for example from `openssl rand -hex 32`, here and at the sender."
	if len(list) == 0 {
		return nil, problem.New(problem.SecretMissing, "the endpoint has no secret", hint)
	}
	if len(list) > maxSecrets {
		return nil, problem.New(problem.SecretTooMany, fmt.Sprintf("the endpoint has more than %d secrets", maxSecrets),
			"Remove those that no sender uses.")
	}
	for i, s := range list {
		if s.Empty() {
			return nil, problem.New(problem.SecretMissing, fmt.Sprintf("secret %d of the endpoint is empty", i+1), hint)
		}
		if len(s.Reveal()) < minSecret {
			return nil, problem.New(problem.SecretTooShort, fmt.Sprintf("secret %d of the endpoint is shorter than %d bytes", i+1, minSecret), hint)
		}
	}
	return &Secrets{list: list}, nil
}

// MAC returns the name of the secret under which the parts have this MAC. It
// computes the MAC under every secret whatever mac is, and compares in constant
// time, so that a wrong, a malformed and a missing MAC cost the same.
func (s *Secrets) MAC(h func() hash.Hash, mac []byte, parts ...[]byte) (key string, ok bool) {
	found := 0
	for i, v := range s.list {
		m := hmac.New(h, v.Reveal())
		for _, p := range parts {
			m.Write(p)
		}
		hit := subtle.ConstantTimeCompare(m.Sum(nil), mac)
		found = subtle.ConstantTimeSelect(hit, i+1, found)
	}
	return keyName(found), found > 0
}

func keyName(i int) string { return "k" + strconv.Itoa(i) }

// Unauthorized is the only answer to a delivery that does not verify.
var Unauthorized = problem.New(problem.Unauthorized, "delivery is not verified", "")

// Header returns the one value of a header. A header that is absent or sent
// twice has none: which of two values is meant is not for us to guess.
func Header(h http.Header, name string) string {
	if v := h.Values(name); len(v) == 1 {
		return v[0]
	}
	return ""
}

// DeliveryID returns the one value of a header when it has the form of an id.
func DeliveryID(h http.Header, name string) (string, error) {
	if id := Header(h, name); len(id) <= 128 && isID(id) {
		return id, nil
	}
	return "", problem.New(problem.DeliveryIDMissing, "delivery has no id", "")
}
