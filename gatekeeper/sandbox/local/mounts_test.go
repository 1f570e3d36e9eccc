//go:build linux

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

func TestMountsAreReadOnly(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("hello from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if err := os.Chmod(dir, 0o777); err != nil { // writable for everybody, and still not from inside
		t.Fatal(err)
	}
	r := run(t, sandbox.Spec{Mounts: []sandbox.Mount{{Source: dir, Path: "/opt/tools"}}}, nil,
		"cat /opt/tools/tool; touch /opt/tools/new || echo refused; mount -o remount,rw /opt/tools || echo still refused")
	if !strings.Contains(r.out, "hello from the host") || !strings.Contains(r.out, "\nrefused") || !strings.Contains(r.out, "still refused") {
		t.Errorf("output:\n%s", r.out)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("SB-33: the agent wrote into a mount")
	}
}

func TestMountsThatReplaceTheSandbox(t *testing.T) {
	p, _ := provider(t)
	cases := map[string]sandbox.Mount{
		"etc":       {Source: "/srv", Path: "/etc"},
		"door":      {Source: "/srv", Path: "/run/gatehouse"},
		"delivered": {Source: "/srv", Path: "/gatehouse/event.md"},
		"system":    {Source: "/srv", Path: "/usr/bin"},
		"root":      {Source: "/srv", Path: "/"},
		"dots":      {Source: "/srv/../etc", Path: "/opt/x"},
		"relative":  {Source: "srv", Path: "/opt/x"},
		"absent":    {Source: "/nonexistent-4711", Path: "/opt/x"},
	}
	for name, m := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := p.Start(t.Context(), sandbox.Spec{Session: "s-1", Argv: []string{"true"}, Unlimited: true, Mounts: []sandbox.Mount{m}}, nil)
			if problem.CodeOf(err) != problem.ConfigInvalid {
				t.Errorf("got %v", err)
			}
		})
	}
}
