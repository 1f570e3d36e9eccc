package policies

import (
	"strings"
	"testing"

	"gatehouse/enforcers"
)

const oid = "0123456789012345678901234567890123456789"

func TestGit(t *testing.T) {
	zero := strings.Repeat("0", 40)
	update := func(ref string) enforcers.RefUpdate { return enforcers.RefUpdate{Ref: ref, Old: oid, New: oid} }
	push := func(repository string, commands []enforcers.RefUpdate, changed ...string) []byte {
		return message(t, enforcers.Action{Kind: enforcers.GitPush, Connection: "github-main", Push: &enforcers.Push{Repository: repository, Path: "acme/shop", Commands: commands, Changed: changed}})
	}
	fetch := func(repository string) []byte {
		return message(t, enforcers.Action{Kind: enforcers.GitFetch, Connection: "github-main", Fetch: &enforcers.Fetch{Repository: repository, Path: "a/b", Protocol: 2}})
	}
	good := update("refs/heads/gatehouse/pr-1/fix")
	cases := map[string]struct {
		action               []byte
		effect, rule, reason string
	}{
		"fetch_own":                    {fetch("1296269"), allow, "git.repository", ReasonListed},
		"fetch_sibling":                {fetch("77"), allow, "git.siblings[0]", ReasonListed},
		"EG-80_fetch_unlisted":         {fetch("78"), deny, gitDefault, ReasonRepositoryNotListed},
		"fetch_without_connection":     {fetch(""), deny, gitDefault, ReasonRepositoryNotListed},
		"fetch_prefix_of_an_id":        {fetch("129626"), deny, gitDefault, ReasonRepositoryNotListed},
		"push_own":                     {push("1296269", []enforcers.RefUpdate{good}, "main.go"), allow, "git.push", ReasonListed},
		"EG-82_push_sibling":           {push("77", []enforcers.RefUpdate{good}), deny, gitDefault, ReasonAccessReadOnly},
		"EG-80_push_unlisted":          {push("78", []enforcers.RefUpdate{good}), deny, gitDefault, ReasonRepositoryNotListed},
		"ME-22_push_main":              {push("1296269", []enforcers.RefUpdate{update("refs/heads/main")}), deny, gitDefault, ReasonRefNotListed},
		"ME-22_push_tag":               {push("1296269", []enforcers.RefUpdate{update("refs/tags/v1")}), deny, gitDefault, ReasonRefNotListed},
		"ME-22_mixed_update":           {push("1296269", []enforcers.RefUpdate{good, update("refs/heads/main")}), deny, gitDefault, ReasonRefNotListed},
		"ME-22_force":                  {push("1296269", []enforcers.RefUpdate{{Ref: good.Ref, Old: oid, New: oid, Forced: true}}), deny, gitDefault, ReasonForceNotAllowed},
		"ME-22_delete":                 {push("1296269", []enforcers.RefUpdate{{Ref: good.Ref, Old: oid, New: zero}}), deny, gitDefault, ReasonDeleteNotAllowed},
		"ME-22_no_commands":            {push("1296269", nil), deny, gitDefault, ReasonNoCommands},
		"EG-86_branch_prefix":          {push("1296269", []enforcers.RefUpdate{update("refs/heads/gatehouse/pr-12/fix")}), deny, gitDefault, ReasonRefNotListed},
		"EG-86_branch_deeper":          {push("1296269", []enforcers.RefUpdate{update("refs/heads/gatehouse/pr-1/a/b")}), deny, gitDefault, ReasonRefNotListed},
		"EG-86_branch_folder_itself":   {push("1296269", []enforcers.RefUpdate{update("refs/heads/gatehouse/pr-1")}), deny, gitDefault, ReasonRefNotListed},
		"EG-86_branch_empty_segment":   {push("1296269", []enforcers.RefUpdate{update("refs/heads/gatehouse/pr-1/")}), deny, gitDefault, ReasonRefNotListed},
		"EG-86_ref_with_quote":         {push("1296269", []enforcers.RefUpdate{update(`refs/heads/gatehouse/pr-1/a"b`)}), allow, "git.push", ReasonListed},
		"EG-86_ref_quote_for_slash":    {push("1296269", []enforcers.RefUpdate{update(`refs/heads/gatehouse"/pr-1/a`)}), deny, gitDefault, ReasonRefNotListed},
		"path_denied":                  {push("1296269", []enforcers.RefUpdate{good}, "a.go", ".github/workflows/x.yml"), deny, "git.push.deny_paths[0]", ReasonPathDenied},
		"path_denied_exact":            {push("1296269", []enforcers.RefUpdate{good}, "deploy/key"), deny, "git.push.deny_paths[1]", ReasonPathDenied},
		"path_denied_behind_an_escape": {push("1296269", []enforcers.RefUpdate{good}, ".github/workflows/a\"b\n.yml"), deny, "git.push.deny_paths[0]", ReasonPathDenied},
		"path_beside":                  {push("1296269", []enforcers.RefUpdate{good}, ".github/workflows.md", "x/.github/workflows/a", "\tü\""), allow, "git.push", ReasonListed},
		"path_too_long_to_unescape":    {push("1296269", []enforcers.RefUpdate{good}, strings.Repeat(`"`, 5000)), deny, gitDefault, ReasonValueNotPresentable},
		"foreign_kind":                 {queryAction(t, "x.test"), abstain, "git", ReasonNotMine},
	}
	j := configureWith(t, "git", sorted(testPolicy))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { check(t, j, c.action, c.effect, c.rule, c.reason) })
	}
	t.Run("no_push_section", func(t *testing.T) {
		j := configureWith(t, "git", `{"git":{"repository":"1296269","siblings":[]}}`)
		check(t, j, push("1296269", []enforcers.RefUpdate{good}), deny, gitDefault, ReasonPushNotListed)
	})
	t.Run("no_git_section", func(t *testing.T) {
		check(t, configureWith(t, "git", `{}`), fetch("1296269"), deny, gitDefault, ReasonRepositoryNotListed)
	})
	t.Run("open_push", func(t *testing.T) {
		j := configureWith(t, "git", `{"git":{"push":{"delete":true,"deny_paths":[],"force":true,"refs":["refs/heads/**"]},"repository":"1"}}`)
		check(t, j, push("1", []enforcers.RefUpdate{{Ref: "refs/heads/a/b/c", Old: oid, New: zero, Forced: true}}), allow, "git.push", ReasonListed)
		check(t, j, push("1", []enforcers.RefUpdate{update("refs/heads/")}), deny, gitDefault, ReasonRefNotListed)
	})
}

func check(t *testing.T, j *Judge, action []byte, effect, rule, reason string) {
	t.Helper()
	a := j.Decide(action)
	if a == nil {
		t.Fatalf("malformed: %s", action)
	}
	if a.Effect != effect || a.Rule != rule || a.Reason != reason {
		t.Errorf("got %s %s %s, want %s %s %s", a.Effect, a.Rule, a.Reason, effect, rule, reason)
	}
}
