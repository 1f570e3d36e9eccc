package ingest

import (
	"net/http"
	"time"

	"gatehouse/internal/event"
)

// Source is one kind of sender. It is one of the project's plug points; package
// sourcetest checks the contract.
//
// Verify MUST decide on the raw bytes before anything of them is parsed, MUST do
// the same work for every outcome, and MUST refuse with a problem.Error whose
// code is in problem's ingest list; Unauthorized says nothing more. Secrets and
// clock are given at construction.
//
// Normalize MUST be pure: the same delivery and document give the same event.
// It fills Kind, Action, Entity, EntityPath, Actor, Time (if the body has one),
// Facts, Lists, Text, Prov, Anomalies and, where the vendor says one thing under
// more than one body, SameSHA256; the intake fills the rest. An error
// means that the body is not what the delivery claims: it is quarantined, not
// lost.
type Source interface {
	Traits() Traits
	Verify(h http.Header, raw []byte) (Delivery, error)
	Normalize(d Delivery, doc *Doc) (*event.Event, error)
}

// Traits are the constants of a source.
type Traits struct {
	Name    string        // the <source> of ids and subjects, a token
	MaxBody int64         // bytes
	Timeout time.Duration // from the first byte of the request to the answer
	Window  time.Duration // how long a delivery id, and a body if ByBody, is remembered
	ByBody  bool          // a known body under a new id is a duplicate
	// Hidden are pointers to values that are never stored: secrets that the
	// vendor puts into bodies, and what it collects about people. They are hidden
	// also in a body that cannot be normalized.
	Hidden []string
}

// Delivery is a verified request before it is parsed.
type Delivery struct {
	// ID is the vendor's id of the delivery, the primary dedupe key; closed
	// form. Empty: the vendor has none and the body digest stands for it.
	ID string
	// Kind is the event kind that a header claims, untrusted and unsigned
	// unless Auth.Signed lists it; empty when the kind is in the body.
	Kind string
	Auth event.Auth
	// JSON is the document: the raw body, or what a form carries.
	JSON []byte
	// Doc is JSON scanned already, if the source had to look into a verified
	// body for its time.
	Doc *Doc
	// Challenge is repeated in the answer, for senders that ask an endpoint to
	// prove itself. It starts no session.
	Challenge string
}

// Endpoint is one configured webhook address, POST /hooks/<Name>.
type Endpoint struct {
	Name   string // a token
	Source Source
	Rate   float64 // verified deliveries a second; 0 means 50
	Burst  int     // 0 means 200
}
