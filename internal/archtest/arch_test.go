package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "gatehouse"

// Limits of DESIGN.md section 3: a file over ask is a question in review, a
// file over fail is a failure. Generated code is exempt.
const (
	askLines  = 600
	failLines = 1000
)

type pkg struct {
	ImportPath string
	Dir        string
	Imports    []string
	Standard   bool
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,Standard", "./...")
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// matches reports whether the module-relative path p is named by pattern.
func matches(pattern, p string) bool {
	if folder, ok := strings.CutSuffix(pattern, "/*"); ok {
		return p == folder || strings.HasPrefix(p, folder+"/")
	}
	return p == pattern
}

// line returns the index of p's layer, or -1. The longest pattern wins, so
// that "gatekeeper" does not swallow "gatekeeper/sandbox/*".
func line(p string) int {
	best, at := -1, -1
	for i, l := range layers {
		for _, pattern := range l.packages {
			if matches(pattern, p) && len(pattern) > best {
				best, at = len(pattern), i
			}
		}
	}
	return at
}

func excepted(from, to string) bool {
	for pattern, tos := range edges {
		if !matches(pattern, from) {
			continue
		}
		for t := range tos {
			if matches(t, to) {
				return true
			}
		}
	}
	return false
}

// judge returns why from must not import to, or "".
func judge(from, to string) string {
	lf, lt := line(from), line(to)
	switch {
	case lf < 0:
		return from + " stands in no layer: add it to layers"
	case lt < 0:
		return to + " stands in no layer: add it to layers"
	case excepted(from, to):
		return ""
	case strings.HasPrefix(to, from+"/"):
		return from + " imports its own child " + to
	case strings.HasPrefix(from, to+"/"):
		return "" // a child may import its parent folder
	case lt >= lf:
		return from + " (" + layers[lf].name + ") imports " + to + " (" + layers[lt].name + ")"
	}
	return ""
}

func TestImportRule(t *testing.T) {
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		if line(from) < 0 && from != "internal/archtest" {
			t.Errorf("%s stands in no layer: add it to layers", from)
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			if why := judge(from, to); why != "" {
				t.Error(why)
			}
		}
	}
}

func TestJudgeRefuses(t *testing.T) {
	cases := map[string]struct{ from, to string }{
		"upward":         {"internal/journal", "enforcers"},
		"sibling":        {"internal/journal", "internal/blob"},
		"own_child":      {"enforcers", "enforcers/upstream"},
		"engine_to_keep": {"internal/notary", "gatekeeper"},
		"unknown":        {"internal/nowhere", "internal/problem"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if judge(c.from, c.to) == "" {
				t.Errorf("%s -> %s was allowed", c.from, c.to)
			}
		})
	}
	if why := judge("enforcers/door", "enforcers/upstream"); why != "" {
		t.Errorf("door -> upstream refused: %s", why)
	}
}

func TestSoleUsers(t *testing.T) {
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imp := range p.Imports {
			for prefix, users := range soleUsers {
				if !strings.HasPrefix(imp, prefix) {
					continue
				}
				allowed := false
				for _, u := range users {
					allowed = allowed || matches(u, from)
				}
				if !allowed {
					t.Errorf("%s imports %s; only %v may", from, imp, users)
				}
			}
		}
	}
}

// TestOnlyTestsImport: what builds and starts programs, or fails on demand, for
// tests is in no program.
func TestOnlyTestsImport(t *testing.T) {
	for _, p := range list(t) {
		for _, imp := range p.Imports {
			switch strings.TrimPrefix(imp, module+"/") {
			case "gatekeeper/sandbox/programtest", "internal/secretstore/storetest":
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, imp)
			}
		}
	}
}

// TestReceiptsStandsAlone proves what an auditor relies on: the verifier's
// package reaches no network and runs no program.
func TestReceiptsStandsAlone(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./receipts", "./cmd/gatehouse-verify")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		switch dep {
		case "net", "net/http", "os/exec", "plugin":
			t.Errorf("receipts reaches %s", dep)
		}
	}
}

func TestFileSizes(t *testing.T) {
	err := filepath.WalkDir(root(t), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case ".git", "node_modules", "testdata", "bin", "dist", ".tools":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_templ.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(b[:min(len(b), 200)], []byte("DO NOT EDIT")) {
			return nil
		}
		n := bytes.Count(b, []byte("\n"))
		switch {
		case n > failLines:
			t.Errorf("%s has %d lines, over %d", path, n, failLines)
		case n > askLines:
			t.Logf("%s has %d lines: could it be two files?", path, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
