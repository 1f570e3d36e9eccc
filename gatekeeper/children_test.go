package gatekeeper

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

const parentOf3 = `apiVersion: gatehouse/v1
kind: Bundle
name: fix-ci
mode: hard
accepts: member
match: [{source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, fork: false}}]
session: {agent: {command: {argv: [/bin/agent]}}, task: "CI failed, run {{ run_id }}.", timeout: 45m, children: {bundles: [%s], max: 3, depth: 1}}
egress: [{host: api.example.com, methods: [GET, HEAD, POST]}]
`

// childBundle is a bundle that parentOf3 covers, with one thing changed.
func childBundle(name string, change ...string) string {
	src := `apiVersion: gatehouse/v1
kind: Bundle
name: ` + name + `
mode: hard
accepts: member
session: {agent: {command: {argv: [/bin/lint]}}, task: "Lint run {{ run_id }}.", timeout: 5m}
egress: [{host: api.example.com}]
`
	for i := 0; i+1 < len(change); i += 2 {
		src = strings.Replace(src, change[i], change[i+1], 1)
	}
	return src
}

// kin is a node on which parents wait and children do as the test says.
type kin struct {
	*world
	started chan string // sessions whose agent runs
	finish  chan struct{}
}

func newKin(t *testing.T, children ...string) *kin {
	t.Helper()
	names := []string{"lint"}
	for i := range children {
		names = append(names, fmt.Sprintf("wide-%d", i))
	}
	bundles := append([]string{fmt.Sprintf(parentOf3, strings.Join(names, ", ")), childBundle("lint")}, children...)
	k := &kin{started: make(chan string, 100), finish: make(chan struct{})}
	k.world = newWorld(t, bundles, withDoors(&doors{}), func(w *world) { w.opts.Unlimited = true })
	k.room.run = func(ctx context.Context, s sandbox.Spec) (sandbox.End, error) {
		k.started <- s.Session
		if s.Argv[0] == "/bin/lint" {
			select {
			case <-k.finish:
				return sandbox.End{Reason: sandbox.Completed, Artifacts: map[string]string{"x": strings.Repeat("0", 64)}}, nil
			case <-ctx.Done():
			}
		} else {
			<-ctx.Done()
		}
		return sandbox.End{Reason: sandbox.Cancelled, Exit: 143}, nil
	}
	return k
}

// parent starts a root and waits until its agent runs.
func (k *kin) parent(n string) string {
	k.t.Helper()
	id := k.take(failedRun(n))
	if got := k.runs(); got != id {
		k.t.Fatalf("%s runs, want the parent %s", got, id)
	}
	return id
}

func (k *kin) runs() string {
	k.t.Helper()
	select {
	case id := <-k.started:
		return id
	case <-time.After(patience):
		k.t.Fatal("no agent ran")
		return ""
	}
}

// spawn starts a child as the agent's endpoint does once the gate has allowed it.
func (k *kin) spawn(parent, name string) (string, error) {
	p, err := k.ReserveChild(k.t.Context(), parent, name)
	if err != nil {
		return "", err
	}
	return p.Start(k.t.Context())
}

func TestChild(t *testing.T) {
	k := newKin(t)
	parent := k.parent("1")
	id, err := k.spawn(parent, "lint")
	if err != nil {
		t.Fatal(err)
	}
	if got := k.runs(); got != id {
		t.Fatalf("%s runs, want the child %s", got, id)
	}
	open := k.log.receipts(id)[0].Open
	root := k.log.receipts(parent)[0].Open
	if open.Parent != parent || open.Bundle != "lint" || open.Event != root.Event || open.EventLeaf != root.EventLeaf || root.Parent != "" {
		t.Errorf("child's session.open %+v", open)
	}
	if diff := cmp.Diff([]Child{{ID: id, Bundle: "lint", State: "running"}}, k.Children(parent)); diff != "" {
		t.Errorf("children (-want +got):\n%s", diff)
	}
	close(k.finish)
	if r := k.ended(id); r.Reason != "completed" || r.Parent != parent {
		t.Errorf("the child's result %+v", r)
	}
	zero := 0
	if diff := cmp.Diff([]Child{{ID: id, Bundle: "lint", State: "ended", Reason: "completed", Exit: &zero}}, k.Children(parent)); diff != "" {
		t.Errorf("children (-want +got):\n%s", diff)
	}
	if err := k.Kill(t.Context(), parent); err != nil {
		t.Fatal(err)
	}
	if r := k.ended(parent); len(r.Children) != 1 || r.Children[0] != id {
		t.Errorf("the parent's result %+v", r)
	}
	// Its parent's event is spent: nothing may start it again by itself.
	if _, err := k.Retry(t.Context(), id); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("retry of a child: %v", err)
	}
	k.wantStory(id, happy)
	if d := k.o.Doors.(*doors); len(d.opened) != 2 || d.opened[1].spec.Parent != parent || d.opened[1].spec.Session != id {
		t.Errorf("%d doors", len(d.opened))
	}
}

