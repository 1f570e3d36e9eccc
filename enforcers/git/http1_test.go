//go:build linux

package git_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestHTTP1: where git goes, a client that offers what git's does is answered in
// HTTP/1.1, in which no libcurl hangs at the end of a large push. Whoever insists
// on HTTP/2 still gets it, and so does everybody elsewhere.
func TestHTTP1(t *testing.T) {
	s := open(t, newWorld(t), setup{push: pushBranches})
	for name, c := range map[string]struct {
		host string
		both bool // HTTP/1.1 is offered beside HTTP/2
		want string
	}{
		"git":          {"git.good.test", true, "HTTP/1.1"},
		"git_insists":  {"git.good.test", false, "HTTP/2.0"},
		"api":          {"api.good.test", true, "HTTP/2.0"},
		"no_scm_there": {"free.good.test", true, "HTTP/2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			var protocols http.Protocols
			protocols.SetHTTP1(c.both)
			protocols.SetHTTP2(true)
			tr := s.client()
			tr.Protocols = &protocols
			defer tr.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.host+"/acme/shop.git/git-receive-pack", strings.NewReader("0000"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.Proto != c.want {
				t.Errorf("%s with %s, want %s", resp.Proto, c.host, c.want)
			}
		})
	}
}
