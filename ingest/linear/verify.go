package linear

import (
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"net/http"
	"strconv"
	"time"

	"gatehouse/ingest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

const (
	signatureHeader = "Linear-Signature"
	deliveryHeader  = "Linear-Delivery"
	scheme          = "linear-hmac-sha256"
)

// Bands of the signed time. Linear repeats a failed delivery byte for byte after
// a minute, an hour and six hours, so an old time is a retry or a replay; what
// tells them apart is whether the delivery is known, and dedupe remembers longer
// than the late band.
const (
	fresh = time.Minute
	late  = 8 * time.Hour
)

// Verify checks Linear-Signature, bare hex of the HMAC-SHA256 of the raw body,
// and then the signed time in the body. Linear-Timestamp and Linear-Event are
// not signed and not read.
func (s *Source) Verify(h http.Header, raw []byte) (ingest.Delivery, error) {
	mac, formed := bareHex(ingest.Header(h, signatureHeader))
	key, ok := s.secrets.MAC(sha256.New, mac[:], raw)
	if !ok || !formed {
		return ingest.Delivery{}, ingest.Unauthorized
	}
	if media, _, err := mime.ParseMediaType(ingest.Header(h, "Content-Type")); err != nil || media != "application/json" {
		return ingest.Delivery{}, problem.New(problem.ContentType, "body is not JSON", "")
	}
	id, err := ingest.DeliveryID(h, deliveryHeader)
	if err != nil {
		return ingest.Delivery{}, err
	}
	doc, err := ingest.Scan(raw)
	if err != nil {
		return ingest.Delivery{}, err
	}
	d := ingest.Delivery{ID: id, JSON: raw, Doc: doc, Auth: event.Auth{Scheme: scheme, Key: key, Signed: []string{"body", "timestamp"}}}
	sent, err := strconv.ParseInt(string(doc.At("/webhookTimestamp").Bytes()), 10, 64)
	if err != nil {
		return ingest.Delivery{}, problem.New(problem.Stale, "body has no signed time", "")
	}
	switch age := s.now().Sub(time.UnixMilli(sent)); {
	case age < -fresh || age > late:
		return ingest.Delivery{}, problem.New(problem.Stale, "signed time is outside the window", "")
	case age > fresh:
		d.Auth.Late = true
	}
	return d, nil
}

func bareHex(v string) (mac [sha256.Size]byte, ok bool) {
	if len(v) != 2*sha256.Size {
		return mac, false
	}
	_, err := hex.Decode(mac[:], []byte(v))
	return mac, err == nil
}
