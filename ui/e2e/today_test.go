package e2e_test

import (
	"fmt"
	"strings"
	"time"

	"gatehouse/internal/event"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// today is one session, event and group for each state that a page tells.
func (w *world) today() {
	at := noon.Add(-3 * time.Hour)
	hurt := w.event(1, "github", "main", "issue_comment", "created", at, func(e *event.Event) {
		e.Anomalies = []string{"bom"}
		e.Text = []event.Passage{
			event.NewPassage("/issue/title", "title", hostile, event.Outsider, "88"),
			event.NewPassage("/comment/body", "body", stranger, event.Outsider, "88"),
			event.NewPassage("/repository/full_name", "name", "acme/site", event.Platform, ""),
		}
		e.Prov = map[string]event.Origin{"/issue/title": event.Outsider, "/comment/body": event.Outsider, "": event.Platform}
		e.Lists = map[string][]string{"labels": {"1", "2"}}
	})
	w.event(2, "github", "main", event.KindQuarantined, "", at.Add(time.Minute), func(e *event.Event) {
		e.ID = "github:main:d000002~" + strings.Repeat("ab", 32)
		e.Anomalies, e.Facts, e.Entity, e.EntityPath = []string{"twin_keys"}, nil, event.Entity{}, ""
	})
	late := w.event(3, "sentry", "errors-of-the-documentation-site", "issue", "created", at.Add(2*time.Minute), func(e *event.Event) {
		e.Auth = event.Auth{Scheme: "sentry-hmac-sha256", Key: "k2", Signed: []string{"body"}, Late: true}
		e.Actor = event.Actor{Kind: "unknown", Level: event.Outsider}
	})
	nightly := w.event(4, "cron", "nightly", "tick", "", at.Add(3*time.Minute), func(e *event.Event) {
		e.Trust, e.Auth, e.Actor = "operator", event.Auth{Scheme: "none"}, event.Actor{Kind: "operator", Level: event.Platform}
	})

	// In shadow, with everything: all kinds of groups, a child, artifacts.
	w.open(sessionEnded, hurt, bundleShadow, receipts.Shadow, at, nil)
	w.tried(sessionEnded, at.Add(time.Second), get("registry.example.net"), allowed, some(sent))
	w.tried(sessionEnded, at.Add(2*time.Second), receipts.Act{Kind: "model.call", Name: "claude-sonnet-4-5", Connection: "claude", Authority: true}, allowed, some(modelled))
	w.tried(sessionEnded, at.Add(3*time.Second), get("packages.example.com"), many(wouldBe, 1200), some(sent))
	w.tried(sessionEnded, at.Add(4*time.Second), get("xn--pypi-4ve.org"), wouldBe, some(sent))
	w.tried(sessionEnded, at.Add(5*time.Second), get("statsig.example.com"), wouldBe, some(sent))
	w.tried(sessionEnded, at.Add(6*time.Second), get("telemetry.example.org"), wouldBe, some(sent))
	w.tried(sessionEnded, at.Add(7*time.Second), get("a-very-long-name-that-somebody-made-up.of-many-labels.deep.inside.a.zone.example.org"), wouldBe, some(sent))
	w.tried(sessionEnded, at.Add(8*time.Second), receipts.Act{Kind: "dns.query", Host: "packages.example.com", Name: "A"}, receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Shadow, Passed: true, Rule: "egress.default_deny", Reason: "name_not_listed", By: "egress"}, nil)
	w.tried(sessionEnded, at.Add(9*time.Second), receipts.Act{Kind: "net.connect", Host: "::1", Port: 22}, receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Shadow, Rule: "egress.default_deny", Reason: "ip_literal", By: "egress"}, nil)
	w.tried(sessionEnded, at.Add(10*time.Second), receipts.Act{Kind: "git.fetch", Scheme: "https", Host: "git.example.com", Port: 443, Repository: "300029405", Authority: true}, receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Shadow, Rule: "git.default_deny", Reason: "would_block_needs_authority", By: "git"}, nil)
	w.tried(sessionEnded, at.Add(11*time.Second), get("lost.example.com"), allowed, some(receipts.Out{Effect: "unknown", Code: "upstream_reset", Address: "93.184.216.40"}))
	w.tried(sessionEnded, at.Add(12*time.Second), get("pending.example.com"), allowed, nil)
	w.close(sessionEnded, at.Add(6*time.Minute), "completed", 0, map[string]receipts.Hash{"artifact.abababababababab": {0xab}, "artifact.cdcdcdcdcdcdcdcd": {0xcd}})
	for n := range 3 { // as many independent events as a suggestion needs
		id, then := fmt.Sprintf("01jcb%021d", n), at.Add(time.Duration(n)*time.Minute)
		w.open(id, w.event(20+n, "github", "main", "workflow_run", "completed", then, nil), bundleShadow, receipts.Shadow, then, nil)
		for _, host := range []string{"packages.example.com", "xn--pypi-4ve.org", "telemetry.example.org"} {
			w.tried(id, then.Add(time.Second), get(host), wouldBe, some(sent))
		}
		w.close(id, then.Add(time.Minute), "completed", 0, nil)
	}
	child := "01jcc000000000000000000000"
	w.open(child, hurt, "deploy-preview", receipts.Shadow, at.Add(time.Minute), func(o *receipts.Open) { o.Parent = sessionEnded })
	w.close(child, at.Add(2*time.Minute), "timeout", 137, nil)

	// A killed session in hard mode, and one that was shown text of too low an origin.
	killed := "01jcd000000000000000000000"
	w.open(killed, late, bundlePaused, receipts.Hard, at, nil)
	w.tried(killed, at.Add(time.Second), get("only-the-killed.example.com"), many(refused, 40), nil)
	w.tried(killed, at.Add(2*time.Second), get("packages.example.com"), faulted, nil)
	w.close(killed, at.Add(time.Minute), "cancelled", 143, nil)

	// A chain that has a hole, admits a loss, and a policy that is weaker.
	w.open(sessionBroken, nightly, "legacy-agent", receipts.Shadow, at, func(o *receipts.Open) { o.Policy = "compatibility" })
	w.tried(sessionBroken, at.Add(time.Second), get("registry.example.net"), allowed, some(sent))
	w.add(sessionBroken, at.Add(2*time.Second), receipts.Receipt{Type: receipts.TypeLoss, Loss: &receipts.Loss{Cause: "journal_failed", First: 4711, Count: 3}})
	w.seqs[sessionBroken] += 2
	w.close(sessionBroken, at.Add(time.Minute), "lost", 1, nil)

	// One that runs, and events that started nothing.
	w.open(sessionRunning, nightly, bundleShadow, receipts.Shadow, noon.Add(-40*time.Second), nil)
	w.add(sessionRunning, noon.Add(-39*time.Second), receipts.Receipt{Type: receipts.TypeSessionState, State: &receipts.State{From: "admitted", To: "running", Level: 3}})
	w.tried(sessionRunning, noon.Add(-30*time.Second), get("packages.example.com"), wouldBe, nil)
	none := func(o *receipts.Open) {
		*o = receipts.Open{State: "refused", Code: o.Code, Event: o.Event, Bundle: o.Bundle}
	}
	for n, code := range []string{"no_match", "no_match", "below_accepts", "provider_capability_missing", "bundle_paused"} {
		id := fmt.Sprintf("01jce%021d", n)
		if n == 0 {
			id = sessionRefused
		}
		w.open(id, late, map[bool]string{true: "", false: bundlePaused}[code == "no_match"], "", at.Add(time.Duration(n)*time.Minute), func(o *receipts.Open) {
			o.Code = code
			none(o)
		})
		w.add(id, at.Add(time.Duration(n)*time.Minute+time.Millisecond), receipts.Receipt{Type: receipts.TypeSessionClose, Close: &receipts.Close{Reason: "refused"}})
	}

	// What people said of groups: one stays blocked until a day, one for ever, one is noise.
	for host, x := range map[string]map[string]string{
		"telemetry.example.org": {view.XStatus: view.StatusKept, view.XReason: "statistics of a tool; nobody needs them", view.XExpires: noon.AddDate(0, 0, 30).Format(time.RFC3339)},
		"cdn.example.com":       {view.XStatus: view.StatusNoise, view.XReason: "an old mirror that the installer asks first"},
	} {
		x[view.XGroup] = w.group(host)
		w.change(noon.Add(-time.Hour), receipts.TypePolicyChange, receipts.Change{Bundle: bundleShadow, By: "bob@example.com", Via: "ui", Result: "applied"}, x)
	}
}

// group finds the group of the requests to a host.
func (w *world) group(host string) string {
	w.t.Helper()
	p, err := w.view.Groups(view.GroupQuery{}, "", view.MaxLimit)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, g := range p.Items {
		if g.Host == host && g.Kind == "http.request" {
			return g.ID
		}
	}
	w.t.Fatalf("no group of %s", host)
	return ""
}
