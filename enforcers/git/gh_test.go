//go:build linux

package git_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"gatehouse/enforcers/git"
)

// hub is a fake of GitHub's GraphQL API, as far as gh asks.
func hub(t *testing.T, seen *[]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*seen = append(*seen, r.URL.Path+" "+string(b))
		w.Header().Set("Content-Type", "application/json")
		var q struct{ Query string }
		_ = json.Unmarshal(b, &q)
		pr := `{"id":"PR_1","number":7,"title":"A change","state":"OPEN","url":"https://github.com/acme/shop/pull/7","headRefName":"gatehouse/one","baseRefName":"main","isCrossRepository":false,` +
			`"author":{"login":"a"},"body":"text","labels":{"nodes":[],"totalCount":0},"assignees":{"nodes":[],"totalCount":0},"reviews":{"nodes":[],"totalCount":0},"comments":{"nodes":[],"totalCount":0},` +
			`"commits":{"nodes":[],"totalCount":1},"reviewRequests":{"nodes":[],"totalCount":0},"projectCards":{"nodes":[],"totalCount":0},"milestone":null,"additions":1,"deletions":0,"createdAt":"2026-01-01T00:00:00Z"}`
		switch {
		case strings.Contains(q.Query, "__type("):
			_, _ = io.WriteString(w, `{"data":{}}`)
		case strings.Contains(q.Query, "pullRequest(number"):
			_, _ = io.WriteString(w, `{"data":{"repository":{"pullRequest":`+pr+`}}}`)
		case strings.Contains(q.Query, "pullRequests("):
			list := `{"totalCount":1,"nodes":[` + pr + `],"pageInfo":{"hasNextPage":false}}`
			if strings.Contains(q.Query, "headRefName") && strings.Contains(string(b), `"headRefName":`) {
				list = `{"totalCount":0,"nodes":[]}`
			}
			_, _ = io.WriteString(w, `{"data":{"repository":{"pullRequests":`+list+`,"defaultBranchRef":{"name":"main"}}}}`)
		case strings.Contains(q.Query, "repository("):
			_, _ = io.WriteString(w, `{"data":{"repository":{"id":"R_1","name":"shop","owner":{"login":"acme"},"hasIssuesEnabled":true,"viewerPermission":"READ","defaultBranchRef":{"name":"main"},"isPrivate":true}}}`)
		default:
			t.Errorf("unexpected: %s", b)
		}
	})
}

// TestGH runs the real gh against the session's repository and another.
func TestGH(t *testing.T) {
	if _, err := exec.LookPath("gh"); err != nil {
		t.Skip("NOT TESTED on this machine: no gh (Debian package gh)")
	}
	w := newWorld(t)
	var seen []string
	if _, err := w.HTTPS("api.github.com", netip.MustParseAddr("93.184.216.41"), hub(t, &seen)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.HTTPS("github.com", netip.MustParseAddr("93.184.216.42"), http.NotFoundHandler()); err != nil {
		t.Fatal(err)
	}
	var made []git.PullRequest
	s := open(t, w, setup{gh: true, pull: func(_ context.Context, p git.PullRequest) (string, error) {
		made = append(made, p)
		return "https://github.com/acme/shop/pull/8", nil
	}})
	gh := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, "gh", args...)
		cmd.Dir = t.TempDir()
		cmd.Env = append([]string{"GH_TOKEN=" + placeholder, "SSL_CERT_FILE=" + s.home + "/ca.pem", "GH_CONFIG_DIR=" + s.home + "/gh", "GH_NO_UPDATE_NOTIFIER=1", "NO_COLOR=1"}, s.env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for name, c := range map[string]struct {
		args []string
		want string
		bad  bool
	}{
		"list":    {[]string{"pr", "list", "-R", "acme/shop"}, "A change", false},
		"view":    {[]string{"pr", "view", "7", "-R", "acme/shop"}, "A change", false},
		"create":  {[]string{"pr", "create", "-R", "acme/shop", "--head", "gatehouse/two", "--base", "main", "--title", "Two", "--body", "text"}, "https://github.com/acme/shop/pull/8", false},
		"another": {[]string{"pr", "list", "-R", "acme/other"}, git.CodeGraphQL, true},
		"merge":   {[]string{"pr", "merge", "7", "--merge", "-R", "acme/shop"}, git.CodeGraphQL, true},
		"repos":   {[]string{"repo", "list", "acme"}, git.CodeGraphQL, true},
		"user":    {[]string{"api", "user"}, git.CodeAPIPlace, true},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := gh(c.args...)
			if (err != nil) != c.bad || !strings.Contains(out, c.want) {
				t.Errorf("%v: no %q in:\n%s\nthe API saw %q", err, c.want, out, seen)
			}
		})
	}
	if len(made) != 1 || made[0].Head != "gatehouse/two" || made[0].Base != "main" || made[0].Title != "Two" || made[0].Body != "text" {
		t.Errorf("made %+v", made)
	}
	for _, q := range seen {
		if strings.Contains(q, "mutation") {
			t.Errorf("a mutation reached the API: %s", q)
		}
	}
}
