package upstream_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// plain is a request that names another place in every field it has.
func plain(body string) *http.Request {
	r := httptest.NewRequest("GET", "http://evil.test:81/elsewhere?x", strings.NewReader(body))
	r.Host = "evil.test"
	r.RequestURI = "/elsewhere"
	return r
}

func do(t *testing.T, c *upstream.Client, p *enforcers.Permit, r *http.Request) (string, error) {
	t.Helper()
	resp, err := c.Do(p, r)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return string(b), err
}

// TestPermits: what is not a live, unused Permit dials nothing.
func TestPermits(t *testing.T) {
	o := newOutside(t)
	c := newClient(t, o, nil)
	s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{})
	genuine := s.permit(t, "https://example.com/x", "")
	clone := reflect.New(reflect.TypeFor[enforcers.Permit]())
	clone.Elem().Set(reflect.ValueOf(genuine).Elem())
	mine := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{})
	used, cut := mine.permit(t, "https://example.com/x", ""), mine.permit(t, "https://example.com/x", "")
	if err := errors.Join(used.Use(), cut.Use()); err != nil {
		t.Fatal(err)
	}
	old := s.permit(t, "https://example.com/x", "")
	s.gate.Swap(enforcers.Policy{})
	other := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{})
	ended := other.permit(t, "https://example.com/x", "")
	other.gate.Revoke(enforcers.CodeRevoked)

	for name, c2 := range map[string]struct {
		p    *enforcers.Permit
		code string
	}{
		"nil": {nil, enforcers.CodePermit}, "zero": {new(enforcers.Permit), enforcers.CodePermit},
		"copied": {clone.Interface().(*enforcers.Permit), enforcers.CodePermit}, "used": {used, enforcers.CodePermit},
		"other_generation": {old, enforcers.CodeGeneration}, "revoked_session": {ended, enforcers.CodeRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.Do(c2.p, plain("")); string(problem.CodeOf(err)) != c2.code {
				t.Errorf("Do: %v", err)
			}
			if _, err := c.Dial(t.Context(), c2.p); err == nil {
				t.Error("Dial succeeded")
			}
		})
	}
	if o.accepts.Load() != 0 || o.queries.Load() != 0 {
		t.Errorf("%d connections, %d questions", o.accepts.Load(), o.queries.Load())
	}
	if out := s.log.outcome(t); out != (enforcers.Outcome{Effect: enforcers.NotForwarded, Code: enforcers.CodeGeneration}) {
		t.Errorf("%+v", out)
	}
	// The outcome of a permit in somebody else's hands is not ours to write.
	mine.gate.Revoke(enforcers.CodeRevoked)
	if _, err := c.Do(cut, plain("")); err == nil {
		t.Error("a permit in use was used again")
	}
	cut.Done(enforcers.Outcome{Effect: enforcers.Forwarded})
	if out := mine.log.outcome(t); out.Effect != enforcers.Forwarded {
		t.Errorf("%+v", out)
	}
}

// TestDo: where a request goes and what it says come from the Permit.
func TestDo(t *testing.T) {
	o := newOutside(t)
	c := newClient(t, o, nil)
	s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{})
	for _, scheme := range []string{"https", "http"} {
		r := plain("hello")
		r.Header.Set("Connection", "X-Hop")
		r.Header.Set("X-Hop", "1")
		r.Header.Set("Proxy-Authorization", "Basic eA==")
		r.Header.Set("X-End", "2")
		got, err := do(t, c, s.permit(t, scheme+"://example.com/a%2Fb", ""), r)
		if err != nil || got != "POST /a%2Fb?q=1 5" {
			t.Errorf("%q %v", got, err)
		}
		sent := o.last()
		if sent.Host != "example.com" || sent.Header.Get("X-Hop") != "" || sent.Header.Get("Proxy-Authorization") != "" ||
			sent.Header.Get("X-End") != "2" || len(sent.Header["User-Agent"]) != 0 {
			t.Errorf("%s %v", sent.Host, sent.Header)
		}
		out := s.log.outcome(t)
		if out.Effect != enforcers.Forwarded || out.Status != 200 || out.Address != public || out.Up < 40 || out.Down < 40 || out.Code != "" {
			t.Errorf("%+v", out)
		}
		if r.Host != "evil.test" || r.Header.Get("X-Hop") == "" {
			t.Error("the caller's request was changed")
		}
	}
	if _, err := c.Do(s.tunnel(t), plain("")); string(problem.CodeOf(err)) != enforcers.CodePermit {
		t.Errorf("a tunnel's permit carried a request: %v", err)
	}
}

