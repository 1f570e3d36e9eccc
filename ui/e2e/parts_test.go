package e2e_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
	"gatehouse/ui"
)

// What a test can make up behind the pages: world is their commands, reviewer and
// inventory, decided their changes.

func (w *world) Kill(context.Context, string, ui.Person) error {
	return problem.New(problem.Unavailable, "the session did not answer", "Try again.")
}

func (w *world) Retry(context.Context, string, ui.Person) (string, error) {
	return "", problem.New(problem.Conflict, "the session still runs", "Kill it first.")
}

func (w *world) Redeliver(context.Context, string, ui.Person) (string, error) {
	return "", fmt.Errorf("open /var/lib/gatehouse: no space left on device")
}

func (w *world) Logs(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("installing\n" + stranger + "\ndone\n")), nil
}

func (w *world) Artifacts(context.Context, string) ([]ui.Artifact, error) {
	return []ui.Artifact{
		{Name: "report.txt", SHA256: strings.Repeat("ab", 32)},
		{Name: "<b>\u202exe.txt", SHA256: strings.Repeat("cd", 32)},
		{Name: "a/path/" + strings.Repeat("very-", 40) + "long.json", SHA256: strings.Repeat("ef", 32)},
	}, nil
}

func (w *world) Groups(_ context.Context, line, sort, after string, n int) (view.GroupPage, error) {
	terms, err := view.ParseTerms(line, view.GroupKeys)
	if err != nil {
		return view.GroupPage{}, err
	}
	p, err := w.view.Groups(view.GroupQuery{Terms: terms, Sort: sort, Own: owns}, after, n)
	for i := range p.Items {
		p.Items[i].Stale = stale(&p.Items[i])
	}
	return p, err
}

func owns(g *view.Group) bool  { return g.Host == "statsig.example.com" }
func stale(g *view.Group) bool { return strings.HasPrefix(g.Host, "a-very-long-name") }

func (w *world) Group(_ context.Context, id string) (view.GroupDetail, error) {
	g, err := w.view.Group(id, nil)
	g.Own, g.Stale = owns(&g.Group), stale(&g.Group)
	return g, err
}

func (w *world) Mark(context.Context, string, string, string, time.Time, gatekeeper.By) (view.Mark, error) {
	return view.Mark{}, problem.New(problem.Usage, "a reason is 3 to 500 characters", "say why")
}

func (w *world) Explain(_ context.Context, session, which string) (review.Trace, error) {
	return review.Trace{
		Receipt:  view.Receipt{Session: session, Seq: 3},
		Sentence: "GET packages.example.com went on, and would have been refused in hard mode: enforcer egress decided by rule egress.default_deny (host_not_listed)",
		Steps: []review.RuleStep{
			{Rule: "egress[0]", Text: "https://registry.example.net GET HEAD /**", Lacks: []string{"the host is packages.example.com"}},
			{Rule: "egress[1]", Text: "https://api.example.com GET /v1/**", Lacks: []string{"the host is packages.example.com", "the path is /acme/x.tgz"}},
			{Rule: "egress[2]", Text: "set npm", Matches: true},
		},
		Needs:  []string{"a rule would have to list the host packages.example.com"},
		Action: []byte(`{"kind":"http.request"}`),
	}, nil
}

// Two versions of a bundle. The pages parse and compare them.
const (
	before = `apiVersion: gatehouse/v1
kind: Bundle
name: fix-failing-ci
mode: shadow
accepts: member
match: [{source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure}}]
session: {agent: {command: {argv: [/bin/true]}}, task: "go"}
egress: [{host: registry.example.net}]
spend: {limit: 5.00 USD, per_day: 20.00 USD}
`
	wider = `
egress: [{host: registry.example.net}, {host: packages.example.com, methods: [GET, POST], paths: [/acme/**]}]
`
)

func after() string {
	return strings.Replace(before, "\negress: [{host: registry.example.net}]\n", wider, 1)
}

func parsed(text string) *bundle.Bundle {
	b, err := bundle.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return b
}

