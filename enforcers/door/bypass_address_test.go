package door_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// resolving sets the addresses that a name has during a row.
func resolving(name string, addrs ...string) func(*testing.T, *outside, *setup) {
	return zoned(name, func(q dns.Question) *dns.Msg { return answer(q, addrs...) })
}

func zoned(name string, f func(dns.Question) *dns.Msg) func(*testing.T, *outside, *setup) {
	return func(t *testing.T, o *outside, _ *setup) { o.at(t, name, f) }
}

// notPublic are addresses that no name may lead to and no literal may be.
var notPublic = map[string][]string{
	"EG-22_v6_loopback":    {"::1", "::"},
	"EG-23_v4_mapped":      {"::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:169.254.169.254", "::ffff:10.0.0.1"},
	"EG-24_nat64":          {"64:ff9b::7f00:1", "64:ff9b::5db8:d80a", "64:ff9b:1::1"},
	"EG-25_ula_link_local": {"fd00::1", "fe80::1", "fec0::1", "fc00::1"},
	"EG-26_this_network":   {"0.0.0.0", "0.1.2.3"},
	"EG-27_special": {
		"100.64.0.1", "198.18.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "255.255.255.255", "224.0.0.1",
		"ff02::1", "2001:db8::1", "2002:7f00:1::1", "2001::1", "5f00::1", "3fff::1", "4000::1", "2606:2800::5efe:a00:1",
	},
	"EG-29_metadata": {"169.254.169.254", "169.254.170.2", "fd00:ec2::254", "168.63.129.16", "100.100.100.200", "192.0.0.192"},
	"EG-31_private":  {"10.0.0.5", "172.16.0.1", "192.168.1.1", "127.0.0.1", "127.9.9.9"},
}

func addressRows() map[string]row {
	rows := map[string]row{
		"EG-25_zone":            both(rawConnect("[fe80::1%eth0]:443"), denied(400, enforcers.CodeBadAuthority)),
		"EG-25_zone_plain":      both(plainHost("[fe80::1%25eth0]"), denied(400, enforcers.CodeBadAuthority)),
		"EG-30_metadata_name":   both(rawConnect("metadata.google.internal:443"), denied(403, enforcers.CodeMetadata)),
		"EG-30_metadata_dot":    both(rawConnect("Metadata.Google.Internal.:443"), denied(403, enforcers.CodeMetadata)),
		"EG-30_metadata_plain":  both(plainHost("metadata.google.internal"), denied(403, enforcers.CodeMetadata)),
		"EG-30_instance_data":   both(rawConnect("instance-data:443"), denied(403, enforcers.CodeMetadata)),
		"EG-30_localhost":       both(rawConnect("localhost:443"), denied(403, enforcers.CodeSpecialName)),
		"EG-30_under_localhost": both(plainHost("x.localhost"), denied(403, enforcers.CodeSpecialName)),
		"EG-32_mixed_answers":   {setup: resolving(good, "93.184.216.10", "127.0.0.1"), do: connect(good)},
		"EG-33_mixed_families":  {setup: resolving(good, "93.184.216.10", "::1"), do: connect(good)},
		"EG-36_cname_to_private": {do: connect(good), setup: zoned(good, func(q dns.Question) *dns.Msg {
			return chain(q, "10.1.2.3", "x.internal.")
		})},
		"EG-36_cname_to_refused_name": {do: connect(good), setup: zoned(good, func(q dns.Question) *dns.Msg {
			return chain(q, "93.184.216.10", "metadata.google.internal.")
		})},
		"EG-31_rule_without_internal_network": {do: connect("inside.good.test"), setup: resolving("inside.good.test", "10.9.0.5")},
	}
	for name, r := range rows {
		if r.hard.status == 0 {
			r.hard = stopped(403, enforcers.CodeAddressNotPublic)
			if strings.HasPrefix(name, "EG-31_rule") {
				r.hard.rule = "egress[11]"
			}
			r.shadow = r.hard
			rows[name] = r
		}
	}
	rows["EG-31_rule_with_other_address"] = both(connect("inside.good.test"), stopped(403, enforcers.CodeAddressNotListed).at("egress[11]"))
	rows["EG-98_own_public_address"] = row{
		do:   connect(good),
		hard: stopped(403, enforcers.CodeLoop), shadow: stopped(403, enforcers.CodeLoop),
		setup: func(_ *testing.T, _ *outside, s *setup) { s.own = []netip.Addr{goodAddr} },
	}
	for name, addrs := range notPublic {
		for _, a := range addrs {
			host := a
			if strings.Contains(a, ":") {
				host = "[" + a + "]"
			}
			label := strings.NewReplacer(":", "_", ".", "_").Replace(a)
			rows[name+"_literal_"+label] = both(rawConnect(host+":443"), denied(403, enforcers.CodeIPLiteral))
			rows[name+"_plain_"+label] = row{
				do:   plain("http://"+host+"/", host),
				hard: denied(403, enforcers.CodeIPLiteral), shadow: denied(403, enforcers.CodeIPLiteral),
			}
			rows[name+"_resolved_"+label] = row{
				do: connect(good), setup: resolving(good, a),
				hard: stopped(403, enforcers.CodeAddressNotPublic), shadow: stopped(403, enforcers.CodeAddressNotPublic),
			}
		}
	}
	for _, a := range edges {
		rows["EG-28_edge_"+strings.ReplaceAll(a, ".", "_")] = row{
			do: connect(good), setup: resolving(good, a), hard: allowed(200, "egress[0]"), shadow: allowed(200, "egress[0]"),
		}
	}
	for name, r := range brokenDNS(good) {
		rows[name] = r
	}
	return rows
}

