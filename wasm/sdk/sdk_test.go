package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gatehouse/wasm/sdk"
)

// write puts a template into a fresh folder and returns it.
func write(t *testing.T, language, name string) string {
	t.Helper()
	files, err := sdk.Template(language, name)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	for path, b := range files {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestGoTemplateBuilds builds a new enforcer as its author would, outside this
// module.
func TestGoTemplateBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a guest")
	}
	dir := write(t, "go", "acme_hosts")
	cmd := exec.Command("sh", "build.sh")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fi, err := os.Stat(filepath.Join(dir, "acme_hosts.wasm"))
	if err != nil || fi.Size() == 0 {
		t.Errorf("no module: %v", err)
	}
	vet := exec.Command("go", "vet", "./...")
	vet.Dir = dir
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("vet: %v\n%s", err, out)
	}
}

func TestTemplateRefuses(t *testing.T) {
	for _, c := range [][2]string{{"go", ""}, {"go", "../x"}, {"go", "A"}, {"go", "a b"}, {"cobol", "x"}} {
		if _, err := sdk.Template(c[0], c[1]); err == nil {
			t.Errorf("%q in %q was accepted", c[1], c[0])
		}
	}
}