func (w *world) Suggest(_ context.Context, id string) (review.Ladder, error) {
	g, err := w.view.Group(id, nil)
	if err != nil {
		return review.Ladder{}, err
	}
	l := review.Ladder{Group: g.Group, Events: g.Events}
	if g.Kind != "http.request" || g.Events < 2 {
		l.Refuse = fmt.Sprintf("independent events of floor member or higher behind it: %d, and 2 are needed: what one event asks for may be what one attacker asks for", g.Events)
		return l, nil
	}
	next := parsed(after())
	diff, err := review.Diff(parsed(before), next)
	if err != nil {
		return l, err
	}
	r := review.Rung{
		Kind: "exact", Title: "exactly this request", Authority: review.Growth(parsed(before), next), Candidate: after(), Digest: fmt.Sprintf("%x", next.Digest()), Diff: diff,
		Entry: "egress:\n  - host: packages.example.com\n    methods: [GET, POST]\n    paths: [/acme/**]\n", Covers: 1217, Groups: 1,
	}
	host := r
	host.Kind, host.Title, host.Covers, host.Groups = "host", "the whole host", 1220, 2
	if strings.HasPrefix(g.Host, "xn--") {
		host.Caution = []string{"xn--pypi-4ve.org is an internationalized name that looks like pypi.org: read it letter by letter"}
	}
	l.Rungs = []review.Rung{r, host}
	return l, nil
}

func (w *world) Simulate(_ context.Context, source []byte, _ review.Window) (review.Simulation, error) {
	p, err := w.view.Groups(view.GroupQuery{}, "", 9)
	if err != nil {
		return review.Simulation{}, err
	}
	var all []review.Changed
	for n, g := range p.Items {
		all = append(all, review.Changed{Group: g, Count: uint64(n*n*300 + 1), Sessions: n + 1, Rule: "egress.default_deny", Reason: "host_not_listed", Samples: []view.Sample{{Session: sessionEnded, Seq: 3}}})
	}
	if len(all) < 7 {
		return review.Simulation{}, nil
	}
	return review.Simulation{
		Bundle: bundleShadow, Sessions: 412, Stopped: 3, Missed: 1, Actions: 20_000, NewlyBlocked: 2, NewlyAllowed: 1217, StillBlocked: 96, StillAllowed: 18_685,
		Blocked: all[:1], Allowed: all[1:3], Left: all[3:7], Cut: true, Unknown: map[string]uint64{"action_not_kept": 1204, "event_gone": 1},
		Limits: []string{
			"answers that a refused request would have brought are not known, so what the agent would have done next is not",
			"names were resolved and addresses checked at the time; that is not done again",
			"1204 actions are no longer kept and could not be judged",
			"the window holds more than was judged; older sessions are not in the result",
		},
	}, nil
}

func (w *world) Ready(_ context.Context, name string) (review.Readiness, error) {
	return review.Readiness{
		Bundle: name, Expect: "promoted now it would have stopped 3 of 412 sessions", Stopped: 3, Sessions: 412, Never: []string{"cron monthly tick"},
		Items: []review.Item{
			{ID: "observed", OK: true, Text: "sessions judged, of the last 30 days: 412", Link: "/ui/sessions?q=bundle:" + name},
			{ID: "triggers", Text: "never seen: cron monthly tick", Link: "/ui/events"},
			{ID: "quiet", Text: "the newest group appeared 1 day ago, and 14 quiet days are asked for", Link: "/ui/would-blocks?q=bundle:" + name},
			{ID: "decided", OK: true, Text: "every group is decided"},
			{ID: "faults", Text: "enforcers failed 1 time"},
		},
	}, nil
}

