package outside

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
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// World is one fake outside: an authority, a DNS server and any number of
// sites. All addresses that sites claim are public; every listener is on
// loopback and is reached only through the substitutions of Upstreams.
type World struct {
	DNS *DNS

	key  *ecdsa.PrivateKey
	ca   *x509.Certificate
	pem  []byte
	mu   sync.Mutex
	subs map[string]string // public ip:port -> loopback ip:port
	stop []func()
}

// New starts an empty world with its DNS server.
func New() (*World, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside world test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	dns, err := newDNS()
	if err != nil {
		return nil, err
	}
	return &World{
		DNS: dns, key: key, ca: ca, subs: map[string]string{},
		pem:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		stop: []func(){dns.close},
	}, nil
}

// CA returns the authority's certificate in PEM.
func (w *World) CA() []byte { return w.pem }

// Upstreams returns the substitutions: public "ip:port" to loopback "ip:port".
func (w *World) Upstreams() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]string, len(w.subs))
	for k, v := range w.subs {
		out[k] = v
	}
	return out
}

// Close stops every server.
func (w *World) Close() {
	for i := len(w.stop) - 1; i >= 0; i-- {
		w.stop[i]()
	}
}

// Site is one fake server with its counters.
type Site struct {
	accepts, bytes atomic.Int64
	requests       atomic.Int64
}

// Accepts returns how many connections were accepted.
func (s *Site) Accepts() int64 { return s.accepts.Load() }

// Bytes returns how many bytes were read from all connections.
func (s *Site) Bytes() int64 { return s.bytes.Load() }

// Requests returns how many HTTP requests were served.
func (s *Site) Requests() int64 { return s.requests.Load() }

// HTTPS starts a TLS site for host at the public address addr, port 443, and
// makes the DNS server answer for host.
func (w *World) HTTPS(host string, addr netip.Addr, h http.Handler) (*Site, error) {
	cert, err := w.issue(host)
	if err != nil {
		return nil, err
	}
	return w.serve(host, addr, 443, h, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
}

// HTTP starts a cleartext site for host at addr, port 80.
func (w *World) HTTP(host string, addr netip.Addr, h http.Handler) (*Site, error) {
	return w.serve(host, addr, 80, h, nil)
}

// TLS starts a site for host at addr:port that speaks whatever protocol the caller
// serves on its listener. Close ends it.
func (w *World) TLS(host string, addr netip.Addr, port uint16) (net.Listener, *Site, error) {
	cert, err := w.issue(host)
	if err != nil {
		return nil, nil, err
	}
	site := &Site{}
	l, err := w.listen(site, netip.AddrPortFrom(addr, port))
	if err != nil {
		return nil, nil, err
	}
	w.DNS.Answer(host, addr)
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}}), site, nil
}

// Sink starts a site that accepts raw connections at addr:port and answers
// nothing; it has no name.
func (w *World) Sink(addr netip.Addr, port uint16) (*Site, error) {
	site := &Site{}
	l, err := w.listen(site, netip.AddrPortFrom(addr, port))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				buf := make([]byte, 4096)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
				}
			}()
		}
	}()
	return site, nil
}

func (w *World) serve(host string, addr netip.Addr, port uint16, h http.Handler, conf *tls.Config) (*Site, error) {
	site := &Site{}
	l, err := w.listen(site, netip.AddrPortFrom(addr, port))
	if err != nil {
		return nil, err
	}
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			site.requests.Add(1)
			h.ServeHTTP(rw, r)
		}),
		ErrorLog: quiet(),
	}
	go func() { _ = srv.Serve(l) }()
	w.mu.Lock()
	w.stop = append(w.stop, func() { _ = srv.Close() })
	w.mu.Unlock()
	w.DNS.Answer(host, addr)
	return site, nil
}

func (w *World) listen(site *Site, public netip.AddrPort) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, taken := w.subs[public.String()]; taken {
		_ = l.Close()
		return nil, fmt.Errorf("%s is taken", public)
	}
	w.subs[public.String()] = l.Addr().String()
	w.stop = append(w.stop, func() { _ = l.Close() })
	return &countingListener{Listener: l, site: site}, nil
}

func (w *World) issue(host string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, w.ca, key.Public(), w.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der, w.ca.Raw}, PrivateKey: key}, nil
}

type countingListener struct {
	net.Listener
	site *Site
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.site.accepts.Add(1)
	return &countingConn{Conn: c, site: l.site}, nil
}

type countingConn struct {
	net.Conn
	site *Site
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.site.bytes.Add(int64(n))
	return n, err
}
