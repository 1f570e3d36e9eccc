package upstream_test

import (
	"io"
	"net/http"
	"net/netip"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// TestPoolKeepsAddresses is EG-35 within one session: a connection that one rule
// opened carries nothing under another whose addresses are others, nor what no
// rule allows.
func TestPoolKeepsAddresses(t *testing.T) {
	listed := enforcers.Grant{Addresses: []netip.Prefix{netip.MustParsePrefix(public + "/32")}}
	other := enforcers.Grant{Addresses: []netip.Prefix{netip.MustParsePrefix("93.184.217.0/24")}}
	ask := func(t *testing.T, c *upstream.Client, mode receipts.Mode, effect enforcers.Effect, g enforcers.Grant) error {
		t.Helper()
		s := newSession("s", mode, effect, g)
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(s.permitFor(t, "GET", "https://example.com/", ""), r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil
	}
	for name, x := range map[string]struct {
		mode   receipts.Mode
		effect enforcers.Effect
		grant  enforcers.Grant
		code   string
		opened int64 // connections in all
	}{
		"same_rule":               {receipts.Hard, enforcers.Allow, listed, "", 1},
		"EG-35_other_addresses":   {receipts.Hard, enforcers.Allow, other, enforcers.CodeAddressNotListed, 1},
		"EG-35_no_addresses":      {receipts.Hard, enforcers.Allow, enforcers.Grant{}, "", 2},
		"T-11_shadow_would_block": {receipts.Shadow, enforcers.Deny, listed, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutside(t)
			c := newClient(t, o, nil)
			if err := ask(t, c, receipts.Hard, enforcers.Allow, listed); err != nil {
				t.Fatal(err)
			}
			if err := ask(t, c, x.mode, x.effect, x.grant); (err != nil || x.code != "") && string(problem.CodeOf(err)) != x.code {
				t.Errorf("%v, want %q", err, x.code)
			}
			if n := o.accepts.Load(); n != x.opened {
				t.Errorf("%d connections, want %d", n, x.opened)
			}
		})
	}
}
