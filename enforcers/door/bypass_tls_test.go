package door_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/receipts"
)

// inTunnel sends bytes through a tunnel and reads to its end.
func inTunnel(target string, b []byte) func(*inside) reply {
	return func(in *inside) reply {
		c, r, re := in.tunnel(target)
		if re.status != http.StatusOK {
			return re
		}
		if _, err := c.Write(b); err != nil {
			return reply{err: err}
		}
		rest, err := io.ReadAll(r)
		if err != nil {
			return reply{err: err}
		}
		return reply{body: string(rest)}
	}
}

// tlsRows are about the tunnel and the TLS inside it.
func tlsRows(t *testing.T) map[string]row {
	stranger := newIssuer(t)
	const good = "api.good.test"
	misdirected := denied(0, enforcers.CodeMisdirected)
	secure := func(sni string) func(*inside) reply {
		return func(in *inside) reply { return in.https(good+":443", sni, get(good, "/v1/x")) }
	}
	// A tunnel that opened and never got to a request.
	closed := func(code string) want { return stopped(0, code).asked(0) }
	rows := map[string]row{
		"EG-39_sni_differs":        both(secure("evil.test"), misdirected),
		"EG-39_sni_sibling":        both(secure("git.good.test"), misdirected),
		"EG-40_no_sni":             both(secure(""), misdirected),
		"EG-40_sni_for_literal":    both(func(in *inside) reply { return in.https("93.184.216.34:443", good, get(good, "/")) }, misdirected),
		"EG-40_trailing_dot":       both(inTunnel(good+":443", hello{names: []string{good + "."}}.bytes()), closed(enforcers.CodeClientTLS)),
		"EG-40_two_names":          both(inTunnel(good+":443", hello{names: []string{good, "evil.test"}}.bytes()), closed(enforcers.CodeClientTLS)),
		"EG-40_address_as_name":    both(inTunnel(good+":443", hello{names: []string{"93.184.216.10"}}.bytes()), misdirected),
		"EG-41_ech_cannot_work":    both(encryptedHello(good), closed(enforcers.CodeClientTLS)),
		"EG-41_ech_passthrough":    both(inTunnel("pass.good.test:443", hello{names: []string{"pass.good.test"}, extra: []uint16{0xfe0d}}.bytes()), misdirected),
		"EG-39_passthrough_sni":    both(inTunnel("pass.good.test:443", hello{names: []string{"evil.test"}}.bytes()), misdirected),
		"EG-39_passthrough_no_sni": both(inTunnel("pass.good.test:443", hello{}.bytes()), misdirected),
		"EG-64_passthrough_no_tls": both(inTunnel("pass.good.test:443", []byte("SSH-2.0-x\r\n")), closed(enforcers.CodeNotHTTP).at("egress[8]")),
		"EG-64_ssh_banner":         both(inTunnel(good+":443", []byte("\x00SSH-2.0-OpenSSH_9\r\n")), closed(enforcers.CodeNotHTTP)),
		"EG-64_ssh_as_method":      both(inTunnel(good+":443", []byte("SSH-2.0-OpenSSH_9\r\n\r\n")), denied(0, enforcers.CodeMalformed)),
		"EG-64_smtp":               both(inTunnel(good+":443", []byte("EHLO x\r\n\r\n")), denied(0, enforcers.CodeMalformed)),
		"EG-66_plain_in_443": {
			do:     inTunnelHTTP(good+":443", get(good+":443", "/v1/x")),
			hard:   denied(403, "scheme_not_listed"),
			shadow: blocked(400, "scheme_not_listed"), // the fake speaks TLS there and says so
		},
		"EG-66_plain_to_https_only": {
			do:     plainHost(good),
			hard:   denied(403, "port_not_listed"),
			shadow: blocked(200, "port_not_listed"),
		},
		"EG-66_bound_host_in_clear": both(inTunnelHTTP("bound.good.test:443", get("bound.good.test:443", "/v1/x")), denied(403, "scheme_not_listed")),
		"EG-blind_tcp": both(inTunnelHalf("blind.good.test:5432", "ping"), want{
			effect: enforcers.Allow, passed: true, code: "listed", rule: "egress[7]", dials: 1, queries: 2,
		}),
		"EG-blind_tls": both(func(in *inside) reply {
			c, _, re := in.tunnel("pass.good.test:443")
			if re.status != 200 {
				return re
			}
			t := tls.Client(c, &tls.Config{ServerName: "pass.good.test", RootCAs: in.out.roots}) // the real one
			if err := t.Handshake(); err != nil {
				return reply{err: err}
			}
			return ask(t, get("pass.good.test", "/"))
		}, allowed(200, "egress[8]")),
	}
	for name, sni := range map[string]string{ // hostile bytes where no HTTP parser looks
		"EG-10_nul": "evil.test\x00.api.good.test", "EG-11_space": "api.good.test evil.test", "EG-11_line_end": "api.good.test\r\n",
		"EG-12_encoded_dot": "api.good.test%2e", "EG-14_fullwidth": "ａpi.good.test", "EG-13_userinfo": "x@api.good.test",
	} {
		rows[name+"_in_sni"] = both(inTunnel(good+":443", hello{names: []string{sni}}.bytes()), misdirected)
	}
	for name, r := range rows {
		// In shadow the reason of a bound host's refusal is the authority rule.
		if name == "EG-66_bound_host_in_clear" {
			r.shadow = denied(403, enforcers.CodeNeedsAuthority)
			rows[name] = r
		}
	}
	for name, chain := range map[string]func(*issuer) (*tls.Certificate, error){
		"EG-67_other_name":     func(i *issuer) (*tls.Certificate, error) { return i.issue("evil.test") },
		"EG-67_unknown_issuer": func(*issuer) (*tls.Certificate, error) { return stranger.issue(good) },
	} {
		rows[name] = row{
			do: connect(good), hard: stopped(502, enforcers.CodeTLS).dialed(1), shadow: stopped(502, enforcers.CodeTLS).dialed(1),
			setup: func(t *testing.T, o *outside, _ *setup) { o.present(t, chain) },
		}
	}
	return rows
}

