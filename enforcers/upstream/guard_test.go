package upstream

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestAdmit: which address may be dialed, by a rule's addresses and the node's
// internal networks.
func TestAdmit(t *testing.T) {
	c := &Client{o: Options{
		Internal: prefixes("10.8.0.0/16", "127.0.0.0/8", "169.254.0.0/16", "fd00:1::/32", "100.64.0.0/10", "224.0.0.0/4", "64:ff9b::/96"),
		Own:      []netip.Addr{netip.MustParseAddr("93.184.216.77")},
	}}
	own := map[netip.Addr]bool{netip.MustParseAddr("93.184.216.78"): true, netip.MustParseAddr("10.8.9.9"): true}
	for name, a := range map[string]struct {
		addr   string
		ranges []netip.Prefix
		code   string
	}{
		"public":                            {"93.184.216.34", nil, ""},
		"public_v6":                         {"2606:2800::1", nil, ""},
		"private":                           {"10.8.0.1", nil, enforcers.CodeAddressNotPublic},
		"private_listed":                    {"10.8.0.1", prefixes("10.8.0.0/24"), ""},
		"private_listed_v6":                 {"fd00:1::1", prefixes("fd00:1::/64"), ""},
		"private_mapped_listed":             {"::ffff:10.8.0.1", prefixes("10.8.0.0/24"), ""},
		"shared_listed":                     {"100.64.0.1", prefixes("100.64.0.0/16"), ""},
		"private_beside_the_rule":           {"10.8.1.1", prefixes("10.8.0.0/24"), enforcers.CodeAddressNotPublic},
		"private_outside_the_node":          {"10.9.0.1", prefixes("10.0.0.0/8"), enforcers.CodeAddressNotPublic},
		"public_where_a_rule_has_addresses": {"93.184.216.34", prefixes("10.8.0.0/24"), enforcers.CodeAddressNotListed},
		"public_listed":                     {"93.184.216.34", prefixes("93.184.216.0/24"), ""},
		"loopback_never":                    {"127.0.0.1", prefixes("127.0.0.0/8"), enforcers.CodeAddressNotPublic},
		"link_local_never":                  {"169.254.1.1", prefixes("169.254.0.0/16"), enforcers.CodeAddressNotPublic},
		"EG-29_metadata_never":              {"169.254.169.254", prefixes("169.254.169.254/32"), enforcers.CodeAddressNotPublic},
		"EG-29_metadata_in_shared":          {"100.100.100.200", prefixes("100.64.0.0/10"), enforcers.CodeAddressNotPublic},
		"multicast_never":                   {"224.0.0.1", prefixes("224.0.0.0/4"), enforcers.CodeAddressNotPublic},
		"EG-24_translation_never":           {"64:ff9b::1", prefixes("64:ff9b::/96"), enforcers.CodeAddressNotPublic},
		"EG-25_zone_never":                  {"fe80::1%eth0", nil, enforcers.CodeAddressNotPublic},
		"EG-98_own_by_configuration":        {"93.184.216.77", nil, enforcers.CodeLoop},
		"EG-98_own_by_configuration_mapped": {"::ffff:93.184.216.77", nil, enforcers.CodeLoop},
		"EG-98_own_by_interface":            {"93.184.216.78", nil, enforcers.CodeLoop},
		"EG-98_own_internal_even_if_listed": {"10.8.9.9", prefixes("10.8.0.0/16"), enforcers.CodeLoop},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.admit(netip.MustParseAddr(a.addr), a.ranges, own)
			code := ""
			if err != nil {
				code = string(problem.CodeOf(err))
			}
			if code != a.code {
				t.Errorf("%s: %q, want %q", a.addr, code, a.code)
			}
		})
	}
}

// TestOwnAddresses: the interfaces of the machine that runs the test.
func TestOwnAddresses(t *testing.T) {
	own, err := ownAddresses()
	if err != nil || !own[netip.MustParseAddr("127.0.0.1")] {
		t.Errorf("%v %v", own, err)
	}
}

