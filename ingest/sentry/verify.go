package sentry

import (
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"net/http"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

const (
	signatureHeader = "Sentry-Hook-Signature"
	resourceHeader  = "Sentry-Hook-Resource"
	scheme          = "sentry-hmac-sha256"
)

// Verify checks Sentry-Hook-Signature, bare hex of the HMAC-SHA256 of the raw
// body. The body is never re-encoded: the vendor's floats and escapes would not
// survive that. Request-ID and Sentry-Hook-Timestamp are new with each attempt
// and not signed, so they are not read; the body digest is the delivery's key.
//
// The legacy plugin signs nothing (IN-27): its bodies have no signature header
// and are refused here. A webhook endpoint with a token can take them.
func (s *Source) Verify(h http.Header, raw []byte) (ingest.Delivery, error) {
	mac, formed := bareHex(ingest.Header(h, signatureHeader))
	key, ok := s.secrets.MAC(sha256.New, mac[:], raw)
	if !ok || !formed {
		return ingest.Delivery{}, ingest.Unauthorized
	}
	if media, _, err := mime.ParseMediaType(ingest.Header(h, "Content-Type")); err != nil || media != "application/json" {
		return ingest.Delivery{}, problem.New(problem.ContentType, "body is not JSON", "")
	}
	return ingest.Delivery{
		Kind: ingest.Token(ingest.Header(h, resourceHeader)),
		Auth: event.Auth{Scheme: scheme, Key: key, Signed: []string{"body"}},
		JSON: raw,
	}, nil
}

func bareHex(v string) (mac [sha256.Size]byte, ok bool) {
	if len(v) != 2*sha256.Size {
		return mac, false
	}
	_, err := hex.Decode(mac[:], []byte(v))
	return mac, err == nil
}