func (w *world) Asked(context.Context) ([]review.Asked, error) {
	if w.quiet {
		return nil, nil
	}
	leaf := strings.Repeat("Q29tbWl0", 5)
	return []review.Asked{
		{Time: noon.Add(-time.Hour), Session: sessionEnded, Bundle: bundleShadow, Refusal: leaf, Known: true, Seq: 3, Kind: "http.request", Target: "packages.example.com:443", Method: "GET", Verdict: "would_block", Rule: "egress.default_deny", Reason: "host_not_listed", Group: w.group("packages.example.com"), Status: "new"},
		{Time: noon.Add(-2 * time.Hour), Session: sessionBroken, Refusal: leaf},
	}, nil
}

func (w *world) Providers(context.Context) ([]ui.Provider, error) {
	if w.quiet {
		return nil, nil
	}
	declared := []string{"door_only", "environment_clean", "filesystem_private", "network_closed", "supervised"}
	return []ui.Provider{
		{
			Name: "local", Declared: declared,
			Report: &ui.ConformanceReport{At: noon.AddDate(0, 0, -3), Expires: noon.AddDate(0, 0, 27), Version: "v1.0.0", User: "gatehouse", Passed: 87, Failed: 1, Absent: 2, Cases: []ui.ConformanceCase{
				{ID: "SB-01", Name: "the environment holds nothing of the node", Outcome: "passed", Evidence: "12 variables, each of the closed list", Proves: "environment_clean"},
				{ID: "SB-14", Name: "no route but the door", Outcome: "failed", Evidence: "connect 192.0.2.1:443: " + strings.Repeat("reached-", 30), Proves: "network_closed"},
				{ID: "SB-22", Name: "no vsock", Outcome: "absent", Evidence: "this machine has none"},
			}},
			UsedBy: []ui.ProviderUse{
				{Bundle: bundleShadow, Configured: "shadow", Effective: "shadow", Policy: "credential_free"},
				{Bundle: bundlePaused, Configured: "hard", Effective: "shadow", Policy: "required"},
				{Bundle: "legacy-agent", Configured: "shadow", Effective: "hard", Policy: "compatibility"},
			},
		},
		{Name: "oci", Declared: declared, ReportFault: "the report of provider oci expired 3 days ago (provider_capability_missing)"},
		{Name: "remote", NotAvailable: "the machine build-host does not answer", ReportFault: "nothing was judged"},
	}, nil
}

func (w *world) Settings(context.Context) (ui.Settings, error) {
	if w.quiet {
		return ui.Settings{}, nil
	}
	return ui.Settings{
		Listeners:   []ui.Setting{{Name: "hooks", Value: "0.0.0.0:8080", Note: "the only one meant to be public"}, {Name: "operator", Value: "http://127.0.0.1:8081"}, {Name: "public_url", Value: "https://hooks.gatehouse.example.org/a/rather/long/prefix"}},
		Endpoints:   []ui.Setting{{Name: "main", Value: "github", Note: "${file:/run/secrets/github_old}, ${file:/run/secrets/github_new}"}, {Name: "nightly", Value: "cron", Note: "0 3 * * * Europe/Berlin"}},
		Connections: []ui.Setting{{Name: "claude", Value: "model anthropic", Note: "${secret:anthropic}"}},
		Rules:       []ui.Setting{{Name: "promotion.approvers", Value: "2"}, {Name: "internal_networks", Value: "10.0.0.0/8 fd00::/8"}},
		Keys:        []ui.Setting{{Name: "root", Value: "gatehouse.example/node-1/root+c15b5475", Note: "active, from index 0 to no end"}, {Name: "seal", Value: "gatehouse.example/node-1/seal+1291af3a", Note: "retired, from index 0 to index 4711"}},
		Auditors:    []ui.Setting{{Name: "acme-audit", Value: "every session"}},
		People:      []ui.Setting{{Name: "issuer", Value: "https://id.example.com", Note: "people are named by their email"}, {Name: "platform-team", Value: "reviewer, approver", Note: "group"}},
	}, nil
}

// decided are proposals in every state.
type decided struct{ w *world }

func version(n byte) string { return fmt.Sprintf("%02x%062d", n, 0) }