func inTunnelHTTP(target, text string) func(*inside) reply {
	return func(in *inside) reply {
		c, r, re := in.tunnel(target)
		if re.status != http.StatusOK {
			return re
		}
		if _, err := io.WriteString(c, text); err != nil {
			return reply{err: err}
		}
		return read(r, "GET")
	}
}

// inTunnelHalf sends text, ends its direction and reads what comes back.
func inTunnelHalf(target, text string) func(*inside) reply {
	return func(in *inside) reply {
		c, r, re := in.tunnel(target)
		if re.status != http.StatusOK {
			return re
		}
		_, _ = io.WriteString(c, text)
		_ = c.(*net.UnixConn).CloseWrite()
		back, err := io.ReadAll(r)
		if err != nil || string(back) != text {
			return reply{status: -1, body: string(back), err: err}
		}
		return reply{}
	}
}

// encryptedHello connects with ECH: the outer name is the tunnel's, the inner
// one would be evil.test.
func encryptedHello(public string) func(*inside) reply {
	return func(in *inside) reply {
		c, _, re := in.tunnel(public + ":443")
		if re.status != http.StatusOK {
			return re
		}
		t := tls.Client(c, &tls.Config{
			ServerName: "evil.test", RootCAs: in.roots, MinVersion: tls.VersionTLS13,
			EncryptedClientHelloConfigList: echConfig(in.t, public),
		})
		err := t.Handshake()
		var rejected *tls.ECHRejectionError
		if !errors.As(err, &rejected) {
			return reply{status: -1, err: err}
		}
		return reply{err: err}
	}
}

// TestBypassMatrixSlowClients shows that a client that stalls loses its connection and
// that the slot it held serves the next one.
func TestBypassMatrixSlowClients(t *testing.T) {
	o := newOutside(t)
	const soon = 200 * time.Millisecond
	quick := door.Timeouts{First: soon, Head: soon, Handshake: soon}
	full := hello{names: []string{"api.good.test"}}.bytes()
	for name, do := range map[string]func(in *inside) net.Conn{
		"EG-65_nothing":       func(in *inside) net.Conn { return in.dial() }, // EG-106: no line
		"EG-65_half_head":     func(in *inside) net.Conn { c := in.dial(); _, _ = io.WriteString(c, "CONNECT api.g"); return c },
		"EG-65_silent_tunnel": func(in *inside) net.Conn { c, _, _ := in.tunnel("api.good.test:443"); return c },
		"EG-65_half_hello": func(in *inside) net.Conn {
			c, _, _ := in.tunnel("api.good.test:443")
			_, _ = c.Write(full[:20])
			return c
		},
		"EG-65_half_hello_through": func(in *inside) net.Conn {
			c, _, _ := in.tunnel("pass.good.test:443")
			_, _ = c.Write(full[:20])
			return c
		},
		"EG-65_half_inner_head": func(in *inside) net.Conn {
			c, _, re := in.secure("api.good.test:443", "api.good.test")
			if c == nil {
				in.t.Fatal(re.err)
			}
			_, _ = io.WriteString(c, "GET / HT")
			return c
		},
		"EG-65_dns_without_message": func(in *inside) net.Conn { c, _, _ := in.tunnel("gatehouse-dns:53"); return c },
	} {
		for _, mode := range modes {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				in := open(t, o, setup{mode: mode, timeouts: quick})
				from := in.mark()
				c := do(in)
				if c == nil {
					t.Fatal("the tunnel did not open")
				}
				if _, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, net.ErrClosed) {
					t.Fatal(err)
				}
				in.hangUp()
				if all := in.rec.all(); len(all) == 0 { // nothing was asked for yet
					if after := in.mark(); after != from {
						t.Errorf("something reached the outside: %+v", after)
					}
				} else {
					_, out := in.rec.last()
					w := stopped(0, out.Code).asked(0)
					switch out.Code {
					case enforcers.CodeClientGone, enforcers.CodeClientTLS, enforcers.CodeNotHTTP, enforcers.CodeTerminated:
					default:
						t.Errorf("the tunnel's end is called %q", out.Code)
					}
					if strings.HasSuffix(name, "_through") {
						w.rule = "egress[8]"
					}
					in.expect(t, from, reply{}, w)
				}
				from = in.mark()
				w := denied(403, "host_not_listed")
				if mode == receipts.Shadow {
					w.code = enforcers.CodePort
				}
				in.expect(t, from, rawConnect("evil.test:22")(in), w) // the slot serves the next
				in.covered(t)
			})
		}
	}
}

// TestSlowBody shows that a body that stops coming ends its request.
func TestSlowBody(t *testing.T) {
	o := newOutside(t)
	in := open(t, o, setup{timeouts: door.Timeouts{Body: 50 * time.Millisecond}})
	re := in.https("api.good.test:443", "api.good.test", "POST /v1/x HTTP/1.1\r\nHost: api.good.test\r\nContent-Length: 10\r\n\r\nhalf")
	if re.status != http.StatusRequestTimeout || !strings.Contains(re.body, enforcers.CodeClientSlow) {
		t.Errorf("client saw %d %s %v", re.status, re.body, re.err)
	}
}
