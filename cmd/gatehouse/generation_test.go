package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/authority"
	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// keptRecorder keeps the verdicts of decisions.
type keptRecorder struct {
	n    int
	last enforcers.Decision
}

func (k *keptRecorder) Decision(_ context.Context, _ *enforcers.Action, d *enforcers.Decision, _ bool) (receipts.Hash, error) {
	k.n++
	k.last = *d
	return receipts.Leaf(fmt.Append(nil, k.n)), nil
}
func (*keptRecorder) Outcome(receipts.Hash, enforcers.Outcome) {}
func (*keptRecorder) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

// TestReplacePolicy is EG-100 between versions of a bundle: a narrower one takes
// the place of the one before, any other takes away and adds nothing.
func TestReplacePolicy(t *testing.T) {
	d, _ := exits(t)
	version := func(rules string) *bundle.Bundle {
		b, err := bundle.Parse([]byte("apiVersion: gatehouse/v1\nkind: Bundle\nname: b\nmode: hard\naccepts: member\nsession: {agent: codex, task: go}\negress: [" + rules + "]\n"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	compiled := func(b *bundle.Bundle) []byte {
		p, err := b.Policy(nil, bundle.Subject{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := version("{host: a.test, up: 2MiB}, {host: b.test}")
	rec := &keptRecorder{}
	dir := shortDir(t, "door")
	opened, err := d.Open(t.Context(), gatekeeper.DoorSpec{Session: "s1", Bundle: first, Digest: first.Digest(), Policy: compiled(first), Recorder: rec, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	o := opened.(*openDoor)
	defer o.Close("revoked")
	judged := func(host string) (*enforcers.Permit, enforcers.Decision) {
		to, err := authority.New(authority.HTTPS, host, 443)
		if err != nil {
			t.Fatal(err)
		}
		a := o.gate.Action(enforcers.HTTPRequest)
		a.HTTP = &enforcers.HTTP{To: to, Method: "GET", Path: "/", Body: enforcers.Body{Mode: "none"}}
		return o.gate.Decide(t.Context(), a)
	}
	replace := func(b *bundle.Bundle) {
		narrower, _ := first.Covers(b)
		if err := o.Replace(t.Context(), gatekeeper.Replacement{Bundle: b, Digest: b.Digest(), Policy: compiled(b), Narrower: narrower}); err != nil {
			t.Fatal(err)
		}
	}
	old, _ := judged("a.test")
	if old == nil || old.Grant().Limits.Up != 2<<20 {
		t.Fatal("the first version does not allow a.test")
	}

	// Wider here, narrower there: what is new stays out, what is gone is gone.
	other := version("{host: b.test, up: 9MiB}, {host: c.test}")
	replace(other)
	if old.Live() == nil {
		t.Error("a permit of the version before is still good")
	}
	digest := other.Digest()
	for host, rule := range map[string]string{"a.test": fmt.Sprintf("%x.egress.default_deny", digest[:6]), "c.test": "egress.default_deny"} {
		if p, decision := judged(host); p != nil || decision.Effect != enforcers.Deny || decision.Rule != rule {
			t.Errorf("%s: %+v", host, decision)
		}
	}
	// What is kept for replay tells the versions apart.
	d1 := &receipts.Dec{Policy: receipts.Hash(first.Digest()), Rule: fmt.Sprintf("%x.egress.default_deny", digest[:6])}
	if path, rule := judgedUnder(dir, d1); filepath.Base(path) != judgedByVersion(fmt.Sprintf("%x", digest[:6])) || rule != "egress.default_deny" {
		t.Errorf("judged under %s by %s", path, rule)
	}
	d1.Rule = "egress[1]"
	if path, rule := judgedUnder(dir, d1); filepath.Base(path) != judgedByFile || rule != d1.Rule {
		t.Errorf("judged under %s by %s", path, rule)
	}
	p, decision := judged("b.test")
	if p == nil || p.Grant().Limits.Or().Up != enforcers.DefaultUp || decision.Policy != receipts.Hash(first.Digest()) {
		t.Errorf("b.test: %+v", decision)
	}

	// Narrower: it is the policy now, and its receipts name it.
	next := version("{host: a.test}")
	replace(next)
	if p, decision := judged("a.test"); p == nil || p.Grant().Limits.Or().Up != enforcers.DefaultUp || decision.Policy != receipts.Hash(next.Digest()) {
		t.Errorf("a.test: %+v", decision)
	}
	if p, _ := judged("b.test"); p != nil {
		t.Error("b.test is still allowed")
	}

	// And back to the first, as a rollback does.
	replace(first)
	if p, _ := judged("b.test"); p == nil {
		t.Error("b.test is not allowed again")
	}
}

// TestBundleChangeCuts is EG-70 and EG-100 through a node as users run it: a new
// version of a bundle cuts what a running session has open under the one before
// and judges the rest of the session; a killed session has nothing open.
func TestBundleChangeCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a node and its sandboxes")
	}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	var open atomic.Int64
	if _, err := world.HTTP("listed.test", netip.MustParseAddr("93.184.216.34"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "stream") {
			fmt.Fprintln(w, "answered", r.URL.Path)
			return
		}
		open.Add(1)
		defer open.Add(-1)
		fmt.Fprintln(w, "streaming")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})); err != nil {
		t.Fatal(err)
	}
	const text = `apiVersion: gatehouse/v1
kind: Bundle
name: watcher
mode: hard
accepts: outsider
match: [{source: github, kinds: [workflow_run.completed], where: {conclusion: failure}}]
session:
  agent: {command: {argv: ["sh", "-c", "curl -sN http://listed.test/a/stream; echo cut; curl -s http://listed.test/a/x; curl -s http://listed.test/b/x; curl -sN http://listed.test/b/stream; sleep 300"]}}
  task: go
  timeout: 10m
egress:
  - {host: listed.test, schemes: [http], ports: [80], paths: %s}
`
	n := newLiveNode(t, worldConfig(world), fmt.Sprintf(text, `["/a/**", "/b/**"]`))
	n.args = []string{"--dev"}
	n.start()
	n.deliver(failure(1))
	n.until("streaming", func() bool { return open.Load() == 1 })

	n.write("next.yaml", fmt.Sprintf(text, `["/b/**"]`))
	n.gatehouse(exitOK, "bundle", "apply", n.path("next.yaml"))
	applied := time.Now()
	n.until("judged by the new version", func() bool { return strings.Contains(transcripts(t, n), "answered /b/x") })
	said := transcripts(t, n)
	if !strings.Contains(said, "streaming\ncut\n") || !strings.Contains(said, `"path_not_listed"`) {
		t.Errorf("the session saw:\n%s", said)
	}
	t.Logf("the session went on %v after the change", time.Since(applied).Round(time.Millisecond))

	n.until("streaming again", func() bool { return open.Load() == 1 })
	var list struct {
		Items []struct{ ID string }
	}
	n.until("listed", func() bool {
		return n.client.Get(t.Context(), "/v1/sessions", nil, &list) == nil && len(list.Items) == 1
	})
	n.gatehouse(exitOK, "session", "kill", list.Items[0].ID)
	n.until("cut by the end of the session", func() bool { return open.Load() == 0 })
	n.stop()
}

// transcripts returns what the agents of a node's sessions have printed.
func transcripts(t *testing.T, n *liveNode) string {
	t.Helper()
	files, err := filepath.Glob(n.path("state", "transcripts", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}
