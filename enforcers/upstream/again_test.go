package upstream_test

import (
	"context"
	"net/http"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// TestQueryCredentialOnce: a request that is sent once more, because its kept
// connection had ended, carries the credential in its query once.
func TestQueryCredentialOnce(t *testing.T) {
	o := newOutside(t)
	to, err := authority.New(authority.HTTPS, "example.com", 443)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := upstream.NewConnections([]upstream.Credential{{
		Name: "main", To: to, Scheme: "query", Field: "key",
		Secret: func(context.Context) (secret.Value, error) { return secret.FromString("canary-0123456789"), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, o, func(opts *upstream.Options) { opts.Inject = cs })
	s := newSession("s", receipts.Hard, enforcers.Allow, enforcers.Grant{Connection: "main"})
	calls := 0
	o.handle(func(http.ResponseWriter, *http.Request) {
		o.mu.Lock()
		calls++
		broken := calls == 2
		o.mu.Unlock()
		if broken {
			panic(http.ErrAbortHandler)
		}
	})
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://wherever.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(s.permitFor(t, http.MethodGet, "https://example.com/x", "main"), r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		s.log.outcome(t)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.seen) != 3 {
		t.Fatalf("%d requests outside, want the second one twice", len(o.seen))
	}
	for _, r := range o.seen {
		if r.RequestURI != "/x?q=1&key=canary-0123456789" {
			t.Errorf("outside saw %s", r.RequestURI)
		}
	}
}