func TestRedirections(t *testing.T) {
	for name, m := range map[string]map[string]string{
		"private_key":     {"10.0.0.1:443": "127.0.0.1:1"},
		"loopback_key":    {"127.0.0.1:443": "127.0.0.1:1"},
		"public_target":   {"93.184.216.34:443": "93.184.216.35:443"},
		"wildcard_target": {"93.184.216.34:443": "0.0.0.0:1"},
	} {
		dev := &Dev{DNS: netip.MustParseAddrPort("127.0.0.1:1"), Upstreams: map[netip.AddrPort]netip.AddrPort{}}
		for k, v := range m {
			dev.Upstreams[netip.MustParseAddrPort(k)] = netip.MustParseAddrPort(v)
		}
		if _, err := New(Options{Dev: dev}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a client without a resolver is taken")
	}
}

// TestAddresses: how an answer is read.
func TestAddresses(t *testing.T) {
	q := dns.Question{Name: "a.test.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	rr := func(s string) dns.RR {
		r, err := dns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, c := range map[string]struct {
		rrs  []string
		want []string
		code string
	}{
		"one":                  {[]string{"a.test. A 93.184.216.34"}, []string{"93.184.216.34"}, ""},
		"case":                 {[]string{"A.TEST. A 93.184.216.34"}, []string{"93.184.216.34"}, ""},
		"alias":                {[]string{"a.test. CNAME B.test.", "b.test. A 93.184.216.34"}, []string{"93.184.216.34"}, ""},
		"alias_out_of_order":   {[]string{"c.test. A 93.184.216.34", "b.test. CNAME c.test.", "a.test. CNAME b.test."}, []string{"93.184.216.34"}, ""},
		"other_type_is_no_use": {[]string{"a.test. AAAA 2606::1", `a.test. TXT "x"`}, nil, ""},
		"nothing":              {nil, nil, ""},
		"EG-37_other_name":     {[]string{"a.test. A 93.184.216.34", "evil.test. A 93.184.216.66"}, nil, enforcers.CodeDNS},
		"EG-37_beside_alias":   {[]string{"a.test. CNAME b.test.", "a.test. A 93.184.216.34", "b.test. A 93.184.216.35"}, nil, enforcers.CodeDNS},
		"EG-37_unused_alias":   {[]string{"a.test. A 93.184.216.34", "x.test. CNAME y.test."}, nil, enforcers.CodeDNS},
		"EG-37_two_aliases":    {[]string{"a.test. CNAME b.test.", "a.test. CNAME c.test."}, nil, enforcers.CodeDNS},
		"EG-37_loop":           {[]string{"a.test. CNAME b.test.", "b.test. CNAME a.test."}, nil, ""},
		"EG-36_metadata":       {[]string{"a.test. CNAME metadata.google.internal.", "metadata.google.internal. A 93.184.216.34"}, nil, enforcers.CodeAddressNotPublic},
		"EG-36_localhost":      {[]string{"a.test. CNAME x.localhost."}, nil, enforcers.CodeAddressNotPublic},
	} {
		t.Run(name, func(t *testing.T) {
			var answer []dns.RR
			for _, s := range c.rrs {
				answer = append(answer, rr(s))
			}
			got, err := addresses(answer, q)
			code := ""
			if err != nil {
				code = string(problem.CodeOf(err))
			}
			if code != c.code || len(got) != len(c.want) {
				t.Fatalf("%v %q, want %v %q", got, code, c.want, c.code)
			}
			for i := range got {
				if got[i].String() != c.want[i] {
					t.Errorf("%v, want %v", got, c.want)
				}
			}
		})
	}
}

// FuzzAddresses: no answer makes an address of a name that it does not lead to.
func FuzzAddresses(f *testing.F) {
	m := new(dns.Msg)
	m.SetQuestion("a.test.", dns.TypeA)
	for _, s := range []string{"a.test. A 93.184.216.34", "a.test. CNAME b.test.", "b.test. A 93.184.216.34"} {
		r, err := dns.NewRR(s)
		if err != nil {
			f.Fatal(err)
		}
		m.Answer = append(m.Answer, r)
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(dns.Msg)
		if m.Unpack(b) != nil || len(m.Answer) > maxRecords {
			return
		}
		got, err := addresses(m.Answer, dns.Question{Name: "a.test.", Qtype: dns.TypeA, Qclass: dns.ClassINET})
		if err != nil && got != nil {
			t.Fatal("a refused answer has addresses")
		}
		if len(got) > maxAddresses {
			t.Fatalf("%d addresses", len(got))
		}
	})
}
