package door

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"gatehouse/internal/authority"
)

// life of a session's certificates; a session is much shorter.
const life = 24 * time.Hour

// CA is a session's certificate authority. Its keys live in memory and die
// with the session; nothing outside the session trusts it.
type CA struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
	leaf *ecdsa.PrivateKey // one key for every leaf: the door holds them all anyway

	mu    sync.Mutex
	certs map[string]*tls.Certificate // host -> leaf; bounded by the session's names
}

// NewCA makes the certificate authority of one session.
func NewCA(session string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("session CA: %w", err)
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("session CA: %w", err)
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "Gatehouse session " + session},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("session CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("session CA: %w", err)
	}
	return &CA{
		key: key, cert: cert, leaf: leaf,
		pem:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		certs: make(map[string]*tls.Certificate),
	}, nil
}

// Trust returns the PEM certificate that clients inside must trust.
func (ca *CA) Trust() []byte { return ca.pem }

// certificate returns the leaf for an authority the gate let through: minting
// follows the decision, so that nobody fills the cache with names of his own.
func (ca *CA) certificate(to authority.Authority) (*tls.Certificate, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if c := ca.certs[to.Host()]; c != nil {
		return c, nil
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		NotBefore:    ca.cert.NotBefore,
		NotAfter:     ca.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(to.Host()) <= 64 {
		t.Subject.CommonName = to.Host() // for clients that look nowhere else
	}
	if addr, ok := to.Addr(); ok {
		t.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		t.DNSNames = []string{to.Host()}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca.cert, ca.leaf.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der, ca.cert.Raw}, PrivateKey: ca.leaf}
	if len(ca.certs) < maxNames {
		ca.certs[to.Host()] = c
	}
	return c, nil
}
