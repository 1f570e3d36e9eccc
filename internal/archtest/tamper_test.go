package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// tamperLast is the last case of docs/receipts-spec.md.
const tamperLast = 47

// laterCases need witnesses, which are not there yet.
var laterCases = map[int]bool{18: true, 19: true}

// TestTamperCases: every RC case is a subtest of a test whose name begins with
// TestTamper, so that -run TestTamper runs them all and nothing else is needed.
func TestTamperCases(t *testing.T) {
	have := map[int]bool{}
	for _, f := range tamperFiles(t) {
		for _, n := range f.cases() {
			have[n] = true
		}
	}
	var missing []string
	for n := 1; n <= tamperLast; n++ {
		if !have[n] && !laterCases[n] {
			missing = append(missing, fmt.Sprintf("RC-%02d", n))
		}
	}
	if len(missing) > 0 {
		t.Errorf("no TestTamper has %s", strings.Join(missing, ", "))
	}
}

// tamperPackage is the tests of one folder: function -> what its body names.
type tamperPackage struct {
	calls map[string][]string
	ids   map[string][]int
}

// tamperFiles reads every test of the module.
func tamperFiles(t *testing.T) map[string]*tamperPackage {
	t.Helper()
	out := map[string]*tamperPackage{}
	fset := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (strings.HasPrefix(name, ".") && len(name) > 2 || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "TestTamper") && !strings.Contains(string(text), "RC-") {
			return err
		}
		file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		if out[dir] == nil {
			out[dir] = &tamperPackage{map[string][]string{}, map[string][]int{}}
		}
		out[dir].read(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var tamperID = regexp.MustCompile(`RC-(\d\d)`)

func (p *tamperPackage) read(file *ast.File) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				p.calls[f.Name.Name] = append(p.calls[f.Name.Name], n.Name)
			case *ast.BasicLit:
				for _, m := range tamperID.FindAllStringSubmatch(n.Value, -1) {
					if id, err := strconv.Atoi(m[1]); err == nil && n.Kind == token.STRING {
						p.ids[f.Name.Name] = append(p.ids[f.Name.Name], id)
					}
				}
			}
			return true
		})
	}
}

// cases returns the ids in the TestTamper functions and in what they use.
func (p *tamperPackage) cases() (out []int) {
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		out = append(out, p.ids[name]...)
		for _, c := range p.calls[name] {
			if !strings.HasPrefix(c, "Test") {
				visit(c)
			}
		}
	}
	for name := range p.calls {
		if strings.HasPrefix(name, "TestTamper") {
			visit(name)
		}
	}
	return out
}
