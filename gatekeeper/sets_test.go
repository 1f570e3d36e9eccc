package gatekeeper

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/event"
	"gatehouse/receipts"
)

// setFile is an egress set npm with those hosts.
func setFile(hosts ...string) []byte {
	return []byte("apiVersion: gatehouse/v1\nkind: EgressSet\nname: npm\nhosts: [" + strings.Join(hosts, ", ") + "]\n")
}

// folder is a folder of sets whose files change underneath.
type folder struct {
	mu sync.Mutex
	fs fstest.MapFS
}

func (f *folder) Set(name string) (*bundle.Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bundle.Sets(f.fs).Set(name)
}

func (f *folder) write(src []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fs = fstest.MapFS{}
	if src != nil {
		f.fs["npm.yaml"] = &fstest.MapFile{Data: src}
	}
}

// T-13: one person who may write a set's file changes nothing that a hard bundle
// may reach. The file is a candidate like any other.
func TestSetsAreHeld(t *testing.T) {
	src := plus("fix-ci", "egress: [{set: npm}]\nmode: hard\n")
	const good, evil = "registry.example.com", "evil.example.com"
	type node struct {
		*world
		sets  *folder
		doors *doors
		run   int
	}
	start := func(t *testing.T, src string) *node {
		n := &node{sets: &folder{}, doors: &doors{}}
		n.sets.write(setFile(good))
		n.world = newWorld(t, nil, withDoors(n.doors), func(w *world) { w.opts.Sets = n.sets })
		n.mustApply(src, "applied")
		return n
	}
	// session runs one and returns what its door judged by, and the set's digest
	// in session.open.
	session := func(t *testing.T, n *node) (policy []byte, digest receipts.Hash) {
		t.Helper()
		n.run++
		id := n.take(failedRun(fmt.Sprint(n.run), func(e *event.Event) { e.Lists["pull_requests"] = []string{fmt.Sprint(n.run)} }))
		open := n.log.receipts(id)[0].Open
		if open.State != stateAdmitted {
			t.Fatalf("session.open is %+v", open)
		}
		n.ended(id)
		n.doors.mu.Lock()
		defer n.doors.mu.Unlock()
		return n.doors.opened[len(n.doors.opened)-1].spec.Policy, open.Sets["npm"]
	}
	digestOf := func(t *testing.T, src []byte) receipts.Hash {
		s, err := bundle.ParseSet(src)
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest()
	}
	t.Run("T-13_changed_file_widens_nothing", func(t *testing.T) {
		n := start(t, src)
		n.sets.write(setFile(good, evil))
		policy, digest := session(t, n)
		if bytes.Contains(policy, []byte(evil)) || !bytes.Contains(policy, []byte(good)) || digest != digestOf(t, setFile(good)) {
			t.Errorf("the session was judged by the changed file: %s", policy)
		}
		a := n.mustApply(src, "waiting") // what serve does at its next start
		if a.Why != "egress set npm adds host "+evil {
			t.Errorf("why: %q", a.Why)
		}
		if policy, _ = session(t, n); bytes.Contains(policy, []byte(evil)) {
			t.Errorf("the waiting version is in force: %s", policy)
		}
		p := n.newestProposal()
		n.approve1(p, ann)
		if policy, _ = session(t, n); bytes.Contains(policy, []byte(evil)) {
			t.Error("one person was enough")
		}
		n.approve1(p, bob)
		if policy, digest = session(t, n); !bytes.Contains(policy, []byte(evil)) || digest != digestOf(t, setFile(good, evil)) {
			t.Errorf("the approved set is not in force: %s", policy)
		}
	})
	t.Run("T-13_changed_file_is_what_was_proposed", func(t *testing.T) {
		n := start(t, src)
		n.sets.write(setFile(good, "new.example.com"))
		p := n.propose(src, ann)
		n.sets.write(setFile(good, evil)) // after the proposal, before the approval
		n.approve1(p, bob)
		if policy, _ := session(t, n); bytes.Contains(policy, []byte(evil)) || !bytes.Contains(policy, []byte("new.example.com")) {
			t.Errorf("approved was the file as it was proposed: %s", policy)
		}
	})
	t.Run("T-13_receipts_name_the_sets", func(t *testing.T) {
		n := start(t, src)
		n.sets.write(setFile(good, evil))
		n.approve1(n.propose(src, ann), bob)
		want := "sha256:" + hexOf(digestOf(t, setFile(good, evil)))
		var named []string
		for _, r := range n.newest() {
			if r.X["set.npm"] == want {
				named = append(named, string(r.Type)+" "+r.Change.Result)
			}
		}
		if got := strings.Join(named, ", "); got != "approval waiting, bundle.apply applied" {
			t.Errorf("the set's digest stands in %q", got)
		}
	})
	t.Run("narrower_file_needs_nobody", func(t *testing.T) {
		n := start(t, src)
		n.sets.write(setFile(good, evil))
		n.approve1(n.propose(src, ann), bob)
		n.sets.write(setFile(good))
		n.mustApply(src, "applied")
		if policy, _ := session(t, n); bytes.Contains(policy, []byte(evil)) {
			t.Errorf("the narrower set is not in force: %s", policy)
		}
		p := n.History("fix-ci")
		if wide := hexOf(p[1].Digest); code(n.Rollback(t.Context(), "fix-ci", wide, "back", ann)) != "not_covered" {
			t.Error("T-13: one person went back to the wider set")
		}
	})
	t.Run("shadow_takes_the_file_when_applied", func(t *testing.T) {
		soft := strings.Replace(src, "mode: hard\n", "", 1)
		n := start(t, soft)
		n.sets.write(setFile(good, evil))
		if policy, _ := session(t, n); bytes.Contains(policy, []byte(evil)) {
			t.Error("the file is in force before anybody applied it")
		}
		n.mustApply(soft, "applied")
		if policy, _ := session(t, n); !bytes.Contains(policy, []byte(evil)) {
			t.Error("the applied file is not in force")
		}
	})
	t.Run("file_gone", func(t *testing.T) {
		n := start(t, src)
		n.sets.write(nil)
		if policy, _ := session(t, n); !bytes.Contains(policy, []byte(good)) {
			t.Errorf("what was approved is gone: %s", policy)
		}
		if a := n.mustApply(src, "rejected"); !strings.Contains(a.Why, "no egress set npm") {
			t.Errorf("why: %q", a.Why)
		}
	})
	t.Run("survives_the_bucket", func(t *testing.T) {
		n := start(t, src)
		n.sets.write(setFile(good, evil))
		n.restarted()
		if policy, _ := session(t, n); bytes.Contains(policy, []byte(evil)) {
			t.Errorf("rebuilt from the journal it is judged by the file: %s", policy)
		}
	})
	t.Run("T-13_version_without_its_set", func(t *testing.T) {
		n := start(t, src)
		b, err := bundle.Parse([]byte(src))
		if err != nil {
			t.Fatal(err)
		}
		d := b.Digest()
		raw, err := json.Marshal(desired{Bytes: string(b.Canonical()), Digest: hexOf(d), Mode: bundle.Hard})
		if err != nil {
			t.Fatal(err)
		}
		bucket := n.store.bucket("bundles")
		e, err := bucket.Get(t.Context(), "fix-ci")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bucket.Update(context.Background(), "fix-ci", raw, e.Revision); err != nil {
			t.Fatal(err)
		}
		open := n.log.receipts(n.take(failedRun("old")))[0].Open
		if open.State != stateRefused || open.Code != "set_not_pinned" {
			t.Errorf("session.open is %+v", open)
		}
		if a := n.mustApply(src, "waiting"); !strings.Contains(a.Why, "held by one of the two versions only") {
			t.Errorf("why: %q", a.Why)
		}
	})
}
