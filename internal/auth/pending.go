package auth

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/gob"
	"time"
)

// pending is a login that has gone to the provider. The browser that began it
// carries it, sealed: the node keeps nothing for whoever only begins, so nobody can
// take the place of who comes back.
type pending struct {
	State    string
	Nonce    string
	Verifier string
	To       string
	Prompted bool   // the provider was asked to have the person prove themselves anew
	Again    string // person who must, "" when nobody was logged in
	Began    time.Time
}

const pendingLife = 10 * time.Minute

// newSeal returns what seals pending logins, under a key of this process.
func newSeal() (cipher.AEAD, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func (a *Auth) seal(x pending) (string, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(x); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(a.sealer.Seal(nil, nil, b.Bytes(), []byte(pendingName))), nil
}

// unseal returns the login that a cookie carries, false when this process did not
// seal it.
func (a *Auth) unseal(s string) (x pending, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return x, false
	}
	plain, err := a.sealer.Open(nil, nil, b, []byte(pendingName))
	if err != nil {
		return x, false
	}
	return x, gob.NewDecoder(bytes.NewReader(plain)).Decode(&x) == nil
}
