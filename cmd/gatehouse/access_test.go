package main

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestClientAddress(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	cases := map[string]struct{ peer, forwarded, want string }{
		"direct":             {"203.0.113.9:1", "", "203.0.113.9"},
		"stranger_lies":      {"203.0.113.9:1", "198.51.100.1", "203.0.113.9"},
		"one_proxy":          {"10.0.0.1:1", "198.51.100.1", "198.51.100.1"},
		"client_forges_left": {"10.0.0.1:1", "127.0.0.1, 198.51.100.1", "198.51.100.1"},
		"two_proxies":        {"10.0.0.1:1", "198.51.100.1, 10.0.0.2", "198.51.100.1"},
		"garbage":            {"10.0.0.1:1", "me", "10.0.0.1"},
		"mapped_peer":        {"[::ffff:10.0.0.1]:1", "198.51.100.1", "198.51.100.1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/hooks/main", nil)
			r.RemoteAddr = c.peer
			if c.forwarded != "" {
				r.Header.Set("X-Forwarded-For", c.forwarded)
			}
			if got := client(r, trusted).String(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
