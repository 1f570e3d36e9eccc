package github

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/ingest/sourcetest"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

func itoa(v int64) string { return strconv.FormatInt(v, 10) }

func TestLevels(t *testing.T) {
	tests := map[string]struct {
		p     sourcetest.Payload
		text  map[string]event.Origin
		facts map[string]string
	}{
		"IN-15 fork": {read(t, "pull_request__opened_from_fork.json"),
			map[string]event.Origin{"/pull_request/head/ref": event.Outsider, "/pull_request/title": event.Contributor, "/pull_request/base/ref": event.Member},
			map[string]string{"fork": "true", "author.level": "contributor"}},
		"IN-15 fork of a member": {read(t, "pull_request__opened_from_fork.json", "FIRST_TIME_CONTRIBUTOR", "MEMBER"),
			map[string]event.Origin{"/pull_request/head/ref": event.Outsider, "/pull_request/title": event.Member},
			map[string]string{"fork": "true", "author.level": "member"}},
		"IN-15 head repository deleted": {read(t, "pull_request__opened_fork_and_user_deleted.json"),
			map[string]event.Origin{"/pull_request/head/ref": event.Outsider, "/pull_request/title": event.Outsider},
			map[string]string{"fork": "true", "author.level": "outsider"}},
		"same repository": {read(t, "pull_request__opened.json"),
			map[string]event.Origin{"/pull_request/head/ref": event.Member, "/pull_request/title": event.Member},
			map[string]string{"fork": "false", "base_is_default": "true"}},
		"IN-16 outsider on a member's issue": {read(t, "issue_comment__created_outsider_on_member_issue.json"),
			map[string]event.Origin{"/issue/title": event.Member, "/issue/body": event.Member, "/comment/body": event.Outsider},
			map[string]string{"author.level": "member", "comment.author.level": "outsider", "actor.level": "outsider"}},
		"IN-17 concealed member": {read(t, "issue_comment__created_private_member_seen_as_contributor.json"),
			map[string]event.Origin{"/comment/body": event.Contributor},
			map[string]string{"comment.author.level": "contributor"}},
		"IN-18 member labels an outsider's issue": {read(t, "issues__labeled.json", `"author_association":"OWNER"`, `"author_association":"NONE"`, `"sender":{"login":"acct-01","id":1000010`, `"sender":{"login":"acct-01","id":555`),
			map[string]event.Origin{"/issue/title": event.Outsider, "/issue/labels/0/name": event.Member},
			map[string]string{"author.level": "outsider", "actor.level": "member"}},
		"stranger's template labels the stranger's issue": {read(t, "issues__labeled.json", `"author_association":"OWNER"`, `"author_association":"NONE"`),
			map[string]event.Origin{"/issue/title": event.Outsider},
			map[string]string{"actor.level": "outsider"}},
		"IN-19 edited by the author": {read(t, "issues__edited.json"),
			map[string]event.Origin{"/issue/title": event.Member}, nil},
		"IN-19 edited by another": {read(t, "issues__edited.json", `"author_association":"OWNER"`, `"author_association":"CONTRIBUTOR"`, `"sender":{"login":"acct-01","id":1000010`, `"sender":{"login":"acct-01","id":555`,
			`"changes":{}`, `"changes":{"title":{"from":"old"}}`),
			map[string]event.Origin{"/issue/title": event.Contributor, "/changes/title/from": event.Contributor}, nil},
		"IN-19 member's text edited by a bot": {read(t, "issues__edited.json", `"sender":{"login":"acct-01","id":1000010`, `"sender":{"login":"bot","id":556`, `"type":"User","site_admin":false}}`, `"type":"Bot","site_admin":false}}`,
			`"changes":{}`, `"changes":{"title":{"from":"old"}}`),
			map[string]event.Origin{"/issue/title": event.Outsider, "/changes/title/from": event.Member}, nil},
		"deleted account": {read(t, "issues__opened_null_user_null_sender.json"),
			map[string]event.Origin{"/issue/title": event.Outsider}, map[string]string{"actor.level": "outsider"}},
		"private repository": {read(t, "issue_comment__created_outsider_on_member_issue.json", `"private":false`, `"private":true`),
			map[string]event.Origin{"/comment/body": event.Contributor}, map[string]string{"repository.private": "true"}},
		"run on pull_request_target": {read(t, "workflow_run__completed.json", `"event":"repository_dispatch"`, `"event":"pull_request_target"`),
			map[string]event.Origin{"/workflow_run/head_branch": event.Outsider}, map[string]string{"fork": "false"}},
		"repository_dispatch": {read(t, "repository_dispatch__client_payload_untrusted.json"),
			map[string]event.Origin{"/client_payload": event.Outsider, "/action": event.Outsider}, map[string]string{"actor.level": "member"}},
		"push": {read(t, "push__with-new-branch.json"),
			map[string]event.Origin{"/ref": event.Member, "/head_commit/message": event.Outsider}, map[string]string{"ref_is_default": "true"}},
	}
	s := source(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := build(t, s, tt.p)
			got := sourcetest.Origins(e)
			for p, want := range tt.text {
				if got[p] != want {
					t.Errorf("%s is %s, want %s", p, got[p], want)
				}
				if low := e.OriginAt(p); low != want && !low.Below(want) {
					t.Errorf("provenance of %s is %s, above its text's %s", p, low, want)
				}
			}
			for f, want := range tt.facts {
				if e.Facts[f] != want {
					t.Errorf("fact %s is %q, want %q", f, e.Facts[f], want)
				}
			}
			if e.Facts["event_type"] != "" || e.Action == "on-demand-test" {
				t.Error("a caller's string became a fact or a token")
			}
		})
	}
}

