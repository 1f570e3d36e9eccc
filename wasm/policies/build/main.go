// Command build makes std.wasm from package policies, its jumps straightened
// (meter.Straighten), and writes SHA256SUMS beside it. With -check it builds in a
// copy of the sources in another folder and fails when the bytes differ from the
// ones checked in.
//
// It reads the module it is run in and runs only the Go tool.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"gatehouse/wasm/meter"
)

const (
	folder = "wasm/policies"
	module = "std.wasm"
	sums   = "SHA256SUMS"
)

func main() {
	check := flag.Bool("check", false, "compare a rebuild in another folder with the module checked in")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	tmp, err := os.MkdirTemp("", "gatehouse-policies-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	built := filepath.Join(tmp, module)

	if !check {
		if err := compile(root, built); err != nil {
			return err
		}
		b, err := os.ReadFile(built)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, folder, module), b, 0o644); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, folder, sums), sumLine(b), 0o644)
	}

	// Another folder, so that a path leaking into the module shows.
	copyRoot := filepath.Join(tmp, "elsewhere", "gatehouse")
	if err := copySources(root, copyRoot); err != nil {
		return err
	}
	if err := compile(copyRoot, built); err != nil {
		return err
	}
	want, err := os.ReadFile(filepath.Join(root, folder, module))
	if err != nil {
		return err
	}
	listed, err := os.ReadFile(filepath.Join(root, folder, sums))
	if err != nil {
		return err
	}
	got, err := os.ReadFile(built)
	if err != nil {
		return err
	}
	if !bytes.Equal(listed, sumLine(want)) {
		return fmt.Errorf("%s does not list the digest of %s; run `make policies`", sums, module)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("a rebuild differs from the %s checked in: %x, want %x; run `make policies`", module, sha256.Sum256(got), sha256.Sum256(want))
	}
	fmt.Printf("policies: %s rebuilt byte for byte, %d bytes\n", module, len(got))
	return nil
}

// compile builds the guest of the module at root and straightens its jumps. The
// environment is fixed as far as it can reach the bytes.
func compile(root, to string) error {
	toolchain, err := toolchainOf(root)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=",
		"-o", to, "./"+folder+"/guest")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWASM=", "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off",
		"GOTOOLCHAIN="+toolchain)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compile the guest: %w", err)
	}
	module, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	module, straight, err := meter.Straighten(module)
	if err != nil {
		return fmt.Errorf("straighten the jumps: %w", err)
	}
	if straight == 0 {
		return errors.New("no function has the form in which jumps are straightened: the compiler writes another one now")
	}
	return os.WriteFile(to, module, 0o644)
}

// toolchainOf returns the toolchain that go.mod names: another one makes other
// bytes.
func toolchainOf(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "go "); ok {
			return "go" + v, nil
		}
	}
	return "", errors.New("go.mod names no Go version")
}

// copySources copies what the guest is made of: the module file and the Go
// files of package policies.
func copySources(root, to string) error {
	files := []string{"go.mod", "go.sum"}
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		rel, err := filepath.Rel(root, path)
		files = append(files, rel)
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, f)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, f), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func sumLine(b []byte) []byte { return fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(b), module) }
