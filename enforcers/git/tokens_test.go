//go:build linux

package git_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/enforcers/git"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// issuer is a host that mints, a journal that keeps, and a chain.
type issuer struct {
	mu       sync.Mutex
	now      time.Time
	n        int
	asked    []string // "<repository> <access>"
	live     map[string]bool
	kept     [][]byte
	receipts []string // "issued|revoked|pending <repository> <access>"
	down     bool     // the host does not answer a revocation
	full     bool     // nothing can be kept
}

func (i *issuer) options() git.CredentialOptions {
	to, _ := authority.New(authority.HTTPS, "git.good.test", 443)
	return git.CredentialOptions{
		Connection: "github-main", Git: to,
		Clock: func() time.Time { i.mu.Lock(); defer i.mu.Unlock(); return i.now },
		Mint: func(_ context.Context, r git.Repository, a git.Access) (git.Token, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.n++
			v := fmt.Sprintf("ghs_token%04d", i.n)
			i.asked = append(i.asked, r.ID+" "+string(a))
			i.live[v] = true
			return git.Token{Value: secret.FromString(v), Scope: map[string]string{"repository.id": r.ID}, Expires: i.now.Add(time.Hour)}, nil
		},
		Revoke: func(_ context.Context, v secret.Value) error {
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.down {
				return errors.New("host is down")
			}
			delete(i.live, string(v.Reveal()))
			return nil
		},
		Keep: func(_ context.Context, b []byte) error {
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.full {
				return errors.New("disk full")
			}
			i.kept = append(i.kept, slices.Clone(b))
			return nil
		},
		Receipt: func(_ context.Context, _ string, c receipts.Credential, _ bool) error {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.receipts = append(i.receipts, c.Result+" "+c.Scope["repository.id"]+" "+c.Scope["access"])
			return nil
		},
	}
}

func newIssuer() *issuer {
	return &issuer{now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), live: map[string]bool{}}
}

// staticOptions are those of a connection that has one credential.
func staticOptions() git.CredentialOptions {
	o := newIssuer().options()
	o.Mint, o.Revoke, o.Static = nil, nil, secret.FromString("glpat-canary")
	return o
}