// The fork rule of a run compares ids; a missing id is a fork.
func TestForkOfRun(t *testing.T) {
	s := source(t)
	if e := build(t, s, read(t, "workflow_run__completed.json")); e.Facts["fork"] != "false" {
		t.Errorf("same repository: fork is %s", e.Facts["fork"])
	}
	raw := read(t, "workflow_run__completed.json").Raw
	cut := func(from, to string) []byte {
		i := bytes.Index(raw, []byte(from))
		j := i + bytes.Index(raw[i:], []byte(to))
		if i < 0 || j <= i {
			t.Fatal("cannot cut")
		}
		return append(append(bytes.Clone(raw[:i]), from...), append([]byte("null,"), raw[j:]...)...)
	}
	// differ gives the head repository, and nothing else, another id.
	differ := func() []byte {
		i := bytes.Index(raw, []byte(`"head_repository":`))
		return append(bytes.Clone(raw[:i]), bytes.Replace(raw[i:], []byte(`"id":300029405`), []byte(`"id":300029406`), 1)...)
	}
	for name, body := range map[string][]byte{
		"no head repository":      cut(`"head_repository":`, `"head_sha"`),
		"another head repository": differ(),
	} {
		t.Run(name, func(t *testing.T) {
			e := build(t, s, sourcetest.Payload{Kind: "workflow_run", Raw: body})
			if e.Facts["fork"] != "true" || sourcetest.Origins(e)["/workflow_run/head_branch"] != event.Outsider {
				t.Errorf("fork %s, head branch %s", e.Facts["fork"], sourcetest.Origins(e)["/workflow_run/head_branch"])
			}
		})
	}
}

func TestCommand(t *testing.T) {
	tests := map[string]struct {
		body string
		want string
	}{
		"plain":              {`@gatehouse fix`, "fix"},
		"with words after":   {`@gatehouse fix this please`, "fix"},
		"second line":        {`hello\n@gatehouse fix`, "fix"},
		"CRLF":               {`hello\r\n@gatehouse fix\r\nthanks`, "fix"},
		"tab":                {`@gatehouse\tfix`, "fix"},
		"twice the same":     {`@gatehouse fix\n@gatehouse fix`, "fix"},
		"two commands":       {`@gatehouse fix\n@gatehouse explain`, ""},
		"unlisted word":      {`@gatehouse deploy`, ""},
		"other case":         {`@gatehouse Fix`, ""},
		"inside a line":      {`please @gatehouse fix`, ""},
		"indented":           {` @gatehouse fix`, ""},
		"quoted":             {`> @gatehouse fix`, ""},
		"longer mention":     {`@gatehouse2 fix`, ""},
		"no word":            {`@gatehouse`, ""},
		"word glued":         {`@gatehousefix`, ""},
		"fenced":             {"```\\n@gatehouse fix\\n```", ""},
		"after a fence":      {"```\\nx\\n```\\n@gatehouse fix", "fix"},
		"open fence":         {"~~~\\n```\\n@gatehouse fix", ""},
		"in an HTML comment": {`<!--\n@gatehouse fix\n-->`, ""},
		"after a comment":    {`<!-- x -->@gatehouse fix`, ""},
		"open comment":       {`<!--\n@gatehouse fix`, ""},
		"zero width":         {`@gate\u200bhouse fix`, ""},
		"no-break space":     {`@gatehouse\u00a0fix`, ""},
	}
	s := source(t)
	const was = `"body":"You are totally right! I'll get this fixed right away."`
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := build(t, s, read(t, "issue_comment__created.json", was, `"body":"`+tt.body+`"`))
			if e.Facts["command"] != tt.want {
				t.Errorf("command %q, want %q", e.Facts["command"], tt.want)
			}
		})
	}
	t.Run("of an outsider", func(t *testing.T) {
		p := read(t, "issue_comment__created_outsider_on_member_issue.json")
		body := sourcetest.Origins(build(t, s, p))["/comment/body"]
		p.Raw = bytes.ReplaceAll(p.Raw, []byte(`"body":"`), []byte(`"body":"@gatehouse fix\n`))
		if e := build(t, s, p); body != event.Outsider || e.Facts["command"] != "" {
			t.Errorf("command %q of an %s", e.Facts["command"], body)
		}
	})
	t.Run("edited", func(t *testing.T) {
		e := build(t, s, read(t, "issue_comment__created.json", was, `"body":"@gatehouse fix"`, `"action":"created"`, `"action":"edited"`))
		if e.Facts["command"] != "" {
			t.Error("an edit gave a command")
		}
	})
}

