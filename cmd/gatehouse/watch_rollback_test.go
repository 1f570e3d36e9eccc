//go:build linux

package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTamperWatch puts a node's whole state, journal and streams, back to an
// earlier time (RC-16): nothing that the node holds shows it, what a watcher
// keeps elsewhere does, and with a copy of the checkpoint elsewhere the node
// itself refuses.
func TestTamperWatch(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: starts a node five times; receipts has the rules in short")
	}
	t.Parallel()
	n := newLiveNode(t, "", sleeper("0"))
	keep, earlier, mnt := n.path("seen.note"), n.path("earlier"), n.path("mnt")
	root := strings.TrimSpace(n.gatehouse(exitOK, "receipts", "root"))
	watch := func(want int) string {
		return n.gatehouse(want, "receipts", "watch", "--once", "--root", root, "--keep", keep)
	}
	copied := func(from, to string) { // with owners and modes, as a snapshot of a disk
		n.t.Helper()
		if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
			n.t.Fatalf("%v\n%s", err, out)
		}
	}
	back := func() {
		if err := os.RemoveAll(n.path("state")); err != nil {
			n.t.Fatal(err)
		}
		copied(earlier, n.path("state"))
	}
	n.start()
	n.settled(n.deliver(failure(1))...)
	n.stop()
	had := leavesOf(t, n.path("state/log/checkpoint"))
	copied(n.path("state"), earlier)
	stateCopied(earlier, n.path("state"))
	n.start()
	n.settled(n.deliver(failure(2), failure(3), quiet(4), quiet(5), quiet(6))...)
	// A checkpoint comes once a second, and one that the earlier state has says nothing
	// of what comes now: half a dozen sessions more make far more than eight leaves.
	eventually(t, "a checkpoint of what was delivered since", func() bool {
		watch(exitOK)
		return leavesOf(t, keep) > had+8
	})
	n.stop()

	t.Run("RC-16_state_rolled_back", func(t *testing.T) {
		n.t = t
		defer n.kill() // when it fails half-way
		back()
		n.start()
		// Its log has another future now, or none yet: which of the two depends on
		// how much it has written since.
		if out := watch(1); !strings.Contains(out, "rollback") && !strings.Contains(out, "fork") {
			t.Errorf("watch says %q", out)
		}
		n.stop()
	})
	t.Run("RC-16_with_a_checkpoint_elsewhere", func(t *testing.T) {
		n.t = t
		defer n.kill()
		back()
		b, err := os.ReadFile(n.path("gatehouse.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		n.write("gatehouse.yaml", string(b)+"checkpoints: ["+mnt+"]\n")
		if err := os.Mkdir(mnt, 0o700); err != nil {
			t.Fatal(err)
		}
		n.start()
		n.settled(n.deliver(failure(7), quiet(8))...)
		n.stop()
		back()
		n.launch()
		select {
		case <-n.exited:
			n.cmd = nil
		case <-time.After(patience):
			t.Fatal("the node started behind its checkpoint elsewhere")
		}
		if line := n.lastLine(); !strings.Contains(line, "log_inconsistent") {
			t.Errorf("the node says %q", line)
		}
	})
	n.t = t
}

// leavesOf is the size of the log in the checkpoint of file.
func leavesOf(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitN(string(b), "\n", 3)
	n, err := strconv.Atoi(lines[min(1, len(lines)-1)])
	if err != nil {
		t.Fatalf("%s is no checkpoint: %q", file, b)
	}
	return n
}
