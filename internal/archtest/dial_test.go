package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dialers may open a connection or resolve a name, each for its reason. To the
// outside world only enforcers/upstream may, and it takes a Permit.
var dialers = map[string]string{
	"ingest/github":                  "an http.Client over the round tripper that upstream gives the node",
	"enforcers/upstream":             "the only way out: takes a Permit",
	"internal/api":                   "the node's own unix socket",
	"internal/auth":                  "an http.Client over the round tripper that upstream gives the node",
	"gatekeeper/sandbox/initd":       "inside the sandbox: the session's door",
	"gatekeeper/sandbox/probe":       "inside the sandbox: tries to get out",
	"gatekeeper/sandbox/remote":      "the session's own door, a unix socket, for connections that came through the shim",
	"gatekeeper/sandbox/remote/shim": "on the other machine: the session's door",
	"cmd/gatehouse/demo":             "inside the sandbox: the hostile agent",
	"cmd/gatehouse":                  "the command line as a sender: event send, endpoint test",
}

// dials are the standard library's ways to reach out.
var dials = map[string][]string{
	"net":      {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialUnix", "DialIP", "Dialer", "Resolver", "DefaultResolver", "LookupHost", "LookupIP", "LookupAddr", "LookupCNAME", "LookupTXT", "LookupMX", "LookupNS", "LookupSRV"},
	"net/http": {"Get", "Head", "Post", "PostForm", "DefaultClient", "DefaultTransport", "Client", "Transport"},
	"tls":      {"Dial", "DialWithDialer", "Dialer"},
}

// TestOnlyUpstreamDials proves promise 3's first half on the source: no other
// room can reach the outside, whatever it decides.
func TestOnlyUpstreamDials(t *testing.T) {
	seen := map[string]bool{}
	walkSource(t, func(dir, path string, file *ast.File, fset *token.FileSet) {
		names := map[string]string{} // local name -> import path
		for _, imp := range file.Imports {
			p := strings.Trim(imp.Path.Value, `"`)
			name := p[strings.LastIndexByte(p, '/')+1:]
			if imp.Name != nil {
				name = imp.Name.Name
			}
			names[name] = p
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			for _, forbidden := range dials[strings.TrimPrefix(names[pkg.Name], "crypto/")] {
				if sel.Sel.Name != forbidden {
					continue
				}
				seen[dir] = true
				if dialers[dir] == "" {
					t.Errorf("%s uses %s.%s; only enforcers/upstream reaches the outside", fset.Position(sel.Pos()), pkg.Name, forbidden)
				}
			}
			return true
		})
	})
	for dir := range dialers {
		if !seen[dir] {
			t.Errorf("%s is excepted and reaches nothing: remove it", dir)
		}
	}
}

func walkSource(t *testing.T, visit func(dir, path string, file *ast.File, fset *token.FileSet)) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case ".git", "node_modules", "testdata", "bin", "dist", ".tools", "bench":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(dir), path, file, fset)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
