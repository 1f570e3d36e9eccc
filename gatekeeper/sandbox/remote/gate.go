package remote

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// Bounds of the listener that shims come to.
const (
	handshakes      = 64 // under way at a time; more wait in the kernel's queue
	handshakeWithin = 10 * time.Second
	doorConnections = 256 // of one session, as a door takes
	keyValidity     = 7 * 24 * time.Hour
	clockSkew       = time.Hour
)

// doorName is the name in the certificate of every door; it is looked up
// nowhere.
const doorName = "door.gatehouse.internal"

// canaryHeader is the PEM header of a session's key that a probe looks for.
const canaryHeader = "Gatehouse-Canary"

// gate is the listener that shims come to. Its authority lives in memory and
// signs one key per session; the certificate that a connection shows decides
// which door it is joined to, and nothing else does.
type gate struct {
	listener net.Listener
	config   *tls.Config
	caPEM    []byte
	ca       *x509.Certificate
	key      *ecdsa.PrivateKey
	slots    chan struct{}
	life     context.Context
	end      context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	members map[[sha256.Size]byte]*member // by SHA-256 of the certificate
}

// member is one session's place at the gate.
type member struct {
	socket string // of the session's door
	slots  chan struct{}
	life   context.Context
	end    context.CancelFunc
	wg     sync.WaitGroup
}

func openGate(l net.Listener) (*gate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("remote provider: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gatehouse doors"}, NotBefore: now.Add(-clockSkew), NotAfter: now.AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("remote provider: %w", err)
	}
	g := &gate{listener: l, key: key, slots: make(chan struct{}, handshakes), members: map[[sha256.Size]byte]*member{}, caPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if g.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("remote provider: %w", err)
	}
	own, ownKey, err := g.sign(&x509.Certificate{Subject: pkix.Name{CommonName: doorName}, DNSNames: []string{doorName}, NotAfter: template.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(g.ca)
	g.config = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{own}, PrivateKey: ownKey}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: roots,
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, // a resumed connection would outlive its session's key
	}
	g.life, g.end = context.WithCancel(context.Background())
	g.wg.Go(g.accept)
	return g, nil
}

func (g *gate) sign(template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("remote provider: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, fmt.Errorf("remote provider: %w", err)
	}
	template.NotBefore, template.KeyUsage = time.Now().Add(-clockSkew), x509.KeyUsageDigitalSignature
	if der, err = x509.CreateCertificate(rand.Reader, template, g.ca, key.Public(), g.key); err != nil {
		return nil, nil, fmt.Errorf("remote provider: %w", err)
	}
	return der, key, nil
}

// admit makes a session's key to its door. leave ends every connection made
// with it and returns when they are gone; it may be called more than once.
func (g *gate) admit(session, socket, address, canary string) (key *DoorKey, leave func(), err error) {
	der, private, err := g.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: session}, NotAfter: time.Now().Add(keyValidity), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("remote provider: %w", err)
	}
	m := &member{socket: socket, slots: make(chan struct{}, doorConnections)}
	m.life, m.end = context.WithCancel(g.life)
	id := sha256.Sum256(der)
	g.mu.Lock()
	g.members[id] = m
	g.mu.Unlock()
	leave = func() {
		g.mu.Lock()
		delete(g.members, id)
		m.end()
		g.mu.Unlock()
		m.wg.Wait()
	}
	return &DoorKey{
		Address: address, Name: doorName, CA: g.caPEM,
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Headers: map[string]string{canaryHeader: canary}, Bytes: raw}),
	}, leave, nil
}

func (g *gate) accept() {
	for {
		select {
		case g.slots <- struct{}{}:
		case <-g.life.Done():
			return
		}
		c, err := g.listener.Accept()
		if err != nil {
			<-g.slots
			if g.life.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of descriptors: the listener is not the place to give up
			case <-time.After(50 * time.Millisecond):
			case <-g.life.Done():
				return
			}
			continue
		}
		g.wg.Go(func() { g.serve(c) })
	}
}

// serve lets a connection in that shows a living session's key, and joins it to
// that session's door.
func (g *gate) serve(raw net.Conn) {
	c := tls.Server(raw, g.config)
	defer c.Close()
	ctx, cancel := context.WithTimeout(g.life, handshakeWithin)
	err := c.HandshakeContext(ctx)
	cancel()
	<-g.slots
	if err != nil {
		return
	}
	m := g.enter(c.ConnectionState().PeerCertificates[0])
	if m == nil {
		return // SB-17: the key of a session that is over opens nothing
	}
	defer m.wg.Done()
	select {
	case m.slots <- struct{}{}:
	default:
		return
	}
	defer func() { <-m.slots }()
	var d net.Dialer
	inner, err := d.DialContext(m.life, "unix", m.socket)
	if err != nil {
		return // the door is shut
	}
	stop := context.AfterFunc(m.life, func() {
		_ = raw.Close()
		_ = inner.Close()
	})
	defer stop()
	Join(c, inner.(*net.UnixConn))
}

// enter finds the session of a certificate and counts the connection to it.
func (g *gate) enter(cert *x509.Certificate) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[sha256.Sum256(cert.Raw)]
	if m == nil || m.life.Err() != nil {
		return nil
	}
	m.wg.Add(1)
	return m
}

func (g *gate) close() {
	g.end()
	_ = g.listener.Close()
	g.wg.Wait()
}
