//go:build linux

package git_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// told runs the real git with what it is told inside a sandbox.
func (s *session) told(args ...string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = s.home, s.env
	for k, v := range s.inside {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// otherTransports is EG-84 for ssh and git://: a listed host's remotes become
// https; any other says in git's own output what to use; and a tunnel to either
// port is refused with the same hint.
func otherTransports(t *testing.T, w *world) {
	for name, c := range map[string]struct {
		remote string
		ok     bool
		want   string
	}{
		"EG-84_ssh_listed_scp":   {"git@git.good.test:acme/shop.git", true, "refs/heads/main"},
		"EG-84_ssh_listed":       {"ssh://git@git.good.test/acme/shop.git", true, "refs/heads/main"},
		"EG-84_git_listed":       {"git://git.good.test/acme/shop.git", true, "refs/heads/main"},
		"EG-84_http_listed":      {"http://git.good.test/acme/shop.git", true, "refs/heads/main"},
		"EG-84_ssh_sibling":      {"git@git.good.test:acme/other.git", false, "repository_not_listed"},
		"EG-84_git_sibling":      {"git://git.good.test/acme/other.git", false, "repository_not_listed"},
		"EG-84_ssh_elsewhere":    {"git@evil.test:acme/shop.git", false, "use the repository's https address"},
		"EG-84_ssh_other_user":   {"ssh://root@git.good.test/acme/shop.git", false, "use the repository's https address"},
		"EG-84_ssh_with_a_port":  {"ssh://git@git.good.test:2222/acme/shop.git", false, "use the repository's https address"},
		"EG-84_git_elsewhere":    {"git://evil.test/acme/shop.git", false, "403"},
		"EG-84_git_other_port":   {"git://git.good.test:9418/acme/shop.git", false, "403"},
		"EG-84_ext_is_git_s_own": {"ext::sh -c 'exit 0'", false, "not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, w, setup{})
			before := w.site.Requests()
			out, err := s.told("ls-remote", c.remote)
			if (err == nil) != c.ok || !strings.Contains(out, c.want) {
				t.Errorf("%v: no %q in %q", err, c.want, out)
			}
			if !c.ok && (w.site.Requests() != before || len(s.inject.asked()) != 0 || w.DNS.Queries("evil.test") != 0) {
				t.Errorf("it went out: %q", out)
			}
		})
	}
	for name, target := range map[string]string{"EG-84_tunnel_ssh": "git.good.test:22", "EG-84_tunnel_git": "git.good.test:9418", "EG-84_tunnel_ssh_elsewhere": "evil.test:22"} {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				s := open(t, w, setup{mode: mode})
				check := untouched(t, w.site)
				c, err := net.Dial("tcp", s.proxy)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := io.WriteString(c, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != http.StatusForbidden || !strings.Contains(string(b), "https address") {
					t.Errorf("%v, %d %s", err, resp.StatusCode, b)
				}
				if d := s.rec.of(enforcers.NetConnect); len(d) != 1 || d[0].Decision.Passed {
					t.Errorf("decided %+v", d)
				}
				check()
			})
		}
	}
}