// chain answers with aliases from the name asked for to the last target, which
// has the address.
func chain(q dns.Question, addr string, targets ...string) *dns.Msg {
	m := new(dns.Msg)
	owner := q.Name
	for _, target := range targets {
		m.Answer = append(m.Answer, &dns.CNAME{Hdr: dns.RR_Header{Name: owner, Class: dns.ClassINET, Rrtype: dns.TypeCNAME}, Target: target})
		owner = target
	}
	q.Name = owner
	m.Answer = append(m.Answer, answer(q, addr).Answer...)
	return m
}

func brokenDNS(good string) map[string]row {
	hops := make([]string, 20)
	for i := range hops {
		hops[i] = fmt.Sprintf("hop%d.good.test.", i)
	}
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf("93.184.%d.%d", i/250, i%250+1)
	}
	rows := make(map[string]row)
	for name, c := range map[string]struct {
		status  int
		code    string
		queries int // one for each family, and again by TCP when an answer was cut
		answer  func(dns.Question) *dns.Msg
	}{
		"EG-37_twenty_hops": {502, enforcers.CodeDNSAnswers, 2, func(q dns.Question) *dns.Msg { return chain(q, "93.184.216.10", hops...) }},
		"EG-37_loop": {502, enforcers.CodeDNS, 2, func(q dns.Question) *dns.Msg {
			return chain(q, "93.184.216.10", "b.good.test.", q.Name, "b.good.test.")
		}},
		"EG-37_300_records":  {502, enforcers.CodeDNS, 2, func(q dns.Question) *dns.Msg { return answer(q, many...) }},
		"EG-37_40_addresses": {502, enforcers.CodeDNSAnswers, 2, func(q dns.Question) *dns.Msg { return answer(q, many[:40]...) }},
		"EG-37_other_owner":  {502, enforcers.CodeDNS, 2, func(q dns.Question) *dns.Msg { q.Name = "other.test."; return answer(q, "93.184.216.10") }},
		"EG-38_servfail":     {502, enforcers.CodeDNS, 2, func(q dns.Question) *dns.Msg { return rcode(dns.RcodeServerFailure) }},
		"EG-38_refused":      {502, enforcers.CodeDNS, 2, func(q dns.Question) *dns.Msg { return rcode(dns.RcodeRefused) }},
		"EG-38_nxdomain":     {502, enforcers.CodeDNSName, 2, func(q dns.Question) *dns.Msg { return rcode(dns.RcodeNameError) }},
		"EG-38_no_address":   {502, enforcers.CodeDNSName, 2, func(q dns.Question) *dns.Msg { return new(dns.Msg) }},
		"EG-38_truncated":    {502, enforcers.CodeDNSAnswers, 4, func(q dns.Question) *dns.Msg { return &dns.Msg{MsgHdr: dns.MsgHdr{Truncated: true}} }},
		"EG-38_timeout":      {502, enforcers.CodeDNS, 2, func(q dns.Question) *dns.Msg { return nil }},
		"EG-38_wrong_id":     {502, enforcers.CodeDNS, 2, func(q dns.Question) *dns.Msg { m := answer(q, "93.184.216.10"); m.Response, m.Id = true, 1; return m }},
		"EG-38_half_an_answer": {502, enforcers.CodeDNS, 2, func(q dns.Question) *dns.Msg {
			if q.Qtype == dns.TypeAAAA {
				return rcode(dns.RcodeServerFailure)
			}
			return answer(q, "93.184.216.10")
		}},
	} {
		rows[name] = row{
			do: connect(good), hard: stopped(c.status, c.code).asked(c.queries), shadow: stopped(c.status, c.code).asked(c.queries),
			setup: func(t *testing.T, o *outside, s *setup) {
				o.at(t, good, c.answer)
				if strings.Contains(name, "timeout") || strings.Contains(name, "wrong_id") {
					s.resolve = 200 * time.Millisecond
				}
			},
		}
	}
	return rows
}

