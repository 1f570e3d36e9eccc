package gatekeeper

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// plus adds lines to a bundle of another name.
func plus(name, more string) string {
	return strings.Replace(fixCI, "name: fix-ci", "name: "+name, 1) + more
}

func TestAdmission(t *testing.T) {
	hardened := func(caps ...sandbox.Capability) option {
		return func(w *world) {
			for _, c := range caps {
				delete(w.room.declared, c)
			}
		}
	}
	cases := map[string]struct {
		bundles []string
		with    []option
		before  func(w *world) // after the bundles are in force
		change  func(*event.Event)
		code    problem.Code // "" admits
		bundle  string       // in session.open
		why     string
	}{
		"admits":                     {bundles: []string{fixCI}, bundle: "fix-ci"},
		"no_match":                   {bundles: []string{fixCI}, change: func(e *event.Event) { e.Facts["conclusion"] = "success" }, code: problem.NoMatch},
		"no_match_fork":              {bundles: []string{fixCI}, change: func(e *event.Event) { e.Facts["fork"] = "true" }, code: problem.NoMatch},
		"no_match_no_bundle":         {code: problem.NoMatch},
		"no_match_unrecognized":      {bundles: []string{fixCI}, change: func(e *event.Event) { e.Kind, e.Action = event.KindUnrecognized, "" }, code: problem.NoMatch},
		"below_accepts":              {bundles: []string{fixCI}, change: func(e *event.Event) { e.Text[1].Origin = event.Outsider }, code: problem.BelowAccepts, bundle: "fix-ci"},
		"below_accepts_by_table":     {bundles: []string{fixCI}, change: func(e *event.Event) { delete(e.Prov, "/workflow_run/name") }, code: problem.BelowAccepts, bundle: "fix-ci"},
		"ambiguous_bundles":          {bundles: []string{plus("a", "egress: [{host: a.test}]\n"), plus("b", "egress: [{host: b.test}]\n")}, code: problem.AmbiguousBundles},
		"priority":                   {bundles: []string{plus("a", "egress: [{host: a.test}]\n"), plus("b", "egress: [{host: b.test}]\npriority: 1\n")}, bundle: "b"},
		"most_specific":              {bundles: []string{plus("a", "egress: [{host: '*.a.test'}]\n"), plus("b", "egress: [{host: b.a.test}]\n")}, bundle: "b"},
		"self_caused_identity":       {bundles: []string{fixCI}, change: func(e *event.Event) { e.Actor.ID = "777" }, code: problem.SelfCaused, bundle: "fix-ci"},
		"self_caused_ref":            {bundles: []string{fixCI}, change: branch("gatehouse/pr-12/fix"), code: problem.SelfCaused, bundle: "fix-ci"},
		"self_caused_full_ref":       {bundles: []string{fixCI}, change: branch("refs/heads/gatehouse/pr-12/fix"), code: problem.SelfCaused, bundle: "fix-ci"},
		"self_caused_own_namespace":  {bundles: []string{plus("fix-ci", "git: {repository: session, push: {refs: ['refs/heads/bot/{entity}/*']}}\n")}, change: branch("bot/x"), code: problem.SelfCaused, bundle: "fix-ci"},
		"self_caused_deployment":     {bundles: []string{fixCI}, change: named("gatehouse/pr-12/fix", "/deployment/ref"), code: problem.SelfCaused, bundle: "fix-ci"},
		"self_caused_status":         {bundles: []string{fixCI}, change: named("gatehouse/pr-12/fix", "/branches/0/name"), code: problem.SelfCaused, bundle: "fix-ci"},
		"self_caused_status_of_many": {bundles: []string{fixCI}, change: both(named("gatehouse/pr-12/fix", "/branches/0/name"), named("feature", "/branches/1/name")), bundle: "fix-ci"},
		"self_caused_not_every_ref":  {bundles: []string{plus("fix-ci", "git: {repository: session, push: {refs: ['refs/heads/*']}}\n")}, change: branch("feature"), bundle: "fix-ci"},
		"self_allowed":               {bundles: []string{plus("fix-ci", "self: {max: 1}\n")}, change: branch("gatehouse/pr-12/fix"), bundle: "fix-ci"},
		"self_max":                   {bundles: []string{plus("fix-ci", "self: {max: 1}\n")}, before: func(w *world) { w.ended(w.take(failedRun("before", branch("gatehouse/pr-12/fix")))) }, change: branch("gatehouse/pr-12/fix"), code: problem.SelfCaused, bundle: "fix-ci"},
		"self_about_nothing":         {bundles: []string{plus("fix-ci", "self: {max: 1}\n")}, change: func(e *event.Event) { branch("gatehouse/x")(e); e.Entity, e.EntityPath = event.Entity{}, "" }, code: problem.SelfCaused, bundle: "fix-ci"},
		"per_entity":                 {bundles: []string{fixCI}, before: three, code: problem.PerEntity, bundle: "fix-ci"},
		"per_entity_other_entity":    {bundles: []string{fixCI}, before: three, change: func(e *event.Event) { e.Lists["pull_requests"] = []string{"13"} }, bundle: "fix-ci"},
		"per_entity_later":           {bundles: []string{fixCI}, before: func(w *world) { three(w); w.store.pass(25 * time.Hour) }, bundle: "fix-ci"},
		"per_entity_written":         {bundles: []string{plus("fix-ci", "per_entity: 4/24h\n")}, before: three, bundle: "fix-ci"},
		"per_entity_counts_all":      {bundles: []string{fixCI, plus("wide", "per_entity: 9/24h\n")}, before: three, code: problem.PerEntity, bundle: "fix-ci"},
		"per_entity_not_refusals":    {bundles: []string{fixCI}, before: refusals, bundle: "fix-ci"},
		"repository_not_listed":      {bundles: []string{fixCI}, change: func(e *event.Event) { e.Facts["repository.id"] = "5" }, code: problem.RepositoryNotListed, bundle: "fix-ci"},
		"repository_by_name":         {bundles: []string{plus("fix-ci", "git: {repository: acme/other}\n")}, code: problem.RepositoryNotListed, bundle: "fix-ci"},
		"provider_unknown":           {bundles: []string{strings.Replace(fixCI, "session: {", "session: {provider: oci, ", 1)}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
		"provider_credential_free":   {bundles: []string{fixCI}, with: []option{hardened(sandbox.EnvironmentClean)}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
		"provider_required":          {bundles: []string{plus("fix-ci", "credentials: required\n")}, with: []option{hardened(sandbox.NetworkClosed)}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
		"provider_hard":              {bundles: []string{plus("fix-ci", "mode: hard\n")}, with: []option{hardened(sandbox.VsockClosed)}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
		"provider_shadow":            {bundles: []string{fixCI}, with: []option{hardened(sandbox.VsockClosed)}, bundle: "fix-ci"},
		"provider_unlimited_refused": {bundles: []string{plus("fix-ci", "mode: hard\n")}, with: []option{hardened(sandbox.ResourceLimited)}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
		"provider_unlimited":         {bundles: []string{plus("fix-ci", "mode: hard\n")}, with: []option{hardened(sandbox.ResourceLimited), func(w *world) { w.opts.Unlimited = true }}, bundle: "fix-ci"},
		"compatibility":              {bundles: []string{plus("fix-ci", "credentials: {compatibility: {reason: x, expires: 2026-12-31}}\n")}, with: []option{hardened(everything...)}, bundle: "fix-ci"},
		"compatibility_over":         {bundles: []string{plus("fix-ci", "credentials: {compatibility: {reason: x, expires: 2026-11-28}}\n")}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
		"compatibility_hard":         {bundles: []string{plus("fix-ci", "mode: hard\ncredentials: {compatibility: {reason: x, expires: 2026-12-31}}\n")}, with: []option{hardened(sandbox.NetworkClosed)}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
		"mounts":                     {bundles: []string{strings.Replace(fixCI, "session: {", "session: {mounts: [{source: /srv, path: /srv, mode: write}], ", 1)}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
		"caches":                     {bundles: []string{strings.Replace(fixCI, "session: {", "session: {caches: [{name: npm, path: /npm}], ", 1)}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
		"image":                      {bundles: []string{strings.Replace(fixCI, "session: {", "session: {rootfs: {oci: 'x@sha256:"+strings.Repeat("0", 64)+"'}, ", 1)}, code: problem.ProviderCapabilityMissing, bundle: "fix-ci"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.bundles, c.with...)
			if c.before != nil {
				c.before(w)
			}
			started, _ := w.room.count()
			e := failedRun("this")
			if c.change != nil {
				c.change(e)
			}
			id := w.take(e)
			chain := w.log.receipts(id)
			if len(chain) == 0 || chain[0].Open == nil {
				t.Fatal("no session.open")
			}
			open := chain[0].Open
			if open.Code != string(c.code) || open.Bundle != c.bundle || open.Event != e.ID || open.EventLeaf.IsZero() {
				t.Errorf("session.open is %+v, want code %q and bundle %q", open, c.code, c.bundle)
			}
			if c.code != "" {
				w.wantStory(id, "open refused "+string(c.code)+", close refused")
				if now, _ := w.room.count(); now != started {
					t.Error("a refused event started a sandbox")
				}
				return
			}
			w.ended(id)
			w.wantStory(id, happy)
			if open.Floor != "member" || open.Provider != "local" || open.Contract.IsZero() || open.Text != unrated || len(open.Deliveries) != 2 {
				t.Errorf("session.open is %+v", open)
			}
		})
	}
}

// IN-17: what a platform confirms of an author counts for admission, and the
// receipt says that it was asked; the event itself is not changed.
func TestLift(t *testing.T) {
	for name, c := range map[string]struct {
		confirms bool
		story    string
		lifted   string
	}{
		"IN-17 confirmed":     {true, happy, "true"},
		"IN-17 not confirmed": {false, "open refused below_accepts, close refused", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{fixCI}, func(w *world) {
				w.opts.Lift = func(_ context.Context, e *event.Event) *event.Event {
					if !c.confirms {
						return e
					}
					up := *e
					up.Text = slices.Clone(e.Text)
					up.Text[1].Origin = event.Member
					return &up
				}
			})
			e := failedRun("this", func(e *event.Event) { e.Text[1].Origin = event.Outsider })
			id := w.take(e)
			if c.confirms {
				w.ended(id)
			}
			w.wantStory(id, c.story)
			open := w.log.receipts(id)[0].Open
			if open.Facts[factLifted] != c.lifted || open.EventLeaf != receipts.Leaf(w.log.message(e).Data) {
				t.Errorf("session.open is %+v", open)
			}
		})
	}
}

func branch(name string) func(*event.Event) {
	return func(e *event.Event) {
		e.Text[1] = event.NewPassage("/workflow_run/head_branch", "head_branch", name, event.Member, "")
	}
}

// named adds the name of a branch where another kind of event has it.
func named(name, pointer string) func(*event.Event) {
	return func(e *event.Event) {
		e.Text = append(e.Text, event.NewPassage(pointer, "branch", name, event.Member, ""))
		e.Prov[pointer] = event.Member
	}
}

func both(a, b func(*event.Event)) func(*event.Event) {
	return func(e *event.Event) { a(e); b(e) }
}

func three(w *world) {
	for _, n := range []string{"one", "two", "three"} {
		w.ended(w.take(failedRun(n)))
	}
}

func refusals(w *world) {
	for _, n := range []string{"one", "two", "three", "four"} {
		w.take(failedRun(n, func(e *event.Event) { e.Text[1].Origin = event.Outsider }))
	}
}

func TestPingMakesNoChain(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	e := failedRun("ping", func(e *event.Event) {
		e.Kind, e.Action, e.EntityPath, e.Entity = event.KindPing, "", "", event.Entity{}
	})
	if err := w.handle(t.Context(), w.log.message(e)); err != nil {
		t.Fatal(err)
	}
	if len(w.log.chains) != 1 { // the control chain
		t.Errorf("%d chains", len(w.log.chains))
	}
}

func TestUnsealed(t *testing.T) {
	good := func(w *world) Message { return w.log.message(failedRun("true")) }
	cases := map[string]func(w *world) Message{
		"no_seal": func(w *world) Message { m := good(w); m.Header = nil; return m },
		"garbage_seal": func(w *world) Message {
			m := good(w)
			m.Header = map[string]string{receipts.HeaderSeal: "x"}
			return m
		},
		"seal_of_another_event": func(w *world) Message {
			m, other := good(w), w.log.message(failedRun("other"))
			m.Header = other.Header
			return m
		},
		"changed_byte": func(w *world) Message {
			m := good(w)
			m.Data = []byte(strings.Replace(string(m.Data), `"fork":"false"`, `"fork":"fals3"`, 1))
			return m
		},
		"log_of_a_stranger": func(w *world) Message {
			l := openLog(w.t, w.t.TempDir(), "stranger.test/n9", w.store.time)
			return l.message(failedRun("true"))
		},
		"key_of_a_stranger": func(w *world) Message {
			l := openLog(w.t, w.t.TempDir(), testOrigin, w.store.time)
			return l.message(failedRun("true"))
		},
		"other_subject": func(w *world) Message {
			m := good(w)
			m.Subject = strings.Replace(m.Subject, "workflow_run", "issues", 1)
			return m
		},
		"unknown_endpoint": func(w *world) Message {
			return w.log.message(failedRun("true", func(e *event.Event) { e.Endpoint = "gone"; e.ID = "github:gone:true" }))
		},
		"source_of_another_endpoint": func(w *world) Message {
			return w.log.message(failedRun("true", func(e *event.Event) { e.Source = "linear"; e.ID = "linear:main:true" }))
		},
		"sealed_receipt_as_event": func(w *world) Message {
			// Everything of the log is sealed; that alone makes it no event.
			for group, err := range w.log.j.Groups(0) {
				if err != nil {
					w.t.Fatal(err)
				}
				return Message{Subject: failedRun("x").Subject(), Data: group[0].Data, Header: map[string]string{receipts.HeaderSeal: sealOf(w.t, group).Header(0)}}
			}
			w.t.Fatal("the journal is empty")
			return Message{}
		},
	}
	for name, forge := range cases {
		t.Run("M-02_"+name, func(t *testing.T) {
			w := newWorld(t, []string{fixCI})
			m := forge(w)
			for range 3 { // a forged message comes again like any other
				if err := w.handle(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			leaf := receipts.Leaf(m.Data)
			id := w.sessionOf("unsealed." + hexOf(leaf))
			w.wantStory(id, "open refused event_unsealed, close refused")
			open := w.log.receipts(id)[0].Open
			if open.Event != "" || open.EventLeaf != leaf || open.Bundle != "" {
				t.Errorf("session.open repeats words of a forged event: %+v", open)
			}
			if n := len(w.log.chains); n != 2 {
				t.Errorf("%d chains, want the control chain and one refusal", n)
			}
			// The true event of the same id is still admitted.
			true1 := w.take(failedRun("true"))
			w.ended(true1)
			w.wantStory(true1, happy)
		})
	}
}

// TestAdmittedIsTold: whoever asked is told of what starts a session, and of
// nothing else.
func TestAdmittedIsTold(t *testing.T) {
	told := make(chan Admitted, 2)
	w := newWorld(t, []string{fixCI}, func(w *world) { w.opts.Admitted = func(_ context.Context, a Admitted) { told <- a } })
	w.take(failedRun("refused", func(e *event.Event) { e.Facts["conclusion"] = "success" }))
	id := w.take(failedRun("one"))
	w.ended(id)
	if a := <-told; a.Session != id || a.Bundle.Name != "fix-ci" || a.Event.Facts["conclusion"] != "failure" {
		t.Errorf("told of %+v", a)
	}
	if len(told) != 0 {
		t.Errorf("told of %d more", len(told))
	}
}

func TestStoppedEventsRevoke(t *testing.T) {
	cases := map[string]struct {
		scope, id string
		revoked   bool
	}{
		"IN-23_repository":       {"repository", "1296269", true},
		"IN-23_other_repository": {"repository", "5", false},
		"IN-23_installation":     {"installation", "31", true},
		"IN-23_member":           {"member", "42", true},
		"IN-22_agent_session":    {"agent_session", "agent-1", true},
		"IN-22_another_session":  {"agent_session", "agent-2", false},
		"IN-23_team":             {"team", "team-1", true},
		"IN-23_organization":     {"organization", "org-1", true},
		"unknown_scope":          {"planet", "1296269", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{fixCI})
			started := make(chan string, 1)
			w.room.run = waits(started)
			id := w.take(failedRun("this", func(e *event.Event) {
				maps.Copy(e.Facts, map[string]string{"installation.id": "31", "agent_session.id": "agent-1", "team.id": "team-1", "organization.id": "org-1"})
			}))
			<-started
			stop := failedRun("stop", func(e *event.Event) { e.SetStop(c.scope, c.id) }) // fixCI would match it
			if err := w.handle(t.Context(), w.log.message(stop)); err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.bucket("claims").Get(t.Context(), eventHash(stop.ID)); problem.CodeOf(err) != problem.NotFound {
				t.Errorf("a stop event was claimed for a session: %v", err)
			}
			if !c.revoked {
				if err := w.Kill(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				w.wantStory(id, "open admitted, preparing, running, ended(cancelled), close cancelled")
				return
			}
			if r := w.ended(id); r.Reason != "revoked" {
				t.Errorf("ended %s", r.Reason)
			}
			w.wantStory(id, "open admitted, preparing, running, ended(revoked), close revoked")
		})
	}
}

func hexOf(h receipts.Hash) string { return hex.EncodeToString(h[:]) }