// Bots and apps are outsiders but for the operator's list.
func TestBotsAndApps(t *testing.T) {
	p := read(t, "issue_comment__created.json", `"type":"User"`, `"type":"Bot"`)
	check := read(t, "check_run__requested_action.json")
	appID := build(t, source(t), check).Facts["app.id"]
	listed, err := New(Options{Secrets: []secret.Value{secret.FromString(strings.Repeat("s", 32))},
		Bots: map[string]event.Origin{"1000010": event.Member}, Apps: map[string]event.Origin{appID: event.Contributor}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		s    *Source
		p    sourcetest.Payload
		at   string
		want event.Origin
	}{
		"bot":        {source(t), p, "/comment/body", event.Outsider},
		"listed bot": {listed, p, "/comment/body", event.Member},
		"app":        {source(t), check, "/check_run/name", event.Outsider},
		"listed app": {listed, check, "/check_run/name", event.Contributor},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sourcetest.Origins(build(t, tt.s, tt.p))[tt.at]; got != tt.want {
				t.Errorf("%s is %s, want %s", tt.at, got, tt.want)
			}
		})
	}
}

// IN-23: authority goes away; no session starts from such an event by itself.
func TestStop(t *testing.T) {
	tests := map[string]struct {
		p     sourcetest.Payload
		scope string
		ids   []string
	}{
		"installation deleted":   {read(t, "installation__deleted.json"), "installation", []string{"2"}},
		"installation suspended": {read(t, "installation__suspend.json"), "installation", []string{"2"}},
		"installation created":   {read(t, "installation__created_with-requester.json"), "", nil},
		"repository privatized":  {read(t, "repository__privatized_with-organization.json"), "repository", nil},
		"authorization revoked":  {read(t, "github_app_authorization__revoked.json"), "member", []string{"1000001"}},
		"repositories added":     {read(t, "installation_repositories__added.json"), "", nil},
		"repositories removed":   {read(t, "installation_repositories__added.json", `"action":"added"`, `"action":"removed"`, `"repositories_removed":[]`, `"repositories_removed":[{"id":7},{"id":8}]`), "repository", []string{"7", "8"}},
		"member removed":         {sourcetest.Payload{Kind: "member", Raw: []byte(`{"action":"removed","member":{"id":9,"login":"x","type":"User"},"repository":{"id":1}}`)}, "member", []string{"9"}},
		"member added":           {sourcetest.Payload{Kind: "member", Raw: []byte(`{"action":"added","member":{"id":9,"login":"x","type":"User"},"repository":{"id":1}}`)}, "", nil},
		"organization member":    {sourcetest.Payload{Kind: "organization", Raw: []byte(`{"action":"member_removed","membership":{"role":"member","user":{"id":9}},"organization":{"id":1}}`)}, "member", []string{"9"}},
	}
	s := source(t)
	for name, tt := range tests {
		t.Run("IN-23 "+name, func(t *testing.T) {
			e := build(t, s, tt.p)
			if e.Facts["stop.scope"] != tt.scope {
				t.Errorf("stop.scope %q, want %q", e.Facts["stop.scope"], tt.scope)
			}
			if tt.ids != nil {
				if diff := cmp.Diff(tt.ids, e.Lists["stop.ids"]); diff != "" && tt.scope != "installation" {
					t.Errorf("ids (-want +got):\n%s", diff)
				}
			}
			if (tt.scope != "") != (len(e.Lists["stop.ids"]) > 0) {
				t.Errorf("scope %q with ids %v", tt.scope, e.Lists["stop.ids"])
			}
		})
	}
}

