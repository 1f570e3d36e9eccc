//go:build linux

package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) {
	p, o := provider(t)
	const canary = "canary-that-must-not-be-found-3f9a"
	for _, dir := range []string{filepath.Dir(o.Run), os.TempDir()} {
		f, err := os.CreateTemp(dir, "host-secret-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(f.Name()) })
		if _, err := f.WriteString(canary); err != nil {
			t.Fatal(err)
		}
		if err := f.Chmod(0o644); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	t.Setenv("GATEHOUSE_CANARY", canary)
	sandboxtest.Test(t, &sandboxtest.Suite{
		Provider: p, Base: sandbox.Spec{Unlimited: true}, Dir: t.TempDir(), Canaries: []string{canary}, Quick: testing.Short(),
	})
}
