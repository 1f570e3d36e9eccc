package github

import (
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

const (
	signatureHeader = "X-Hub-Signature-256"
	deliveryHeader  = "X-Github-Delivery"
	kindHeader      = "X-Github-Event"
	scheme          = "github-hmac-sha256"
	maxFormFields   = 16
)

// Verify checks X-Hub-Signature-256 over the raw body. The header must come
// once and say sha256=, whatever else the sender signs with: the SHA-1 header is
// not read. Everything else is told to verified senders only.
func (s *Source) Verify(h http.Header, raw []byte) (ingest.Delivery, error) {
	mac, formed := signature(ingest.Header(h, signatureHeader))
	key, ok := s.secrets.MAC(sha256.New, mac[:], raw)
	if !ok || !formed {
		return ingest.Delivery{}, ingest.Unauthorized
	}
	d := ingest.Delivery{Auth: event.Auth{Scheme: scheme, Key: key, Signed: []string{"body"}}}
	var err error
	if d.JSON, err = document(ingest.Header(h, "Content-Type"), raw); err != nil {
		return ingest.Delivery{}, err
	}
	if d.ID, err = ingest.DeliveryID(h, deliveryHeader); err != nil {
		return ingest.Delivery{}, err
	}
	d.Kind = ingest.Token(ingest.Header(h, kindHeader))
	return d, nil
}

// signature reads "sha256=" and 64 hex digits of either case.
func signature(v string) (mac [sha256.Size]byte, ok bool) {
	digits, ok := strings.CutPrefix(v, "sha256=")
	if !ok || len(digits) != 2*sha256.Size {
		return mac, false
	}
	_, err := hex.Decode(mac[:], []byte(digits))
	return mac, err == nil
}

// document returns the JSON of the body: all of it, or the one payload field of
// a form.
func document(contentType string, raw []byte) ([]byte, error) {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media = ""
	}
	switch media {
	case "application/json":
		return raw, nil
	case "application/x-www-form-urlencoded":
	default:
		return nil, problem.New(problem.ContentType, "body is neither JSON nor a form", "")
	}
	ambiguous := problem.New(problem.AmbiguousForm, "form does not have exactly one payload", "")
	if strings.Count(string(raw), "&") >= maxFormFields {
		return nil, ambiguous
	}
	form, err := url.ParseQuery(string(raw))
	if err != nil || len(form["payload"]) != 1 {
		return nil, ambiguous
	}
	return []byte(form["payload"][0]), nil
}
