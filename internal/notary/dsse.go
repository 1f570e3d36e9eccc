package notary

import (
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Names in the envelope: docs/receipts-spec.md, section 13.
const (
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "urn:gatehouse:session:1"
)

// maxSubjects bounds the receipts of one envelope.
const maxSubjects = 1 << 16

// envelope is a DSSE envelope.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

// statement is an in-toto Statement. Its subjects are the receipts, by the
// SHA-256 of their stored bytes.
type statement struct {
	Type      string    `json:"_type"`
	Subject   []subject `json:"subject"`
	Predicate struct {
		Log        string `json:"log"`
		Session    string `json:"session"`
		Receipts   int    `json:"receipts"`
		Head       string `json:"head"` // leaf hash of the last
		Closed     bool   `json:"closed"`
		Checkpoint string `json:"checkpoint"`
	} `json:"predicate"`
	PredicateType string `json:"predicateType"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// Envelope returns a session's chain as one DSSE envelope around an in-toto
// Statement, for tools that know nothing else. It lists digests, not receipts,
// and proves less than an export: that this node says so. The seal key signs it;
// the pre-authentication encoding keeps it apart from seals.
func (n *Notary) Envelope(ctx context.Context, session string) ([]byte, error) {
	note, err := n.Checkpoint(ctx)
	if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	s := statement{Type: statementType, PredicateType: predicateType}
	s.Predicate.Log, s.Predicate.Session, s.Predicate.Checkpoint = n.origin, session, string(note)
	for group, err := range n.j.Groups(0) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("envelope: %w", err)
		}
		for _, r := range group {
			if r.Kind != journal.KindReceipt || r.Subject != sessionPrefix+session {
				continue
			}
			if len(s.Subject) == maxSubjects {
				return nil, problem.New(problem.Usage, "the session has more receipts than one envelope may list", "Use a native export.")
			}
			sum := sha256.Sum256(r.Data)
			s.Subject = append(s.Subject, subject{fmt.Sprintf("%s/%d", session, len(s.Subject)), map[string]string{"sha256": hex.EncodeToString(sum[:])}})
			s.Predicate.Head, s.Predicate.Closed = receipts.Leaf(r.Data).String(), typeOf(r.Data) == string(receipts.TypeSessionClose)
		}
	}
	if s.Predicate.Receipts = len(s.Subject); s.Predicate.Receipts == 0 {
		return nil, problem.New(problem.NotFound, "there is no session "+session+" in the journal", noSession)
	}
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	sig, err := n.o.Keys.seal.Sign(nil, authenticated(payloadType, payload), crypto.Hash(0))
	if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	return json.Marshal(envelope{payloadType, base64.StdEncoding.EncodeToString(payload), []signature{{
		n.sealID, base64.StdEncoding.EncodeToString(sig),
	}}})
}

// authenticated is DSSE's pre-authentication encoding: what is signed.
func authenticated(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}