func rcode(code int) *dns.Msg { return &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: code}} }

// TestBypassMatrixDNSFlip is M-11's "DNS change between admission and connection": the
// name is looked up once, for one connection, and the address of a second
// answer is never dialed.
func TestBypassMatrixDNSFlip(t *testing.T) {
	o := newOutside(t)
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		t.Run("EG-34_between_admission_and_dial/"+string(mode), func(t *testing.T) {
			in := open(t, o, setup{mode: mode})
			var asked sync.Map // question types that were answered once
			o.at(t, good, func(q dns.Question) *dns.Msg {
				if _, again := asked.LoadOrStore(q.Qtype, true); !again {
					return answer(q, "93.184.216.10") // TTL 0
				}
				return answer(q, "127.0.0.1")
			})
			from := in.mark()
			re := in.fetch(good, "/v1/x")
			in.end()
			in.expect(t, from, re, allowed(200, "egress[0]")) // one question for each family
			if _, out := in.rec.last(); out.Address != "93.184.216.10" || out.Effect != enforcers.Forwarded {
				t.Errorf("outcome %+v", out)
			}
			in.covered(t)
		})
		t.Run("EG-35_on_keep_alive/"+string(mode), func(t *testing.T) {
			in := open(t, o, setup{mode: mode})
			c, r, _ := in.secure(good+":443", good)
			ask := func(w want) {
				t.Helper()
				from := in.mark()
				if _, err := io.WriteString(c, get(good, "/v1/x")); err != nil {
					t.Fatal(err)
				}
				in.expect(t, from, read(r, "GET"), w)
			}
			first := allowed(200, "egress[0]")
			ask(first)
			o.at(t, good, func(q dns.Question) *dns.Msg { return answer(q, "127.0.0.1") })
			ask(first.kept()) // on the pinned connection
			// The fake says that its connection is over: the next request needs a
			// new one, and with it the whole check.
			o.handle(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
			ask(first.kept())
			ask(stopped(403, enforcers.CodeAddressNotPublic))
			in.end()
			in.covered(t)
		})
	}
}
