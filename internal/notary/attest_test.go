package notary_test

import (
	"bytes"
	"strings"
	"testing"

	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
)

func TestAttest(t *testing.T) {
	const kind = "application/vnd.gatehouse.conformance+json"
	keys, other := testKeys(), func() *notary.Keys {
		k, err := notary.NewKeys("other.example/node-1")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}()
	signed, err := keys.Attest(kind, []byte(`{"provider":"local"}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := notary.Attested(keys.Keyset(), kind, signed)
	if err != nil || string(got) != `{"provider":"local"}` {
		t.Fatalf("%s %v", got, err)
	}
	theirs, err := other.Attest(kind, []byte(`{"provider":"local"}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, envelope := range map[string][]byte{
		"empty":         nil,
		"other_key":     theirs,
		"other_payload": bytes.Replace(signed, []byte("eyJwcm92aWRlciI6ImxvY2FsIn0="), []byte("eyJwcm92aWRlciI6InJlbW90In0="), 1),
		"no_signature":  []byte(`{"payloadType":"` + kind + `","payload":"e30=","signatures":[]}`),
	} {
		t.Run(name, func(t *testing.T) {
			if bytes.Equal(envelope, signed) {
				t.Fatal("the envelope was not changed")
			}
			if got, err := notary.Attested(keys.Keyset(), kind, envelope); problem.CodeOf(err) != problem.KeysInvalid {
				t.Errorf("%q %v", got, err)
			}
		})
	}
	if _, err := notary.Attested(keys.Keyset(), "application/other", signed); err == nil || !strings.Contains(err.Error(), "application/other") {
		t.Errorf("a document of another type: %v", err)
	}
}
