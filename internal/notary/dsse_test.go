package notary_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// sealVerifier is the seal key as go-securesystemslib takes keys.
type sealVerifier struct{ receipts.Key }

func (v sealVerifier) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(v.Key.Public, data, sig) {
		return errors.New("wrong signature")
	}
	return nil
}

func (v sealVerifier) KeyID() (string, error)   { return v.ID(), nil }
func (v sealVerifier) Public() crypto.PublicKey { return v.Key.Public }

// TestEnvelope has other people's DSSE code accept a session.
func TestEnvelope(t *testing.T) {
	n, _ := fresh(t)
	c := n.open("s1")
	forwarded(c, decide(t, c, 1))
	closeChain(t, c, "completed")
	b, err := n.Envelope(context.Background(), "s1")
	if err != nil {
		t.Fatal(err)
	}
	key, _ := testKeys().Keyset().Active(receipts.SealKey)
	verifier, err := dsse.NewEnvelopeVerifier(sealVerifier{key})
	if err != nil {
		t.Fatal(err)
	}
	var e dsse.Envelope
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	if _, err := verifier.Verify(context.Background(), &e); err != nil {
		t.Fatalf("go-securesystemslib does not accept the envelope: %v", err)
	}
	payload, err := e.DecodeB64Payload()
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Subject   []struct{ Digest map[string]string }
		Predicate struct {
			Closed     bool
			Receipts   int
			Checkpoint string
		}
	}
	if err := json.Unmarshal(payload, &s); err != nil {
		t.Fatal(err)
	}
	chain := n.chainOf("s1")
	if len(chain) != 4 || s.Predicate.Receipts != 4 || len(s.Subject) != 4 || !s.Predicate.Closed {
		t.Fatalf("%s", payload)
	}
	for i, r := range chain {
		stored, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(stored); s.Subject[i].Digest["sha256"] != hex.EncodeToString(sum[:]) {
			t.Errorf("subject %d is not receipt %d", i, i)
		}
	}
	if _, err := receipts.ParseCheckpoint([]byte(s.Predicate.Checkpoint), testKeys().Keyset()); err != nil {
		t.Error(err)
	}
	// A changed envelope is not accepted.
	var changed dsse.Envelope
	if err := json.Unmarshal(bytes.Replace(b, []byte(e.Payload[:8]), []byte("AAAAAAAA"), 1), &changed); err != nil {
		t.Fatal(err)
	}
	if _, err := verifier.Verify(context.Background(), &changed); err == nil {
		t.Error("a changed envelope was accepted")
	}
	if _, err := n.Envelope(context.Background(), "none"); problem.CodeOf(err) != problem.NotFound {
		t.Error(err)
	}
	want(t, n.verify(n.export(notary.Filter{Sessions: []string{"s1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
}
