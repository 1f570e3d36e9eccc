package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elazarl/goproxy"
)

// goproxy runs in this process, as a program that embeds it does: with TLS ended
// in between, and without.
func (o *outsideWorld) goproxy(t testing.TB) (ends, blind way) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "goproxy"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	if ca.Leaf, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	start := func(action *goproxy.ConnectAction) string {
		p := goproxy.NewProxyHttpServer()
		p.Logger = log.New(io.Discard, "", 0)
		p.CertStore = &certificates{}
		p.Tr = &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: o.roots}, MaxIdleConnsPerHost: 128,
			DialContext: (&net.Dialer{}).DialContext,
		}
		there := func(network, _ string) (net.Conn, error) { return net.Dial(network, o.origin) }
		p.Tr.Dial, p.Tr.DialContext = there, nil
		p.ConnectDial = there
		p.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
			if strings.HasPrefix(host, "evil.test") {
				return goproxy.RejectConnect, host
			}
			return action, host
		})
		p.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
			r.Header.Set("Authorization", "Bearer "+benchToken)
			return r, nil
		})
		s := httptest.NewServer(p)
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	mitm := start(&goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&ca)})
	plain := start(goproxy.OkConnect)
	ends = dialing(way{name: "goproxy", network: "tcp", addr: mitm, target: benchHost + ":443", roots: roots, denied: "evil.test:443",
		ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})})
	return ends, dialing(way{name: "goproxy", network: "tcp", addr: plain, target: benchHost + ":443"})
}

// process starts a proxy and returns how to dial it, nil when it is not here.
func process(t *testing.T, name, addr string, argv ...string) func() (net.Conn, error) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		fmt.Printf("BENCH SKIPS %s: %v\n", name, err)
		return nil
	}
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
		_ = log.Close()
	})
	dial := func() (net.Conn, error) { return net.Dial("tcp", addr) }
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if c, err := dial(); err == nil {
			_ = c.Close()
			return dial
		}
		select {
		case <-gone:
			b, _ := os.ReadFile(log.Name())
			fmt.Printf("BENCH SKIPS %s: it ended: %s\n", name, strings.TrimSpace(string(b[max(0, len(b)-300):])))
			return nil
		default:
		}
	}
	fmt.Printf("BENCH SKIPS %s: it does not listen\n", name)
	return nil
}

func free(t *testing.T) (host, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

// smokescreen is built from its module, a peer of this one alone.
func (o *outsideWorld) smokescreen(t *testing.T) way {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "smokescreen")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/stripe/smokescreen").CombinedOutput(); err != nil {
		fmt.Printf("BENCH SKIPS smokescreen: %v %s\n", err, out)
		return way{}
	}
	host, port := free(t)
	return way{name: "smokescreen", target: o.origin, denied: "10.1.2.3:443",
		dial: process(t, "smokescreen", host+":"+port, bin, "--listen-ip", host, "--listen-port", port, "--allow-range", "127.0.0.0/8")}
}

// squid relays tunnels; it is Debian's.
func (o *outsideWorld) squid(t *testing.T) way {
	t.Helper()
	bin, err := exec.LookPath("squid")
	if err != nil {
		fmt.Println("BENCH SKIPS squid: it is not on this machine")
		return way{}
	}
	host, port := free(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "squid.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "http_port %s:%s\nhttp_access allow all\naccess_log none\ncache deny all\ncache_log %s/cache.log\npid_filename none\ncoredump_dir %s\nshutdown_lifetime 0 seconds\n", host, port, dir, dir), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // it drops to a user of its own
		t.Fatal(err)
	}
	return way{name: "squid", target: o.origin, dial: process(t, "squid", host+":"+port, bin, "-N", "-f", conf)}
}

// mitmproxy ends TLS and adds a header; it is Debian's.
func (o *outsideWorld) mitmproxy(t *testing.T) way {
	t.Helper()
	bin, err := exec.LookPath("mitmdump")
	if err != nil {
		fmt.Println("BENCH SKIPS mitmproxy: it is not on this machine")
		return way{}
	}
	dir := t.TempDir()
	trusted := filepath.Join(dir, "outside.pem")
	if err := os.WriteFile(trusted, o.CA(), 0o644); err != nil {
		t.Fatal(err)
	}
	host, port := free(t)
	w := way{name: "mitmproxy", target: o.origin, dial: process(t, "mitmproxy", host+":"+port, bin, "-q", "--set", "confdir="+dir, "--listen-host", host, "-p", port,
		"--set", "ssl_verify_upstream_trusted_ca="+trusted, "--set", "upstream_cert=false", "--set", "keep_host_header=true",
		"--modify-headers", "/~q/Authorization/Bearer "+benchToken)}
	if w.dial == nil {
		return w
	}
	b, err := os.ReadFile(filepath.Join(dir, "mitmproxy-ca-cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	w.roots = x509.NewCertPool()
	w.roots.AppendCertsFromPEM(b)
	// It must reach the outside at all: its checks differ from release to release.
	c, err := o.tunnel(w, benchHost)
	if err != nil {
		fmt.Printf("BENCH SKIPS mitmproxy: %v\n", err)
		return way{}
	}
	_ = c.Close()
	return w
}

// certificates keeps what goproxy signs, as its own documentation advises.
type certificates struct{ by sync.Map }

func (c *certificates) Fetch(host string, gen func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	if v, ok := c.by.Load(host); ok {
		return v.(*tls.Certificate), nil
	}
	cert, err := gen()
	if err == nil {
		c.by.Store(host, cert)
	}
	return cert, err
}
