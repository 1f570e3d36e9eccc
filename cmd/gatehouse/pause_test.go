//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatehouse/receipts"
)

func TestTamperPause(t *testing.T) { t.Run("RC-42_paused_node", pausedNode) }

// pausedNode stops a node for a while, as a machine that swaps or a debugger
// does (RC-42). Whoever watches it notices the silence, no other process can take
// its log meanwhile, and afterwards the log is whole: no fork, and no gap that no
// receipt admits.
func pausedNode(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: waits for a watcher to miss a node")
	}
	t.Parallel()
	one := newLiveNode(t, "")
	one.start()
	one.settled(one.deliver(quiet(1))...)
	root := strings.TrimSpace(one.gatehouse(exitOK, "receipts", "root"))

	watching := make(chan watchEnd, 1)
	seen := filepath.Join(tempDir(t), "seen.note")
	cmd := hear(t, exec.CommandContext(t.Context(), binary, "-c", one.path("gatehouse.yaml"), "receipts", "watch", "--root", root, "--every", "100ms", "--max-age", "45s", "--keep", seen))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		watching <- watchEnd{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}()
	one.until("seen by the watcher", func() bool {
		select {
		case w := <-watching:
			t.Fatalf("the watcher exits %d: %s%s", w.exit, w.out, w.errs)
		default:
		}
		_, err := os.Stat(seen)
		return err == nil
	})

	if err := one.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if one.cmd != nil {
			_ = one.cmd.Process.Signal(syscall.SIGCONT)
		}
	})
	// Nobody opens the paused node's journal, on other ports either.
	var taken bytes.Buffer
	again := hear(t, exec.CommandContext(t.Context(), binary, "-c", one.elsewhere(), "serve"))
	again.Stdout, again.Stderr = &taken, &taken
	if err := again.Run(); err == nil || !strings.Contains(taken.String(), "journal_locked") {
		t.Errorf("a second process on the same state: %v\n%s", err, taken.String())
	}
	select {
	case w := <-watching:
		if w.exit != int(receipts.ExitUnproven) || !strings.Contains(w.errs, "time: no checkpoint for") {
			t.Errorf("the watcher exits %d: %s%s", w.exit, w.out, w.errs)
		}
	case <-time.After(patience):
		t.Fatal("nobody notices that the node is silent")
	}
	if err := one.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	one.settled(one.deliver(quiet(2))...)
	one.gatehouse(exitOK, "receipts", "watch", "--once", "--root", root, "--keep", seen) // from where it was before
	one.gatehouse(exitOK, "receipts", "export", "-f", one.path("all.gh"))
	file, err := os.ReadFile(one.path("all.gh"))
	if err != nil {
		t.Fatal(err)
	}
	r := receipts.Verify(bytes.NewReader(file), receipts.Options{Root: root})
	if r.Exit != receipts.ExitUnproven || r.Class != receipts.ClassEndAsOf || len(r.Findings) != 1 {
		t.Errorf("exit %d %s, want an intact log whose end is proven as of its checkpoint: %+v", r.Exit, r.Class, r.Findings)
	}
	one.gatehouse(exitOK, "rebuild", "--check")
	one.stop()
}

// elsewhere writes the node's configuration with other addresses and returns its
// path.
func (n *liveNode) elsewhere() string {
	n.t.Helper()
	b, err := os.ReadFile(n.path("gatehouse.yaml"))
	if err != nil {
		n.t.Fatal(err)
	}
	text := string(b)
	for _, addr := range []string{n.hooks, n.operator, n.private} {
		other, err := freeAddr()
		if err != nil {
			n.t.Fatal(err)
		}
		text = strings.ReplaceAll(text, addr, other)
	}
	n.write("elsewhere.yaml", text)
	return n.path("elsewhere.yaml")
}

// watchEnd is how a watcher ended.
type watchEnd struct {
	exit      int
	out, errs string
}