// TestFailures: what can go wrong and what the outcome says then.
func TestFailures(t *testing.T) {
	o := newOutside(t)
	leaving, leave := context.WithCancel(context.Background())
	defer leave()
	for name, c := range map[string]struct {
		url     string
		handler http.HandlerFunc
		options func(*upstream.Options)
		grant   enforcers.Grant
		request func() *http.Request
		effect  string
		code    string
		reading bool // the error comes while the body is read
	}{
		"nobody_listens": {
			url: "https://example.com:8443/", effect: enforcers.NotForwarded, code: enforcers.CodeConnect,
			options: func(o *upstream.Options) {
				m := map[netip.AddrPort]netip.AddrPort{netip.MustParseAddrPort(public + ":8443"): netip.MustParseAddrPort("127.0.0.1:1")}
				o.Dev = &upstream.Dev{Upstreams: m, DNS: o.Dev.DNS, Roots: o.Dev.Roots}
			},
		},
		"EG-67_other_name": {url: "https://other.test/", effect: enforcers.NotForwarded, code: enforcers.CodeTLS},
		"EG-67_system_roots_do_not_trust": {
			url: "https://example.com/", effect: enforcers.NotForwarded, code: enforcers.CodeTLS,
			options: func(o *upstream.Options) {
				o.Dev = &upstream.Dev{Upstreams: o.Dev.Upstreams, DNS: o.Dev.DNS, Roots: x509.NewCertPool()}
			},
		},
		"slow_head": {
			url: "http://example.com/", effect: enforcers.Unknown, code: enforcers.CodeTimeout,
			options: func(o *upstream.Options) { o.Timeouts.Header = 50 * time.Millisecond },
			handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		},
		"no_tls_handshake": {
			url: "https://example.com:5432/", effect: enforcers.NotForwarded, code: enforcers.CodeTLS, // an echo is no server
		},
		"breaks_off": {
			url: "http://example.com/", effect: enforcers.Unknown, code: enforcers.CodeProtocol,
			handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		},
		"breaks_off_later": {
			url: "http://example.com/", effect: enforcers.Forwarded, code: enforcers.CodeProtocol, reading: true,
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "10")
				_, _ = io.WriteString(w, "half")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			},
		},
		"download_cap": {
			url: "http://example.com/", effect: enforcers.Forwarded, code: enforcers.CodeDownCap, reading: true,
			grant:   enforcers.Grant{Limits: enforcers.Limits{Down: 100}},
			handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 101)) },
		},
		"EG-93_upload_cap_declared": {
			url: "http://example.com/", effect: enforcers.NotForwarded, code: enforcers.CodeUpCap,
			grant:   enforcers.Grant{Limits: enforcers.Limits{Up: 4}},
			request: func() *http.Request { return plain("hello") },
		},
		"EG-93_upload_cap_streamed": {
			url: "http://example.com/", effect: enforcers.Unknown, code: enforcers.CodeUpCap,
			grant: enforcers.Grant{Limits: enforcers.Limits{Up: 4}},
			request: func() *http.Request {
				r := plain("hello")
				r.ContentLength = -1
				return r
			},
		},
		"silent_stream": {
			url: "http://example.com/", effect: enforcers.Forwarded, code: enforcers.CodeTimeout, reading: true,
			grant: enforcers.Grant{Limits: enforcers.Limits{Idle: 500 * time.Millisecond}},
			handler: func(w http.ResponseWriter, r *http.Request) {
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			},
		},
		"client_gone": {
			url: "http://example.com/gone", effect: enforcers.Unknown, code: enforcers.CodeClientGone,
			request: func() *http.Request {
				return plain("").WithContext(leaving)
			},
			handler: func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/gone" {
					return // of a case before, whose client did not wait for it
				}
				leave() // the request has arrived
				<-r.Context().Done()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o.handle(c.handler)
			client := newClient(t, o, c.options)
			s := newSession("s", receipts.Hard, enforcers.Allow, c.grant)
			r := plain("")
			if c.request != nil {
				r = c.request()
			}
			resp, err := client.Do(s.permit(t, c.url, ""), r)
			if c.reading {
				if err != nil {
					t.Fatal(err)
				}
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if string(problem.CodeOf(err)) != c.code {
				t.Errorf("%v, want %s", err, c.code)
			}
			if out := s.log.outcome(t); out.Effect != c.effect || out.Code != c.code {
				t.Errorf("outcome %+v, want %s %s", out, c.effect, c.code)
			}
		})
	}
}