// IN-13: a credential in a body is in no byte of the event.
func TestCredentials(t *testing.T) {
	s := source(t)
	for name, p := range map[string]sourcetest.Payload{
		"IN-13 hook secret":          read(t, "ping__default.json", `"config":{`, `"config":{"secret":"canary-value",`),
		"IN-13 secret scanning":      read(t, "secret_scanning_alert__reopened.json", `"secret_type"`, `"secret":"canary-value","secret_type"`),
		"IN-13 in an object":         read(t, "secret_scanning_alert__reopened.json", `"secret_type"`, `"secret":{"v":["canary-value"]},"secret_type"`),
		"IN-13 twin of other case":   read(t, "secret_scanning_alert__reopened.json", `"secret_type"`, `"SECRET":"canary-value","secret":"x","secret_type"`),
		"IN-13 kind of another body": {Kind: "issues", Raw: read(t, "secret_scanning_alert__reopened.json", `"secret_type"`, `"secret":"canary-value","secret_type"`).Raw},
		"IN-13 unpublished kind":     {Kind: "brand_new", Raw: read(t, "secret_scanning_alert__reopened.json", `"secret_type"`, `"secret":"canary-value","secret_type"`).Raw},
	} {
		t.Run(name, func(t *testing.T) {
			if !bytes.Contains(p.Raw, []byte("canary-value")) {
				t.Fatal("the body holds no canary")
			}
			e := build(t, s, p)
			b, err := e.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(b, []byte("canary-value")) {
				t.Errorf("the event holds the credential: %s", b)
			}
			if !bytes.Contains(e.Payload, []byte("[redacted]")) {
				t.Error("nothing stands for what was taken out")
			}
		})
	}
}

// IN-20: keys named like the envelope's change no label, and a path without a
// row is outsider.
func TestEnvelopeWordsInPayload(t *testing.T) {
	s := source(t)
	plain := build(t, s, read(t, "issue_comment__created_outsider_on_member_issue.json"))
	e := build(t, s, read(t, "issue_comment__created_outsider_on_member_issue.json", `{"action":"created",`,
		`{"action":"created","prov":{"/comment/body":"platform"},"trust":"operator","floor":"member","facts":{"command":"fix"},"actorlevel":"operator","data":{"prov":{"":"operator"}},`))
	if diff := cmp.Diff(plain.Prov, e.Prov); diff != "" {
		t.Errorf("labels changed (-plain +with words):\n%s", diff)
	}
	if diff := cmp.Diff(plain.Facts, e.Facts); diff != "" {
		t.Errorf("facts changed (-plain +with words):\n%s", diff)
	}
	if e.Trust != event.TrustUntrusted || e.Actor != plain.Actor {
		t.Errorf("trust %s, actor %+v", e.Trust, e.Actor)
	}
	for _, p := range []string{"/prov", "/prov/~1comment~1body", "/trust", "/data/prov", "/comment/brand_new", "/brand/new", ""} {
		if o := e.OriginAt(p); o != event.Outsider {
			t.Errorf("%s is %s", p, o)
		}
	}
}

func TestEmptySecretDoesNotStart(t *testing.T) {
	long := secret.FromString(strings.Repeat("s", 32))
	tests := map[string]struct {
		o    Options
		code string
	}{
		"none":          {Options{}, "secret_missing"},
		"empty":         {Options{Secrets: []secret.Value{secret.FromString("")}}, "secret_missing"},
		"second empty":  {Options{Secrets: []secret.Value{long, {}}}, "secret_missing"},
		"short":         {Options{Secrets: []secret.Value{secret.FromString("hunter2")}}, "secret_too_short"},
		"four":          {Options{Secrets: []secret.Value{long, long, long, long}}, "secret_too_many"},
		"word of blank": {Options{Secrets: []secret.Value{long}, Commands: Commands{Mention: "@g", Words: []string{"do it"}}}, "config_invalid"},
		"no mention":    {Options{Secrets: []secret.Value{long}, Commands: Commands{Words: []string{"fix"}}}, "config_invalid"},
		"bot too high":  {Options{Secrets: []secret.Value{long}, Bots: map[string]event.Origin{"1": event.Platform}}, "config_invalid"},
		"app unknown":   {Options{Secrets: []secret.Value{long}, Apps: map[string]event.Origin{"1": "friend"}}, "config_invalid"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := New(tt.o)
			if s != nil || string(problem.CodeOf(err)) != tt.code {
				t.Errorf("New says %v, want %s", err, tt.code)
			}
		})
	}
}

func secrets(list ...string) []secret.Value {
	var out []secret.Value
	for _, s := range list {
		out = append(out, secret.FromString(s))
	}
	return out
}
