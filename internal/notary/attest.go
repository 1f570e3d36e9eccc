package notary

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Attest signs a document of the node that is no part of its log, such as a
// conformance report, with the seal key, as a DSSE envelope. The
// pre-authentication encoding holds payloadType, so that no document can pass
// for a seal or for a document of another type.
func (k *Keys) Attest(payloadType string, payload []byte) ([]byte, error) {
	key, ok := k.keyset.Active(receipts.SealKey)
	if !ok {
		return nil, problem.New(problem.KeysInvalid, "the log has no active seal key", "")
	}
	sig, err := k.seal.Sign(nil, authenticated(payloadType, payload), crypto.Hash(0))
	if err != nil {
		return nil, fmt.Errorf("sign a document: %w", err)
	}
	return json.Marshal(envelope{payloadType, base64.StdEncoding.EncodeToString(payload), []signature{{
		key.ID(), base64.StdEncoding.EncodeToString(sig),
	}}})
}

// Attested returns the document that Attest signed. Only the seal key that is
// active in ks is believed: what a retired one signed has no place in time.
func Attested(ks *receipts.Keyset, payloadType string, signed []byte) ([]byte, error) {
	invalid := func(why string) error {
		return problem.New(problem.KeysInvalid, "the signed document cannot be believed: "+why, "make it again on this node")
	}
	var e envelope
	if err := json.Unmarshal(signed, &e); err != nil || len(e.Signatures) != 1 || e.PayloadType != payloadType {
		return nil, invalid("it is no " + payloadType)
	}
	payload, err1 := base64.StdEncoding.DecodeString(e.Payload)
	sig, err2 := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	key, ok := ks.Active(receipts.SealKey)
	switch {
	case err1 != nil || err2 != nil:
		return nil, invalid("it is malformed")
	case !ok || key.ID() != e.Signatures[0].KeyID:
		return nil, invalid("the key that signed it is not the node's active seal key")
	case !ed25519.Verify(key.Public, authenticated(payloadType, payload), sig):
		return nil, invalid("its signature does not hold")
	}
	return payload, nil
}
