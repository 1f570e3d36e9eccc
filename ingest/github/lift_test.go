package github

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	gogithub "github.com/google/go-github/v66/github"

	"gatehouse/ingest/sourcetest"
	"gatehouse/internal/event"
)

// IN-17: a concealed member is lifted by the API and by nothing else.
func TestLift(t *testing.T) {
	s := source(t)
	p := read(t, "issue_comment__created_private_member_seen_as_contributor.json")
	before := build(t, s, p)
	var login, id string
	for _, x := range before.Text {
		if x.Pointer == "/comment/user/login" {
			login, id = x.Value.Untrusted(), x.Author
		}
	}
	if login == "" || sourcetest.Origins(before)["/comment/body"] != event.Contributor {
		t.Fatalf("login %q, comment is %s", login, sourcetest.Origins(before)["/comment/body"])
	}
	p.Raw = bytes.Replace(p.Raw, []byte(`"body":"`), []byte(`"body":"@gatehouse fix\n`), -1)
	before = build(t, s, p)
	tests := map[string]struct {
		status int
		answer string
		want   event.Origin
		fails  bool
	}{
		"write":           {200, fmt.Sprintf(`{"permission":"write","user":{"id":%s}}`, id), event.Member, false},
		"admin":           {200, fmt.Sprintf(`{"permission":"admin","user":{"id":%s}}`, id), event.Member, false},
		"read":            {200, fmt.Sprintf(`{"permission":"read","user":{"id":%s}}`, id), event.Contributor, false},
		"another account": {200, `{"permission":"admin","user":{"id":1}}`, event.Contributor, false},
		"nobody named":    {200, `{"permission":"admin"}`, event.Contributor, false},
		"no collaborator": {404, `{}`, event.Contributor, false},
		"API down":        {502, `{}`, event.Contributor, true},
		"not allowed":     {403, `{}`, event.Contributor, true},
	}
	for name, tt := range tests {
		t.Run("IN-17 "+name, func(t *testing.T) {
			asked := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/repos/acme/shop/collaborators/"+login+"/permission" {
					asked++
					w.WriteHeader(tt.status)
					fmt.Fprint(w, tt.answer)
					return
				}
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, "{}")
			}))
			defer srv.Close()
			client := gogithub.NewClient(srv.Client())
			base, err := url.Parse(srv.URL + "/")
			if err != nil {
				t.Fatal(err)
			}
			client.BaseURL = base
			now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
			l := &Lifter{Source: s, Client: func(context.Context, string, string, string) (*gogithub.Client, error) { return client, nil }, Name: func(string) (string, string, bool) { return "acme", "shop", true }, Now: func() time.Time { return now }}
			after, err := l.Lift(context.Background(), before)
			if (err != nil) != tt.fails {
				t.Errorf("error %v, want one: %v", err, tt.fails)
			}
			if got := sourcetest.Origins(after)["/comment/body"]; got != tt.want || after.OriginAt("/comment/body") != tt.want {
				t.Errorf("comment is %s, want %s", got, tt.want)
			}
			if got := after.Facts["command"]; (got == "fix") != (tt.want == event.Member) {
				t.Errorf("command %q", got)
			}
			if after.ID != before.ID || after.BodySHA256 != before.BodySHA256 || !after.Received.Equal(before.Received) {
				t.Error("the envelope changed")
			}
			if _, err := after.Encode(); err != nil {
				t.Error(err)
			}
			if tt.fails {
				return
			}
			if _, err := l.Lift(context.Background(), before); err != nil || asked != 1 {
				t.Errorf("asked %d times within the time to live, %v", asked, err)
			}
			now = now.Add(permissionTTL)
			if _, err := l.Lift(context.Background(), before); err != nil || asked != 2 {
				t.Errorf("asked %d times after it, %v", asked, err)
			}
		})
	}
	t.Run("repository that is not listed", func(t *testing.T) {
		l := &Lifter{Source: s, Name: func(string) (string, string, bool) { return "", "", false }}
		if e, err := l.Lift(context.Background(), before); e != before || err != nil {
			t.Errorf("lifted, %v", err)
		}
	})
}

func TestIsLogin(t *testing.T) {
	for _, s := range []string{"", "-a", "a/b", "..", "a%2fb", "a b", "bot[bot]", "a?b", "é", strings.Repeat("a", 40)} {
		if isLogin(s) {
			t.Errorf("%q is a login", s)
		}
	}
	if !isLogin("octo-cat") {
		t.Error("octo-cat is none")
	}
}