func credentials(t *testing.T, i *issuer) *git.Credentials {
	t.Helper()
	c, err := git.NewCredentials(i.options())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTokens(t *testing.T) {
	shop, docs := git.Repository{ID: shopID, Name: "acme/shop"}, git.Repository{ID: docsID, Name: "acme/docs"}
	token := func(t *testing.T, c *git.Credentials, repository string, a git.Access) string {
		t.Helper()
		v, err := c.Token(t.Context(), "s-1", repository, a)
		if err != nil {
			t.Fatal(err)
		}
		return string(v.Reveal())
	}
	t.Run("one_for_each_repository_and_access", func(t *testing.T) {
		i := newIssuer()
		c := credentials(t, i)
		c.Open("s-1", shop, []git.Repository{docs})
		for range 3 {
			token(t, c, shopID, git.Read)
			token(t, c, shopID, git.Write)
			token(t, c, docsID, git.Read)
			token(t, c, "", git.Read)
		}
		if diff := cmp.Diff([]string{"1001 read", "1001 write", "1002 read"}, i.asked); diff != "" {
			t.Errorf("minted (-want +got):\n%s", diff)
		}
		if len(i.kept) != 3 || len(i.receipts) != 3 {
			t.Errorf("%d kept, receipts %v", len(i.kept), i.receipts)
		}
		if err := c.End(t.Context(), "s-1"); err != nil {
			t.Fatal(err)
		}
		if len(i.live) != 0 || c.Pending() != 0 {
			t.Errorf("alive after the end: %v", i.live)
		}
		if _, err := c.Token(t.Context(), "s-1", shopID, git.Read); err == nil {
			t.Error("a token after the end")
		}
	})
	t.Run("EG-80_no_other_repository", func(t *testing.T) {
		i := newIssuer()
		c := credentials(t, i)
		c.Open("s-1", shop, nil)
		for _, session := range []string{"s-1", "s-2"} {
			if _, err := c.Token(t.Context(), session, otherID, git.Read); err == nil {
				t.Errorf("%s got a token", session)
			}
		}
		if i.n != 0 {
			t.Errorf("minted %d", i.n)
		}
	})
	t.Run("seventy_minutes", func(t *testing.T) {
		i := newIssuer()
		c := credentials(t, i)
		c.Open("s-1", shop, nil)
		first := token(t, c, "", git.Read)
		i.now = i.now.Add(54 * time.Minute)
		if token(t, c, "", git.Read) != first {
			t.Error("replaced too early")
		}
		i.now = i.now.Add(16 * time.Minute)
		if token(t, c, "", git.Read) == first {
			t.Error("still the token that has ended")
		}
		if err := c.End(t.Context(), "s-1"); err != nil {
			t.Fatal(err)
		}
		if i.live["ghs_token0002"] {
			t.Error("the second token lives")
		}
	})
	t.Run("not_used_before_it_is_kept", func(t *testing.T) {
		i := newIssuer()
		i.full = true
		c := credentials(t, i)
		c.Open("s-1", shop, nil)
		if _, err := c.Token(t.Context(), "s-1", "", git.Read); err == nil {
			t.Error("a token that nobody would revoke after a crash")
		}
		if len(i.live) != 0 {
			t.Errorf("alive: %v", i.live)
		}
	})
	t.Run("revoked_after_a_crash", func(t *testing.T) {
		i := newIssuer()
		c := credentials(t, i)
		c.Open("s-1", shop, nil)
		token(t, c, "", git.Read)
		token(t, c, "", git.Write)
		// Nothing is ended: the process is gone. The next one reads the journal.
		next := credentials(t, i)
		for _, k := range i.kept {
			if err := next.Recover(k); err != nil {
				t.Fatal(err)
			}
		}
		if next.Pending() != 2 {
			t.Fatalf("%d pending", next.Pending())
		}
		next.Sweep(t.Context())
		if len(i.live) != 0 || next.Pending() != 0 {
			t.Errorf("alive: %v", i.live)
		}
		third := credentials(t, i)
		for _, k := range i.kept {
			if err := third.Recover(k); err != nil {
				t.Fatal(err)
			}
		}
		if third.Pending() != 0 {
			t.Errorf("%d would be revoked again", third.Pending())
		}
	})
	t.Run("tried_again", func(t *testing.T) {
		i := newIssuer()
		c := credentials(t, i)
		c.Open("s-1", shop, nil)
		token(t, c, "", git.Read)
		i.down = true
		if err := c.End(t.Context(), "s-1"); err == nil {
			t.Error("no error, and the host was down")
		}
		c.Sweep(t.Context())
		if c.Pending() != 1 {
			t.Errorf("%d pending", c.Pending())
		}
		i.down = false
		c.Sweep(t.Context())
		if diff := cmp.Diff([]string{"issued 1001 read", "pending 1001 read", "revoked 1001 read"}, i.receipts); diff != "" || c.Pending() != 0 {
			t.Errorf("receipts (-want +got):\n%s", diff)
		}
	})
	t.Run("M-22_guarded", func(t *testing.T) { // before its receipt, and so before its first use
		i := newIssuer()
		o := i.options()
		var guarded []string
		o.Guard = func(session string, v secret.Value) {
			if len(i.receipts) != len(guarded) {
				t.Errorf("%d receipts, %d guarded", len(i.receipts), len(guarded))
			}
			guarded = append(guarded, session+" "+string(v.Reveal()))
		}
		c, err := git.NewCredentials(o)
		if err != nil {
			t.Fatal(err)
		}
		c.Open("s-1", shop, nil)
		token(t, c, "", git.Read)
		token(t, c, "", git.Read)
		token(t, c, "", git.Write)
		if diff := cmp.Diff([]string{"s-1 ghs_token0001", "s-1 ghs_token0002"}, guarded); diff != "" {
			t.Errorf("guarded (-want +got):\n%s", diff)
		}
	})
	t.Run("M-11_static", func(t *testing.T) {
		i := newIssuer()
		o := staticOptions()
		var scope map[string]string
		o.Receipt = func(_ context.Context, _ string, c receipts.Credential, _ bool) error {
			scope = c.Scope
			return nil
		}
		c, err := git.NewCredentials(o)
		if err != nil {
			t.Fatal(err)
		}
		c.Open("s-1", shop, nil)
		if got := token(t, c, "", git.Write); got != "glpat-canary" {
			t.Errorf("token is %q", got)
		}
		if diff := cmp.Diff(map[string]string{"access": "write", "scope": "unknown"}, scope); diff != "" {
			t.Errorf("the receipt claims (-want +got):\n%s", diff)
		}
		if err := c.End(t.Context(), "s-1"); err != nil || len(i.kept) != 0 {
			t.Errorf("%v, %d kept", err, len(i.kept))
		}
	})
}
