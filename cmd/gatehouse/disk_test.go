//go:build linux

package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/internal/outside"
)

// diskSize holds a node with its journal's first segment, its reserve and the
// NATS store, its init and what both need to go on, and little more.
const diskSize = "size=320m,mode=0711"

// smallDisk mounts a file system of its own for a node.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a disk that is full needs a mount of its own, and a mount needs root")
	}
	dir := nodeDir(t)
	if err := unix.Mount("gatehouse-test", dir, "tmpfs", unix.MS_NODEV, diskSize); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// littleSpace is what the journal sets aside before it takes records again, and
// not much more.
const littleSpace = 80 << 20

// fill takes all the space that is left; the returned function gives a little of
// it back.
func (n *liveNode) fill() (free func()) {
	n.t.Helper()
	path := n.path("ballast")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for {
		k, err := f.Write(chunk)
		if errors.Is(err, syscall.ENOSPC) {
			if len(chunk) > 4096 {
				chunk = chunk[:4096] // the last pages too
				continue
			}
			break
		}
		if err != nil || k == 0 {
			n.t.Fatal(k, err)
		}
	}
	return func() {
		st, err := os.Stat(path)
		if err == nil {
			err = os.Truncate(path, max(0, st.Size()-littleSpace))
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

// padded is a delivery with so many bytes more.
func padded(p post, size int) post {
	p.body = append(p.body[:len(p.body)-1:len(p.body)-1], `,"filler":"`+strings.Repeat("x", size)+`"}`...)
	return p
}

// knocker is a hard bundle whose agent asks its one listed host again and again
// and prints the status of each answer. It outlives a connection that the door
// closes on it: printf writes line by line, and its second write would end it.
func knocker(world *outside.World) (config, bundle string) {
	return worldConfig(world), `apiVersion: gatehouse/v1
kind: Bundle
name: knocker
mode: hard
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, repository.id: ["1"], fork: false}}
session:
  agent:
    command:
      argv: [/bin/bash, -c, "trap '' PIPE; while true; do exec 3<>/dev/tcp/listed.test/80 && printf 'GET / HTTP/1.1\\r\\nHost: listed.test\\r\\nConnection: close\\r\\n\\r\\n' >&3 && head -n 1 <&3; sleep 0.1; done"]
  task: "run {{ facts.run_id }}"
  timeout: 10m
egress:
  - {host: listed.test, ports: [80], schemes: [http], methods: [GET], paths: ["/**"]}
`
}

func TestTamperDisk(t *testing.T) { t.Run("RC-43_disk_full", diskFull) }

// diskFull is RC-43 on a real disk: no delivery is answered 200 that is not
// kept, nothing more leaves a hard session, and everything goes on by itself
// when there is space again.
func diskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a full disk takes a minute; make test runs it")
	}
	world, site := listedWorld(t)
	config, bundle := knocker(world)
	n := newLiveNodeOn(t, smallDisk(t), config, bundle)
	n.args = []string{"--dev"}
	n.start()
	kept := n.deliver(failure(1), quiet(2))
	n.until("asking outside", func() bool { return site.Requests() > 3 })

	free := n.fill()
	// The journal has some space of its own that it had allocated; fill that too.
	refused, refusals := post{}, 0
	for run := 1000; refusals < 3 && run < 100_000; run++ {
		p := padded(quiet(run), 128<<10) // few events: each is judged afterwards
		a, err := n.send(p)
		switch {
		case err != nil:
			t.Fatal(err)
		case a.Status == http.StatusOK:
			kept = append(kept, a.ID)
		case a.Status == http.StatusServiceUnavailable:
			refused = p
			refusals++
		case a.Status == http.StatusTooManyRequests:
			time.Sleep(20 * time.Millisecond) // the endpoint's rate
		default:
			t.Fatalf("answered %d %s", a.Status, a.Code)
		}
	}
	if refusals < 3 {
		t.Fatal("the disk never filled")
	}
	n.until("not ready", func() bool { s := n.status(); return s.Node != "" && !s.Ready })
	if s := n.status(); len(s.Reasons) == 0 || s.Reasons[0].Code != "journal_full" {
		t.Errorf("reasons %+v", s.Reasons)
	}
	// Hard mode: what cannot be written down does not happen.
	at := site.Requests()
	settledAt := time.Now()
	n.until("silent outside", func() bool {
		if now := site.Requests(); now != at {
			at, settledAt = now, time.Now()
		}
		return time.Since(settledAt) > 3*time.Second // thirty tries of the agent
	})

	free() // the journal takes most of it, the streams go on with the rest
	n.until("ready again", func() bool { return n.status().Ready })
	again := n.deliver(refused) // the sender's retry
	if again[0] == "" {
		t.Fatal("the retry was not taken")
	}
	kept = append(kept, again[0])
	n.until("asking outside again", func() bool { return site.Requests() > at })
	n.until("on the streams", func() bool { s := n.status(); return s.Bus.Stored+1 >= s.Bus.Durable })
	for _, s := range n.sessions() {
		if s.State == "running" {
			n.gatehouse(exitOK, "session", "kill", s.ID)
		}
	}
	n.settled(kept...)
	n.gatehouse(exitOK, "rebuild", "--check")
	exported := filepath.Join(tempDir(t), "receipts.gh")
	n.gatehouse(exitOK, "receipts", "export", "-f", exported)
	root := strings.TrimSpace(n.gatehouse(exitOK, "receipts", "root"))
	n.gatehouse(3, "receipts", "verify", exported, "--root", root) // whole, its end unproven
	n.stop()
}
