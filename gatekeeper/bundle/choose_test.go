package bundle_test

import (
	"strings"
	"testing"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

func TestChoose(t *testing.T) {
	named := func(name, rest string) string {
		return "apiVersion: gatehouse/v1\nkind: Bundle\nname: " + name + "\n" + rest
	}
	trigger := "match: [{source: github, kinds: [workflow_run.completed]}]\n"
	run := "session: {agent: codex, task: 'run {{ run_id }}', concurrency: {key: repository.id}}\n"
	wide := named("wide", "accepts: member\n"+trigger+run+"egress: [{host: '*.a.test'}]\n")
	narrow := named("narrow", "accepts: member\n"+trigger+run+"egress: [{host: b.a.test}]\n")
	strict := named("strict", "accepts: operator\n"+trigger+run)
	other := named("other", "accepts: member\n"+trigger+run+"egress: [{host: c.test}]\n")
	cases := map[string]struct {
		bundles []string
		change  func(*event.Event)
		bundle  string
		code    problem.Code
		why     string
	}{
		"admits":               {bundles: []string{wide}, bundle: "wide"},
		"most_specific":        {bundles: []string{wide, narrow}, bundle: "narrow"},
		"no_match":             {bundles: []string{wide, narrow}, change: func(e *event.Event) { e.Action = "requested" }, code: problem.NoMatch, why: "narrow: match[0]: kind is workflow_run.requested; wide"},
		"no_bundles":           {code: problem.NoMatch},
		"quarantined":          {bundles: []string{wide}, change: func(e *event.Event) { e.Kind = event.KindQuarantined }, code: problem.NoMatch, why: "quarantined"},
		"unrecognized":         {bundles: []string{wide}, change: func(e *event.Event) { e.Kind = event.KindUnrecognized }, code: problem.NoMatch},
		"unrecognized_named":   {bundles: []string{named("odd", "accepts: member\nmatch: [{source: github, kinds: ['unrecognized.*', 'quarantined.*']}]\n"+run)}, change: func(e *event.Event) { e.Kind = event.KindUnrecognized }, code: problem.NoMatch, why: "no session starts from"},
		"ambiguous":            {bundles: []string{narrow, other}, code: problem.AmbiguousBundles, why: "narrow, other"},
		"priority":             {bundles: []string{narrow, other + "priority: 2\n"}, bundle: "other"},
		"below_accepts":        {bundles: []string{strict}, bundle: "strict", code: problem.BelowAccepts, why: "/workflow_run/name is member"},
		"no_wider_fallback":    {bundles: []string{wide, strict}, bundle: "strict", code: problem.BelowAccepts},
		"repository_unlisted":  {bundles: []string{wide + "git: {repository: session}\n"}, change: func(e *event.Event) { e.Facts["repository.id"] = "5" }, bundle: "wide", code: problem.RepositoryNotListed, why: "repositories:"},
		"template_lacks_fact":  {bundles: []string{wide}, change: func(e *event.Event) { delete(e.Facts, "run_id") }, bundle: "wide", code: problem.NoMatch, why: "run_id"},
		"key_lacks_fact":       {bundles: []string{strings.Replace(wide, "key: repository.id", "key: project.id", 1)}, bundle: "wide", code: problem.NoMatch, why: "project.id"},
		"shadow_outsider":      {bundles: []string{strings.Replace(wide, "member", "outsider", 1)}, change: lowered, bundle: "wide", code: problem.BelowAccepts, why: "accepts member in shadow mode"},
		"hard_outsider":        {bundles: []string{strings.Replace(wide, "member", "outsider", 1) + "mode: hard\n"}, change: lowered, bundle: "wide"},
		"shadow_outsider_note": {bundles: []string{strings.Replace(wide, "member", "outsider", 1) + "shadow_outsiders: {reason: x, expires: 2027-01-01}\n"}, change: lowered, bundle: "wide"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var bs []*bundle.Bundle
			for _, src := range c.bundles {
				bs = append(bs, parse(t, src))
			}
			e := failed()
			if c.change != nil {
				c.change(e)
			}
			got := bundle.Choose(bs, e, listed, testNow)
			if got.Code != c.code || !strings.Contains(got.Why, c.why) {
				t.Errorf("code %q (%s), want %q (%s)", got.Code, got.Why, c.code, c.why)
			}
			if (got.Bundle != nil) != (c.bundle != "") || got.Bundle != nil && got.Bundle.Name != c.bundle {
				t.Errorf("bundle %v, want %q", got.Bundle, c.bundle)
			}
			if c.code == "" && (got.Task != "run 99" || got.Key != "1296269" || got.Floor.Origin == "") {
				t.Errorf("choice %+v", got)
			}
		})
	}
}

func lowered(e *event.Event) { e.Prov["/workflow_run/name"] = event.Outsider }
