package enforcers_test

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

// caseName is the name of a subtest that is a case of the bypass matrix.
var caseName = regexp.MustCompile(`^(EG-[0-9]{2,3})_[a-z0-9_]+$`)

// TestMatrixIsWhole fails when a case of the bypass matrix is no subtest any
// more of a test that -run TestBypassMatrix runs: EG-01 to EG-78 and EG-93 to
// EG-110; those in between are of git and of models. A case counts where its name
// stands in such a test or in a table or a function that one uses.
func TestMatrixIsWhole(t *testing.T) {
	found := map[string]bool{}
	if err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		names, err := casesIn(path)
		for _, name := range names {
			found[name] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 110; n++ {
		if id := fmt.Sprintf("EG-%02d", n); (n < 79 || n > 92) && !found[id] {
			t.Errorf("%s is no subtest of TestBypassMatrix", id)
		}
	}
}

// casesIn returns the ids whose names stand in what the tests of one folder
// named TestBypassMatrix reach.
func casesIn(dir string) (ids []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	bodies := map[string]ast.Node{} // functions and variables of the folder's tests
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					bodies[d.Name.Name] = d
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok {
						for _, name := range v.Names {
							bodies[name.Name] = v
						}
					}
				}
			}
		}
	}
	var visit func(name string)
	visit = func(name string) {
		body := bodies[name]
		if body == nil {
			return
		}
		delete(bodies, name)
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				visit(n.Name)
			case *ast.BasicLit:
				text, _ := strconv.Unquote(n.Value)
				// A name may go on with the mode.
				text, _, _ = strings.Cut(text, "/")
				if m := caseName.FindStringSubmatch(text); m != nil {
					ids = append(ids, m[1])
				}
			}
			return true
		})
	}
	for name := range bodies {
		if strings.HasPrefix(name, "TestBypassMatrix") {
			visit(name)
		}
	}
	return ids, nil
}
