package netguard

import (
	"net"
	"net/netip"
	"testing"

	"code.dny.dev/ssrf"
)

func TestClassify(t *testing.T) {
	for addr, want := range map[string]Class{
		// EG-22
		"::1": Loopback, "::": Unspecified,
		// EG-23
		"::ffff:127.0.0.1": Loopback, "::ffff:169.254.169.254": Metadata, "::ffff:10.0.0.1": Private, "::ffff:93.184.216.34": Public,
		// EG-24
		"64:ff9b::7f00:1": Translation, "64:ff9b::5db8:d822": Translation, "64:ff9b:1::1": Translation,
		// EG-25
		"fd00::1": Private, "fc00::1": Private, "fe80::1": LinkLocal, "febf::1": LinkLocal, "fec0::1": SiteLocal, "fe80::1%eth0": Zoned, "2606::1%1": Zoned,
		// EG-26
		"0.0.0.0": Unspecified, "0.1.2.3": ThisNetwork,
		// EG-27
		"100.64.0.1": Shared, "100.127.255.255": Shared, "198.18.0.1": Benchmark, "198.19.255.255": Benchmark, "192.0.2.1": Documentation,
		"198.51.100.9": Documentation, "203.0.113.9": Documentation, "240.0.0.1": Reserved, "255.255.255.255": Broadcast, "224.0.0.1": Multicast,
		"239.255.255.255": Multicast, "ff02::1": Multicast, "2001:db8::1": Documentation, "3fff::1": Documentation, "2001:2::1": Benchmark,
		"2001::1": Translation, "2002:7f00:1::1": Translation, "192.88.99.1": Translation, "::127.0.0.1": Translation, "::ffff:0:127.0.0.1": Translation,
		"5f00::1": Reserved, "100::1": Reserved, "100:0:0:1::1": Reserved, "2001:20::1": Reserved, "2001:1::1": Reserved, "192.0.0.9": Reserved,
		"192.31.196.1": Reserved, "192.52.193.1": Reserved, "192.175.48.1": Reserved, "2620:4f:8000::1": Reserved,
		"4000::1": Unallocated, "1fff::1": Unallocated, "e000::1": Unallocated, "200::1": Unallocated,
		"2606:2800::5efe:7f00:1": Translation, "2606:2800::200:5efe:7f00:1": Translation,
		// EG-28
		"100.63.255.255": Public, "100.128.0.1": Public, "172.32.0.1": Public, "169.253.255.255": Public, "223.255.255.255": Public,
		"11.0.0.0": Public, "9.255.255.255": Public, "2606:2800:220:1::1": Public, "2001:200::1": Public, "2003::1": Public, "2400::1": Public,
		// EG-29
		"169.254.169.254": Metadata, "169.254.170.2": Metadata, "169.254.169.253": LinkLocal, "fd00:ec2::254": Metadata, "168.63.129.16": Metadata,
		"100.100.100.200": Metadata, "192.0.0.192": Metadata, "168.63.129.17": Public,
		// EG-31
		"10.0.0.5": Private, "172.16.0.1": Private, "172.31.255.255": Private, "192.168.1.1": Private, "127.9.9.9": Loopback,
	} {
		if got := Classify(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Classify(%s) = %s, want %s", addr, got, want)
		}
		if _, public := IsPublic(netip.MustParseAddr(addr)); public != (want == Public) {
			t.Errorf("IsPublic(%s) = %t", addr, public)
		}
	}
	if got := Classify(netip.Addr{}); got != Invalid {
		t.Errorf("Classify(zero) = %s", got)
	}
}

// TestEdges: the first and last address of every block have its class unless a
// more specific block says otherwise, and the ones just outside do not.
func TestEdges(t *testing.T) {
	specific := func(a netip.Addr, than netip.Prefix) bool {
		for _, b := range blocks {
			if b.prefix.Bits() > than.Bits() && b.prefix.Contains(a) {
				return true
			}
		}
		return false
	}
	for _, b := range blocks {
		first := b.prefix.Addr()
		last := lastOf(b.prefix)
		for _, a := range []netip.Addr{first, last} {
			if got := Classify(a); got != b.class && !specific(a, b.prefix) {
				t.Errorf("%s of %s is %s, want %s", a, b.prefix, got, b.class)
			}
		}
		for _, a := range []netip.Addr{first.Prev(), last.Next()} {
			if a.IsValid() && b.prefix.Contains(a) {
				t.Errorf("%s lies in %s", a, b.prefix)
			}
		}
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// FuzzClassify: whatever a second, independent table calls special, and
// whatever the standard library does, this one does not call public.
func FuzzClassify(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "93.184.216.34", "::ffff:10.0.0.1", "fe80::1", "64:ff9b::1", "2606:2800::1", "192.88.99.1"} {
		f.Add(netip.MustParseAddr(s).AsSlice())
	}
	guard := ssrf.New(ssrf.WithAnyPort(), ssrf.WithNetworks("tcp4", "tcp6"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		_, public := IsPublic(a)
		u := a.Unmap()
		network := "tcp4"
		if u.Is6() {
			network = "tcp6"
		}
		if public && guard.Safe(network, net.JoinHostPort(u.String(), "443"), nil) != nil {
			t.Errorf("%s is public here and not to the other table", a)
		}
		if public && (u.IsPrivate() || u.IsLoopback() || u.IsLinkLocalUnicast() || u.IsMulticast() || u.IsUnspecified() || !u.IsGlobalUnicast()) {
			t.Errorf("%s is public here and not to the standard library", a)
		}
	})
}

func TestName(t *testing.T) {
	for name, want := range map[string]Class{
		"metadata.google.internal": Metadata, "metadata": Metadata, "instance-data": Metadata, // EG-30
		"localhost": Special, "x.localhost": Special, "printer.local": Special, "x.onion": Special, "1.0.0.127.in-addr.arpa": Special,
		"kubernetes.default.svc": Metadata,
		"api.good.test":          Public, "localhost.evil.test": Public, "local": Special, "93.184.216.34": Public, "": Public, "mylocal": Public,
		"x.metadata.google.internal": Public,
	} {
		got, ok := Name(name)
		if got != want || ok != (want == Public) {
			t.Errorf("Name(%q) = %s, %t; want %s", name, got, ok, want)
		}
	}
}

func TestRelay(t *testing.T) {
	for name, want := range map[string]bool{
		"pastebin.com": true, "www.pastebin.com": true, "a.b.ngrok.io": true, "c2VjcmV0.oast.fun": true, "webhook.site": true,
		"notpastebin.com": false, "pastebin.com.evil.test": false, "com": false, "": false, "api.good.test": false,
	} {
		if got := Relay(name); got != want {
			t.Errorf("Relay(%q) = %t", name, got)
		}
	}
}
