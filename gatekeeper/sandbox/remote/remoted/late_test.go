//go:build linux

package remoted

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/remote"
)

type nowhere struct{ sandbox.Provider }

func (nowhere) Name() string { return "nowhere" }
func (nowhere) Start(context.Context, sandbox.Spec, net.Listener) (sandbox.Sandbox, error) {
	return nil, errors.New("no machine")
}

// TestEndedWhileItStarts: a node that gives up while its sandbox is being made
// leaves no door, shim or folder on the machine.
func TestEndedWhileItStarts(t *testing.T) {
	store, err := NewStore(filepath.Join(t.TempDir(), "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "doors")
	s, err := New(Options{Provider: nowhere{}, Artifacts: store, Token: make([]byte, 32), Dir: dir, Program: "/bin/false", Agents: func(uint32) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x, err := s.enter("s-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := x.end(); err != nil { // the node's DELETE
		t.Fatal(err)
	}
	if x.start(t.Context(), &remote.Create{Session: "s-1", Door: &remote.DoorKey{}}) == nil {
		t.Error("it started")
	}
	_ = x.end() // as create does
	if _, err := os.Stat(filepath.Join(dir, "s-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the session's folder is still there: %v", err)
	}
	if x.door != nil {
		t.Error("its door is still open")
	}
}
