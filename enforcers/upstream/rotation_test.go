package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
)

// TestRotation: a secret that changes while a request is in flight. The request
// keeps the one it began with, whole; the next has the new one; neither is mixed.
func TestRotation(t *testing.T) {
	t.Run("NE-15_rotated_in_flight", func(t *testing.T) {
		o := newOutside(t)
		c := newClient(t, o, nil)
		to, err := authority.ParseHostHeader("https", "example.com")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var sent []string
		arrived, goOn := make(chan struct{}), make(chan struct{})
		o.handle(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			sent = append(sent, r.Header.Get("Authorization"))
			first := len(sent) == 1
			mu.Unlock()
			if first {
				close(arrived)
				<-goOn
			}
			fmt.Fprint(w, "done")
		})
		value := "canary-first-credential"
		cs, err := upstream.NewConnections([]upstream.Credential{{Name: "a", To: to, Scheme: "bearer", Secret: func(context.Context) (secret.Value, error) {
			mu.Lock()
			defer mu.Unlock()
			return secret.FromString(value), nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		n, err := c.Node(upstream.NodeOptions{Purpose: "operation", To: to, Inject: cs.Own("a"),
			Begin: func(context.Context, string) (func(enforcers.Outcome), error) { return func(enforcers.Outcome) {}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		get := func() error {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/", nil)
			if err != nil {
				return err
			}
			resp, err := n.RoundTrip(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		}
		done := make(chan error, 1)
		go func() { done <- get() }()
		<-arrived
		mu.Lock()
		value = "canary-second-credential"
		mu.Unlock()
		second := get()
		close(goOn)
		if err := <-done; err != nil || second != nil {
			t.Fatalf("%v, %v", err, second)
		}
		if len(sent) != 2 || sent[0] != "Bearer canary-first-credential" || sent[1] != "Bearer canary-second-credential" {
			t.Errorf("sent %q", sent)
		}
	})
}
