package sandbox_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/sandbox"
)

func TestControlMessages(t *testing.T) {
	exit := 7
	var b bytes.Buffer
	sent := []sandbox.FromInit{{Hello: sandbox.ControlVersion}, {Ready: true}, {Ran: true, Controls: map[string]string{"call bpf": "EPERM"}}, {Exit: &exit}, {Fault: &sandbox.Fault{Step: sandbox.StepFilter, Text: "line\nbreak"}}}
	for _, m := range sent {
		if err := sandbox.Send(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	r := sandbox.NewReader(&b)
	for _, want := range sent {
		var got sandbox.FromInit
		if err := r.Next(&got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if err := r.Next(new(sandbox.FromInit)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestControlMessagesAreBounded(t *testing.T) {
	if err := sandbox.Send(io.Discard, sandbox.ToRoom{Run: &sandbox.Agent{Argv: []string{strings.Repeat("a", 300<<10)}}}); err == nil {
		t.Error("an endless message was sent")
	}
	r := sandbox.NewReader(strings.NewReader(strings.Repeat("a", 1<<20)))
	if err := r.Next(new(sandbox.FromRoom)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("an endless line: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"ready":true}` + "\n" + `{"cases":[{"ID":"SB-01"}]}` + "\n"))
	f.Add([]byte("{\"exit\":1e99}\n\n\x00\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := sandbox.NewReader(bytes.NewReader(b))
		for range 100 {
			var m sandbox.FromRoom
			if err := r.Next(&m); err != nil {
				return
			}
		}
	})
}

func TestProven(t *testing.T) {
	r := sandbox.Report{Cases: []sandbox.Case{
		{Proves: sandbox.NetworkClosed, Outcome: sandbox.Passed},
		{Proves: sandbox.NetworkClosed, Outcome: sandbox.Absent},
		{Proves: sandbox.VsockClosed, Outcome: sandbox.Failed},
		{Proves: sandbox.VsockClosed, Outcome: sandbox.Passed},
		{Proves: sandbox.DoorOnly, Outcome: "something else"},
	}}
	want := map[sandbox.Capability]bool{sandbox.NetworkClosed: true, sandbox.VsockClosed: false, sandbox.DoorOnly: false}
	if diff := cmp.Diff(want, r.Proven()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlanCallsNoStranger(t *testing.T) {
	reserved := []netip.Prefix{
		netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("fd00::/8"),
	}
	for range 200 {
		p := sandbox.NewPlan()
	target:
		for _, s := range p.Targets {
			ap, err := netip.ParseAddrPort(s)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range reserved {
				if r.Contains(ap.Addr().Unmap()) {
					continue target
				}
			}
			t.Fatalf("%s may be somebody", s)
		}
		if !strings.HasSuffix(p.Name, ".invalid") {
			t.Fatalf("%s may be somebody", p.Name)
		}
	}
}

func TestListenDoor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120)) // longer than a socket address holds
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "door.sock")
	l, err := sandbox.ListenDoor(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v %v", fi, err)
	}
	if got, err := sandbox.DoorSocket(l); err != nil || got != path {
		t.Errorf("socket %q, %v", got, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := sandbox.DoorSocket(l); err == nil {
		t.Error("a closed door has a socket")
	}
	if got, err := sandbox.DoorSocket(nil); err != nil || got != "" {
		t.Errorf("no door: %q, %v", got, err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if _, err := sandbox.DoorSocket(tcp); err == nil {
		t.Error("a TCP listener is taken for a door")
	}
}
