package upstream_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// http2 has the outside speak HTTP/2 on port 8443.
func (o *outside) http2(t *testing.T) {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.seen = append(o.seen, r)
		h := o.handler
		o.mu.Unlock()
		if h != nil {
			h(w, r)
		}
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	o.dev.Upstreams[netip.AddrPortFrom(netip.MustParseAddr(public), 8443)] = netip.MustParseAddrPort(srv.Listener.Addr().String())
}

// bearer adds a credential to every request.
type bearer struct{ secret.Value }

func (b bearer) Inject(_ context.Context, _ *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	r.Header.Set("Authorization", "Bearer "+string(b.Reveal()))
	return []secret.Value{b.Value}, nil
}

// TestTrailer: EG-76, EG-108. A trailer is a head that comes late: what may not
// come in by a field does not come in by one of those, in HTTP/1.1 and HTTP/2.
func TestTrailer(t *testing.T) {
	const canary = "canary-0123456789"
	o := newOutside(t)
	o.http2(t)
	c := newClient(t, o, func(op *upstream.Options) { op.Inject = bearer{secret.FromString(canary)} })
	for name, row := range map[string]struct {
		value func(*http.Request) string
		code  string
		ended bool
	}{
		"EG-76_credential":  {func(r *http.Request) string { return r.Header.Get("Authorization") }, enforcers.CodeReflected, true},
		"EG-108_signed_url": {func(*http.Request) string { return "https://cdn.test/x?sig=0123456789" }, enforcers.CodeAnswerCredential, false},
		"harmless":          {func(*http.Request) string { return "sha256=0123456789" }, "", false},
	} {
		for protocol, host := range map[string]string{"HTTP/1.1": "example.com", "HTTP/2.0": "example.com:8443"} {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				spoke := make(chan string, 1)
				o.handle(func(w http.ResponseWriter, r *http.Request) {
					spoke <- r.Proto
					w.Header().Set("Trailer", "X-Last, Gatehouse-Receipt, Set-Cookie")
					w.Header().Set("Content-Type", "application/octet-stream")
					_, _ = io.WriteString(w, "the body")
					w.Header().Set("X-Last", row.value(r))
					w.Header().Set("Gatehouse-Receipt", "another")
					w.Header().Set("Set-Cookie", "session=1")
				})
				s := newSession("s-"+strings.ReplaceAll(name, "_", "-"), receipts.Hard, enforcers.Allow, enforcers.Grant{Connection: "main"})
				p := s.permitFor(t, http.MethodGet, "https://"+host+"/x", "main")
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://wherever.test/", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.Do(p, r)
				if err != nil {
					t.Fatal(err)
				}
				for _, field := range []string{"Gatehouse-Receipt", "Set-Cookie"} {
					if _, ok := resp.Trailer[field]; ok {
						t.Errorf("%s would be relayed", field)
					}
				}
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				code := ""
				if err != nil {
					code = string(problem.CodeOf(err))
				}
				if code != row.code || s.log.outcome(t).Code != row.code || (s.gate.Context().Err() != nil) != row.ended {
					t.Errorf("read to its end: %v, outcome %+v", err, s.log.outcome(t))
				}
				if row.code == "" && resp.Trailer.Get("X-Last") == "" {
					t.Error("no trailer")
				}
				if got := <-spoke; got != protocol {
					t.Errorf("over %s", got)
				}
			})
		}
	}
}
