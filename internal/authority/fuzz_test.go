package authority

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/idna"
)

// FuzzParseHost: what the grammar accepts is canonical, and every other parser
// that could meet it reads the same name.
func FuzzParseHost(f *testing.F) {
	for _, s := range []string{
		"api.good.test", "API.good.test.", "a..b", ".", "127.1", "0x7f000001", "2130706433", "[::1]", "::1", "fe80::1%eth0",
		"xn--bcher-kva.test", "xn--a.test", "evil.test\x00.pkg.test", "ａpi.good.test", "a%2eb.test", "::ffff:127.0.0.1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, ip, err := ParseHost(s)
		if err != nil {
			if host != "" || ip {
				t.Fatal("a refused host has a value")
			}
			return
		}
		if again, ip2, err := ParseHost(host); again != host || ip2 != ip || err != nil {
			t.Fatalf("%q is not canonical: %q %v", host, again, err)
		}
		if addr, err := netip.ParseAddr(host); (err == nil) != ip || (ip && addr.String() != host) {
			t.Fatalf("netip reads %q as %v, %v", host, addr, err)
		}
		if ip != (net.ParseIP(host) != nil) {
			t.Fatalf("net reads %q otherwise", host)
		}
		if ip {
			return
		}
		if host != strings.ToLower(host) || strings.HasSuffix(host, ".") || len(host) > 253 {
			t.Fatalf("%q is not canonical", host)
		}
		u, err := url.Parse("https://" + host + ":443/x")
		if err != nil || u.Hostname() != host || u.Port() != "443" || u.User != nil {
			t.Fatalf("net/url reads %q as %v, %v", host, u, err)
		}
		if strings.Contains(host, "xn--") {
			if a, err := idna.Lookup.ToASCII(host); err == nil && a != host {
				t.Fatalf("idna turns %q into %q", host, a)
			}
		}
	})
}

// FuzzParseHostPort: differential against net.SplitHostPort and net/url.
func FuzzParseHostPort(f *testing.F) {
	for _, s := range []string{
		"api.good.test:443", "[::1]:443", "a:b:443", "u@a.test:443", "a.test:+443", "a.test:0443", "[a.test]:443", ":443", "[::1%25eth0]:443",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseHostPort(HTTPS, s)
		if err != nil {
			if !a.IsZero() {
				t.Fatal("a refused authority has a value")
			}
			return
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			t.Fatalf("net refuses %q: %v", s, err)
		}
		h, _, err := ParseHost(host)
		if err != nil || h != a.Host() {
			t.Fatalf("net finds host %q in %q", host, s)
		}
		if p, err := ParsePort(port); err != nil || p != a.Port() {
			t.Fatalf("net finds port %q in %q", port, s)
		}
		again, err := ParseHostPort(HTTPS, a.HostPort())
		if err != nil || again != a {
			t.Fatalf("%q is not read back: %v %v", a.HostPort(), again, err)
		}
		for _, scheme := range []string{HTTP, HTTPS, TCP} {
			a := a.WithScheme(scheme)
			for _, field := range []string{a.HostHeader(), a.HostPort(), s, host} {
				named, err := ParseHostHeader(scheme, field)
				if ok, wrong := a.NamedBy(field); ok != (err == nil && named == a) || (wrong == nil) != (err == nil) {
					t.Fatalf("%q names %v (%v), of %v NamedBy says %t, %v", field, named, err, a, ok, wrong)
				}
			}
		}
	})
}

// FuzzPattern: a pattern that is accepted is read back as itself and never
// matches its own apex.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"*.pkg.test", "**.pkg.test", "pkg.test", "*.com", "*", "bücher.test", "*.bücher.test"} {
		f.Add(s, "a.pkg.test")
	}
	f.Fuzz(func(t *testing.T, s, host string) {
		p, err := ParsePattern(s)
		if err != nil {
			return
		}
		if again, err := ParsePattern(p.String()); err != nil || again != p {
			t.Fatalf("%q is not read back: %v %v", p, again, err)
		}
		if p.Wildcard() && p.MatchHost(p.host) {
			t.Fatalf("%q matches its apex", p)
		}
		h, _, err := ParseHost(host)
		if err == nil && p.MatchHost(h) && h != p.host && !strings.HasSuffix(h, "."+p.host) {
			t.Fatalf("%q matches %q", p, h)
		}
	})
}
