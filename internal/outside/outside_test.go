package outside

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCountersCount proves that a fake notices what reaches it: a counter that
// stayed at zero would make every "nothing was sent" test pass.
func TestCountersCount(t *testing.T) {
	w, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	addr := netip.MustParseAddr("93.184.216.34")
	site, err := w.HTTPS("api.good.test", addr, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "hello")
	}))
	if err != nil {
		t.Fatal(err)
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", w.DNS.Addr())
	}}
	got, err := resolver.LookupNetIP(t.Context(), "ip4", "api.good.test.")
	if err != nil || len(got) != 1 || got[0].Unmap() != addr {
		t.Fatalf("resolved %v, %v", got, err)
	}
	if n := w.DNS.Queries("API.good.test"); n != 1 {
		t.Errorf("queries %d", n)
	}
	if _, err := resolver.LookupNetIP(t.Context(), "ip4", "x.evil.test."); err == nil {
		t.Error("unknown name resolved")
	}
	if n := w.DNS.QueriesUnder("evil.test"); n == 0 {
		t.Error("query below evil.test was not counted")
	}

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(w.CA())
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, w.Upstreams()["93.184.216.34:443"])
		},
	}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Get("https://api.good.test/")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if site.Accepts() != 1 || site.Requests() != 1 || site.Bytes() == 0 {
		t.Errorf("accepts %d, requests %d, bytes %d", site.Accepts(), site.Requests(), site.Bytes())
	}
}

func TestFlip(t *testing.T) {
	w, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	first, second := netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("127.0.0.1")
	w.DNS.Flip("flip.test", []netip.Addr{first}, []netip.Addr{second})
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", w.DNS.Addr())
	}}
	for i, want := range []netip.Addr{first, second, second} {
		got, err := resolver.LookupNetIP(t.Context(), "ip4", "flip.test.")
		if err != nil || got[0].Unmap() != want {
			t.Errorf("look-up %d: %v, %v", i, got, err)
		}
	}
}