// TestProgress: a long answer leaves receipts on its way, and stops when one
// cannot be written.
func TestProgress(t *testing.T) {
	o := newOutside(t)
	o.handle(func(w http.ResponseWriter, _ *http.Request) {
		b := make([]byte, 1<<20)
		for range 4 {
			_, _ = w.Write(b)
		}
	})
	c := newClient(t, o, nil)
	s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{})
	if got, err := do(t, c, s.permit(t, "http://example.com/", ""), plain("")); err != nil || len(got) != 4<<20 {
		t.Fatalf("%d %v", len(got), err)
	}
	if n := len(s.log.progress); n < 3 || n > 4 || s.log.progress[0].Down < 1<<20 || s.log.progress[0].Effect != enforcers.Forwarded {
		t.Errorf("%d progress receipts: %+v", n, s.log.progress)
	}
	if out := s.log.outcome(t); out.Down < 4<<20 {
		t.Errorf("%+v", out)
	}
	s.log.broken = errors.New("disk full")
	got, err := do(t, c, s.permit(t, "http://example.com/", ""), plain(""))
	if string(problem.CodeOf(err)) != enforcers.CodeReceiptUnavailable || len(got) > 1<<20+64<<10 {
		t.Errorf("%d bytes passed without a receipt: %v", len(got), err)
	}
}

// inject adds a credential and remembers that it was asked.
type inject struct {
	calls int
	err   error
}

func (i *inject) Inject(_ context.Context, _ *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	i.calls++
	if i.err != nil {
		return nil, i.err
	}
	r.Header.Set("Authorization", "Bearer canary")
	return nil, nil
}

// TestInjection: a credential is added for an allowed action that names its
// connection, over verified TLS, and in no other case.
func TestInjection(t *testing.T) {
	o := newOutside(t)
	for name, c := range map[string]struct {
		url        string
		mode       receipts.Mode
		effect     enforcers.Effect
		connection string
		granted    string
		err        error
		injected   bool
		code       string
	}{
		"allowed":          {url: "https://example.com/", effect: enforcers.Allow, connection: "main", granted: "main", injected: true},
		"no_connection":    {url: "https://example.com/", effect: enforcers.Allow, granted: "main"},
		"would_block":      {url: "https://example.com/", mode: receipts.Shadow, effect: enforcers.Deny},
		"other_rule":       {url: "https://example.com/", effect: enforcers.Allow, connection: "main", granted: "other", code: enforcers.CodeCredential},
		"EG-66_cleartext":  {url: "http://example.com/", effect: enforcers.Allow, connection: "main", granted: "main", code: enforcers.CodeCredential},
		"EG-67_other_name": {url: "https://other.test/", effect: enforcers.Allow, connection: "main", granted: "main", code: enforcers.CodeTLS},
		"store_is_down":    {url: "https://example.com/", effect: enforcers.Allow, connection: "main", granted: "main", err: errors.New("locked"), code: enforcers.CodeCredential},
	} {
		t.Run(name, func(t *testing.T) {
			in := &inject{err: c.err}
			client := newClient(t, o, func(o *upstream.Options) { o.Inject = in })
			if c.mode == "" {
				c.mode = receipts.Hard
			}
			s := newSession("s", c.mode, c.effect, enforcers.Grant{Connection: c.granted})
			before := len(o.seen)
			_, err := do(t, client, s.permit(t, c.url, c.connection), plain(""))
			code := ""
			if err != nil {
				code = string(problem.CodeOf(err))
			}
			if code != c.code {
				t.Errorf("%v, want %q", err, c.code)
			}
			if (in.calls > 0) != (c.injected || c.err != nil) {
				t.Errorf("asked %d times for the credential", in.calls)
			}
			out := s.log.outcome(t)
			if c.code != "" {
				if out.Effect != enforcers.NotForwarded || len(o.seen) != before {
					t.Errorf("%+v, and %d requests", out, len(o.seen)-before)
				}
				return
			}
			if got := o.last().Header.Get("Authorization"); (got != "") != c.injected {
				t.Errorf("outside saw %q", got)
			}
		})
	}
	t.Run("nothing_configured", func(t *testing.T) {
		s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{Connection: "main"})
		_, err := do(t, newClient(t, o, nil), s.permit(t, "https://example.com/", "main"), plain(""))
		if string(problem.CodeOf(err)) != enforcers.CodeCredential {
			t.Error(err)
		}
	})
}