func (d decided) Proposals() []gatekeeper.Proposal {
	if d.w.quiet {
		return nil
	}
	base := gatekeeper.Proposal{Kind: gatekeeper.ProposeVersion, Bundle: bundleShadow, Digest: version(7), Base: version(2), From: bundle.Shadow, To: bundle.Shadow, By: "ann@example.com", Via: "ui", At: noon.Add(-2 * time.Hour), Needs: 2, Reason: "the build needs this package"}
	make := func(id, state string, edit func(*gatekeeper.Proposal)) gatekeeper.Proposal {
		p := base
		p.ID, p.State = id, state
		if state != gatekeeper.ProposalOpen {
			p.Ended, p.EndedBy = noon.Add(-time.Hour), "bob@example.com"
		}
		if edit != nil {
			edit(&p)
		}
		return p
	}
	yes := gatekeeper.Approval{By: "bob@example.com", Via: "ui", At: noon.Add(-time.Hour), Receipt: strings.Repeat("Q29tbWl0", 5)}
	return []gatekeeper.Proposal{
		make("open", gatekeeper.ProposalOpen, nil),
		make("moved", gatekeeper.ProposalOpen, func(p *gatekeeper.Proposal) { p.By, p.Via, p.Reason = "agents-team@example.com", "api", hostile }),
		make("enforcer", gatekeeper.ProposalOpen, func(p *gatekeeper.Proposal) {
			p.Kind, p.Bundle, p.Digest, p.Enforcer, p.From, p.To, p.By, p.Via = gatekeeper.ProposeMode, bundleLong, version(4), "egress", bundle.Shadow, bundle.Hard, gatekeeper.ByLocal, "cli"
			p.Base = p.Digest
		}),
		make("applied", gatekeeper.ProposalApplied, func(p *gatekeeper.Proposal) { p.Approvals = []gatekeeper.Approval{yes} }),
		make("rejected", gatekeeper.ProposalRejected, nil),
		make("replaced", gatekeeper.ProposalReplaced, func(p *gatekeeper.Proposal) { p.Kind, p.Bundle = gatekeeper.ProposeResume, bundlePaused }),
	}
}

func (d decided) Proposal(id string) (gatekeeper.Proposal, error) {
	for _, p := range d.Proposals() {
		if p.ID == id {
			return p, nil
		}
	}
	return gatekeeper.Proposal{}, problem.New(problem.NotFound, "there is no such proposal", "List them.")
}

func (d decided) Version(digest string) ([]byte, error) {
	if digest == version(7) {
		return []byte(after()), nil
	}
	return []byte(before), nil
}

func (d decided) Approve(_ context.Context, id, _ string, _ gatekeeper.By) (gatekeeper.Proposal, error) {
	if id == "moved" {
		return gatekeeper.Proposal{}, problem.New(problem.CandidateChanged, "the proposal is for another version than the one you were shown", "look at it again and approve what you see")
	}
	return gatekeeper.Proposal{}, problem.New(problem.SelfApproval, "a proposal cannot be approved by who made it", "ask somebody else; tokens count as their owner")
}

func (d decided) Reject(_ context.Context, id, _ string, _ gatekeeper.By) (gatekeeper.Proposal, error) {
	return d.Proposal(id)
}

func (d decided) Propose(context.Context, []byte, string, gatekeeper.By) (gatekeeper.Proposal, error) {
	return d.Proposal("open")
}

func (d decided) ProposeMode(context.Context, string, string, bundle.Mode, string, gatekeeper.By) (gatekeeper.Proposal, error) {
	return d.Proposal("enforcer")
}

func (d decided) Rollback(context.Context, string, string, string, gatekeeper.By) error {
	return problem.New(problem.NotCovered, "that version would widen what is in force: a new host: packages.example.com", "propose it: a widening needs a second person")
}

func (d decided) Pause(context.Context, string, string, gatekeeper.By) error { return nil }

func (d decided) Resume(context.Context, string, string, gatekeeper.By) (gatekeeper.Proposal, error) {
	return d.Proposal("replaced")
}

func (d decided) Note(context.Context, string, string, string, gatekeeper.By) error { return nil }
