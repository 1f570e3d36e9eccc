//go:build linux

package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// Main is a package's TestMain: it builds the real gatehouse-init once and puts
// its path into *initPath (unless something stands there already), does what is
// to be done before, runs the tests and fails when a goroutine is left. It
// returns the exit code.
func Main(m *testing.M, initPath *string, before ...func()) int {
	if *initPath == "" {
		dir, err := os.MkdirTemp("", "gatehouse-init-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if *initPath, err = build(dir, "gatehouse-init"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	for _, do := range before {
		do()
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// Build builds the program of that name, static as it is released, into dir.
func Build(t testing.TB, dir, name string) string {
	t.Helper()
	path, err := build(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func build(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", path, "gatehouse/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}
