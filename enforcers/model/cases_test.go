package model_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestEveryCase: each case of models, spend and telemetry has a subtest of its
// id somewhere in the repository: a literal that names a subtest by standing as
// a table's key or as the first word of t.Run.
func TestEveryCase(t *testing.T) {
	id := regexp.MustCompile(`\b(ME|EG)-\d\d\b`)
	have := map[string]bool{}
	root := filepath.Join("..", "..")
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for name := range subtests(f) {
			for _, m := range id.FindAllString(strings.ReplaceAll(name, "_", " "), -1) {
				have[m] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for n := 1; n <= 26; n++ {
		want = append(want, fmt.Sprintf("ME-%02d", n))
	}
	for n := 87; n <= 92; n++ {
		want = append(want, fmt.Sprintf("EG-%d", n))
	}
	for _, w := range want {
		if !have[w] {
			t.Errorf("%s has no subtest", w)
		}
	}
}

// subtests returns the strings that name subtests in a file.
func subtests(f *ast.File) map[string]bool {
	names := map[string]bool{}
	literal := func(e ast.Expr) {
		for {
			b, ok := e.(*ast.BinaryExpr) // "ME-11_" + name
			if !ok {
				break
			}
			e = b.X
		}
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil && !strings.Contains(s, " ") {
				names[s] = true
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			literal(n.Key)
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Run" && len(n.Args) > 0 {
				literal(n.Args[0])
			}
		}
		return true
	})
	return names
}