// TestChildrenHold: 100 children are asked for at once, and the limits hold.
func TestChildrenHold(t *testing.T) {
	k := newKin(t)
	parent := k.parent("1")
	var mu sync.Mutex
	var ids []string
	codes := map[problem.Code]int{}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			id, err := k.spawn(parent, "lint")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ids = append(ids, id)
			} else {
				codes[problem.CodeOf(err)]++
			}
		})
	}
	wg.Wait()
	if len(ids) == 0 || len(ids) > 3 || len(ids)+codes[problem.BundleNotCovered] != 100 {
		t.Fatalf("%d children started, refusals %v", len(ids), codes)
	}
	for range 10 { // whatever was released, the count of a life stays
		_, _ = k.spawn(parent, "lint")
	}
	if n := len(k.Children(parent)); n != 3 {
		t.Errorf("%d children, want 3", n)
	}
	// Depth: a child has no children of its own here, and is one level down.
	child := k.Children(parent)[0].ID
	p, err := k.ReserveChild(t.Context(), child, "lint")
	if err != nil {
		t.Fatal(err)
	}
	if p.Depth() != 2 {
		t.Errorf("a grandchild's depth is %d", p.Depth())
	}
	if _, err := p.Start(t.Context()); problem.CodeOf(err) != problem.BundleNotCovered {
		t.Errorf("a grandchild: %v", err)
	}
}

// TestChildNotCovered: M-02. What is smaller in all but one thing is not smaller.
func TestChildNotCovered(t *testing.T) {
	wide := map[string][]string{
		"shadow":         {"mode: hard", "mode: shadow"},
		"other_provider": {"session: {", "session: {provider: remote, "},
		"longer_timeout": {"timeout: 5m", "timeout: 46m"},
		"another_host":   {"api.example.com", "other.example.com"},
		"weaker_policy":  {"egress:", "credentials: {compatibility: {reason: old, expires: 2027-01-31}}\negress:"},
		"lower_accepts":  {"accepts: member", "accepts: outsider"},
		"operations":     {"egress:", "operations: [scm.comment]\negress:"},
	}
	var names, bundles []string
	for name, change := range wide {
		bundles = append(bundles, childBundle(fmt.Sprintf("wide-%d", len(names)), change...))
		names = append(names, name)
	}
	k := newKin(t, bundles...)
	parent := k.parent("1")
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			if _, err := k.ReserveChild(t.Context(), parent, fmt.Sprintf("wide-%d", i)); problem.CodeOf(err) != problem.BundleNotCovered {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("not_named", func(t *testing.T) { // the gate refuses it; should it not, nothing starts
		if _, err := k.spawn(parent, "fix-ci"); problem.CodeOf(err) != problem.BundleNotCovered {
			t.Errorf("got %v", err)
		}
	})
	if n := len(k.Children(parent)); n != 0 {
		t.Errorf("%d children started", n)
	}
	if _, err := k.spawn(parent, "lint"); err != nil {
		t.Errorf("control: %v", err)
	}
}

// TestChildrenEndWithParent: however a parent ends, no child outlives it, and
// the parent's chain closes last.
func TestChildrenEndWithParent(t *testing.T) {
	ways := map[string]struct {
		end    func(*kin, string)
		reason string
	}{
		"killed":  {func(k *kin, id string) { _ = k.Kill(context.Background(), id) }, "cancelled"},
		"revoked": {func(k *kin, id string) { _ = k.Revoke(context.Background(), id) }, "revoked"},
		"stop":    {func(k *kin, _ string) { k.Close() }, "lost"},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			k := newKin(t)
			parent := k.parent("1")
			var ids []string
			for range 2 {
				id, err := k.spawn(parent, "lint")
				if err != nil {
					t.Fatal(err)
				}
				k.runs()
				ids = append(ids, id)
			}
			way.end(k, parent)
			k.ended(parent)
			for _, id := range ids {
				r := k.ended(id)
				if r.Reason != way.reason {
					t.Errorf("a child ended %s, want %s", r.Reason, way.reason)
				}
			}
			if _, err := k.spawn(parent, "lint"); err == nil {
				t.Error("a child started after its parent's end")
			}
			if _, open := k.room.count(); open != 0 {
				t.Errorf("%d sandboxes are left", open)
			}
			k.wantStory(ids[0], "open admitted, preparing, running, ended("+way.reason+"), close "+way.reason)
		})
	}
}