// TestPool: who shares a connection.
func TestPool(t *testing.T) {
	o := newOutside(t)
	c := newClient(t, o, nil)
	a := newSession("a", receipts.Hard, enforcers.Allow, enforcers.Grant{})
	b := newSession("b", receipts.Hard, enforcers.Allow, enforcers.Grant{})
	fetch := func(t *testing.T, s *session, url string) int64 {
		t.Helper()
		before := o.accepts.Load()
		if _, err := do(t, c, s.permit(t, url, ""), plain("")); err != nil {
			t.Fatal(err)
		}
		return o.accepts.Load() - before
	}
	for _, step := range []struct {
		name string
		do   func()
		s    *session
		url  string
		want int64
	}{
		{"first", nil, a, "https://example.com/1", 1},
		{"same_session", nil, a, "https://example.com/2", 0},
		{"EG-69_other_session", nil, b, "https://example.com/1", 1},
		{"other_scheme", nil, a, "http://example.com/1", 1},
		{"EG-100_other_generation", func() {
			a.gate.Swap(enforcers.Policy{Enforcers: []enforcers.Bound{{Enforcer: judge{enforcers.Allow}, Mode: receipts.Hard, Builtin: true}}})
		}, a, "https://example.com/3", 1},
		{"still_pooled", nil, b, "https://example.com/2", 0},
	} {
		if step.do != nil {
			step.do()
		}
		if got := fetch(t, step.s, step.url); got != step.want {
			t.Errorf("%s: %d new connections, want %d", step.name, got, step.want)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := fetch(t, b, "https://example.com/4"); got != 1 {
		t.Errorf("after Close: %d", got)
	}
}

// TestStaleConnection: a pooled connection that the server has given up in the
// meantime is replaced for a request that has no effect, and for no other.
func TestStaleConnection(t *testing.T) {
	o := newOutside(t)
	c := newClient(t, o, nil)
	s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{})
	arrived := map[string]int{}
	o.handle(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		arrived[r.Method]++
		o.mu.Unlock()
		nc, _, err := w.(http.Hijacker).Hijack()
		if err == nil { // says that it stays, and leaves
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_ = nc.Close()
		}
	})
	const rounds = 20
	sent := map[string]int{}
	for i := range rounds {
		for _, method := range []string{"GET", "POST"} {
			r := plain("")
			r.Body = http.NoBody
			_, err := do(t, c, s.permitFor(t, method, "http://example.com/", ""), r)
			if method == "GET" && err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			out := s.log.outcome(t)
			if out.Effect == enforcers.Forwarded {
				sent[method]++
			}
			if err != nil && out.Effect == enforcers.Forwarded {
				t.Errorf("%v and %+v", err, out)
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if sent["GET"] != rounds || arrived["GET"] < rounds {
		t.Errorf("%d of %d GETs answered, %d arrived", sent["GET"], rounds, arrived["GET"])
	}
	if arrived["POST"] > rounds {
		t.Errorf("%d POSTs arrived of %d", arrived["POST"], rounds)
	}
}

// TestDial: a blind tunnel is counted, capped and cut.
func TestDial(t *testing.T) {
	o := newOutside(t)
	c := newClient(t, o, nil)
	t.Run("counted", func(t *testing.T) {
		s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{})
		nc, err := c.Dial(t.Context(), s.tunnel(t))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(nc, "hello")
		if err := nc.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(nc); string(b) != "hello" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		_ = nc.Close()
		_ = nc.Close()
		if out := s.log.outcome(t); out != (enforcers.Outcome{Effect: enforcers.Forwarded, Address: public, Up: 5, Down: 5}) {
			t.Errorf("%+v", out)
		}
	})
	t.Run("capped", func(t *testing.T) {
		s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{Limits: enforcers.Limits{Up: 4}})
		nc, err := c.Dial(t.Context(), s.tunnel(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(nc, "hello"); string(problem.CodeOf(err)) != enforcers.CodeUpCap {
			t.Error(err)
		}
		if out := s.log.outcome(t); out.Code != enforcers.CodeUpCap {
			t.Errorf("%+v", out)
		}
	})
	t.Run("idle", func(t *testing.T) {
		s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{Limits: enforcers.Limits{Idle: 20 * time.Millisecond}})
		nc, err := c.Dial(t.Context(), s.tunnel(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(nc); err == nil {
			t.Error("it lived on")
		}
		if out := s.log.outcome(t); out.Code != enforcers.CodeTimeout {
			t.Errorf("%+v", out)
		}
	})
	t.Run("EG-70_cut", func(t *testing.T) {
		s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{})
		nc, err := c.Dial(t.Context(), s.tunnel(t))
		if err != nil {
			t.Fatal(err)
		}
		s.gate.Revoke(enforcers.CodeRevoked)
		if _, err := io.ReadAll(nc); err == nil {
			t.Error("it lived on")
		}
		if out := s.log.outcome(t); out.Code != enforcers.CodeRevoked {
			t.Errorf("%+v", out)
		}
	})
	t.Run("refused", func(t *testing.T) {
		s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{Addresses: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")}})
		if _, err := c.Dial(t.Context(), s.tunnel(t)); string(problem.CodeOf(err)) != enforcers.CodeAddressNotListed {
			t.Error(err)
		}
		if out := s.log.outcome(t); out.Effect != enforcers.NotForwarded {
			t.Errorf("%+v", out)
		}
	})
}
