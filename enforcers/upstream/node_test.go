package upstream_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// TestNode: the node's own calls go to one place, with a receipt each.
func TestNode(t *testing.T) {
	o := newOutside(t)
	c := newClient(t, o, nil)
	place := func(s string) authority.Authority {
		scheme, rest, _ := strings.Cut(s, "://")
		a, err := authority.ParseHostHeader(scheme, rest)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var begun []string
	var outcomes []enforcers.Outcome
	var broken error
	begin := func(_ context.Context, method string) (func(enforcers.Outcome), error) {
		begun = append(begun, method)
		return func(o enforcers.Outcome) { outcomes = append(outcomes, o) }, broken
	}
	n, err := c.Node(upstream.NodeOptions{Purpose: "scm.mint", To: place("https://example.com"), Begin: begin})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: n}
	resp, err := client.Post("https://example.com/app/x", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	_ = resp.Body.Close()
	if string(b) != "POST /app/x 5" || len(begun) != 1 || len(outcomes) != 1 {
		t.Fatalf("%q %v %v", b, begun, outcomes)
	}
	if out := outcomes[0]; out.Effect != enforcers.Forwarded || out.Status != 200 || out.Address != public || out.Up < 5 || out.Down < 13 {
		t.Errorf("%+v", out)
	}

	accepts, queries := o.accepts.Load(), o.queries.Load()
	for name, url := range map[string]string{
		"other_host": "https://evil.test/", "other_port": "https://example.com:8443/", "other_scheme": "http://example.com/", "userinfo": "https://u:p@evil.test/",
	} {
		if _, err := client.Get(url); string(problem.CodeOf(err)) != enforcers.CodePermit {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.handle(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://evil.test/", http.StatusFound)
	})
	if _, err := client.Get("https://example.com/"); string(problem.CodeOf(err)) != enforcers.CodePermit {
		t.Errorf("a redirect was followed: %v", err)
	}
	broken = errors.New("disk full")
	if _, err := client.Get("https://example.com/"); string(problem.CodeOf(err)) != enforcers.CodeReceiptUnavailable {
		t.Errorf("without a receipt: %v", err)
	}
	if o.accepts.Load() != accepts || o.queries.Load() != queries {
		t.Error("a refused call reached the outside")
	}
	broken = nil
	for name, wrong := range map[string]upstream.NodeOptions{
		"no_purpose": {To: place("https://example.com"), Begin: begin}, "no_receipt": {Purpose: "x", To: place("https://example.com")},
		"nowhere": {Purpose: "x", Begin: begin},
	} {
		if _, err := c.Node(wrong); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	other, err := c.Node(upstream.NodeOptions{Purpose: "x", To: place("https://other.test"), Begin: begin})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&http.Client{Transport: other}).Get("https://other.test/"); string(problem.CodeOf(err)) != enforcers.CodeTLS {
		t.Errorf("EG-67: %v", err)
	}
	if out := outcomes[len(outcomes)-1]; out.Effect != enforcers.NotForwarded || out.Code != enforcers.CodeTLS {
		t.Errorf("%+v", out)
	}
}

// TestNodeWaits: a place that does not answer a node's call in time took too long;
// it did not answer nonsense.
func TestNodeWaits(t *testing.T) {
	o := newOutside(t)
	c := newClient(t, o, func(o *upstream.Options) { o.Timeouts.Header = 50 * time.Millisecond })
	to, err := authority.ParseHostHeader("https", "example.com")
	if err != nil {
		t.Fatal(err)
	}
	var out enforcers.Outcome
	n, err := c.Node(upstream.NodeOptions{Purpose: "oidc", To: to, Begin: func(context.Context, string) (func(enforcers.Outcome), error) {
		return func(o enforcers.Outcome) { out = o }, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	o.handle(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err = (&http.Client{Transport: n}).Get("https://example.com/")
	if string(problem.CodeOf(err)) != enforcers.CodeTimeout || out.Code != enforcers.CodeTimeout || out.Effect != enforcers.Unknown {
		t.Errorf("%v, %+v", err, out)
	}
}

// TestNodeInjects: a node's call carries its connection's credential, to that
// connection's host alone, and without it nothing leaves.
func TestNodeInjects(t *testing.T) {
	o := newOutside(t)
	c := newClient(t, o, nil)
	to, err := authority.ParseHostHeader("https", "example.com")
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []enforcers.Outcome
	begin := func(context.Context, string) (func(enforcers.Outcome), error) {
		return func(o enforcers.Outcome) { outcomes = append(outcomes, o) }, nil
	}
	var missing error
	own, err := upstream.NewConnections([]upstream.Credential{{Name: "hooks", To: to, Scheme: "bearer", Secret: func(context.Context) (secret.Value, error) {
		return secret.FromString("canary-credential"), missing
	}}})
	if err != nil {
		t.Fatal(err)
	}
	client := func(connection string) *http.Client {
		n, err := c.Node(upstream.NodeOptions{Purpose: "operation", To: to, Begin: begin, Inject: own.Own(connection)})
		if err != nil {
			t.Fatal(err)
		}
		return &http.Client{Transport: n}
	}
	resp, err := client("hooks").Get("https://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := o.last().Header.Get("Authorization"); got != "Bearer canary-credential" {
		t.Errorf("it went out with %q", got)
	}
	if _, err := client("other").Get("https://example.com/"); string(problem.CodeOf(err)) != enforcers.CodeCredential {
		t.Errorf("another connection's: %v", err)
	}
	missing = errors.New("the store is closed")
	if _, err := client("hooks").Get("https://example.com/"); string(problem.CodeOf(err)) != enforcers.CodeCredential {
		t.Errorf("without it: %v", err)
	}
	for _, out := range outcomes[1:] {
		if out.Effect != enforcers.NotForwarded || out.Code != enforcers.CodeCredential {
			t.Errorf("%+v", out)
		}
	}
}
