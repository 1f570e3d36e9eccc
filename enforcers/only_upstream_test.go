package enforcers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// dials are the ways to the network, by package and name; a trailing star
// stands for any ending.
var dials = map[string][]string{
	"net":                   {"Dial*", "Resolve*", "Lookup*", "DefaultResolver", "FileConn", "ListenPacket", "ListenUDP", "ListenIP"},
	"net/http":              {"Get", "Head", "Post", "PostForm", "DefaultClient", "DefaultTransport", "Client", "Transport"},
	"crypto/tls":            {"Dial*"},
	"github.com/miekg/dns":  {"Client", "Exchange*", "Dial*", "Transfer"},
	"syscall":               {"Socket", "Connect"},
	"golang.org/x/sys/unix": {"Socket", "Connect"},
}

// hostReaders may look at what a request says of its host: they compare it.
var hostReaders = map[string][]string{
	"door/http2.go":          {"serve", "wellFormed"},
	"door/request.go":        {"newRequest"},         // writes the Authority over it
	"git/lfs_batch.go":       {"lfsAction"},          // of an address in the host's own answer, compared with the host
	"model/call.go":          {"sources"},            // of a URL in the body, which the provider would fetch: judged, never dialed here
	"model/fetch.go":         {"ask"},                // of a URL in the body: judged as an Authority before it is fetched
	"telemetry/mediator.go":  {"sinkOf"},             // of a connection's URL and DSN, which the operator wrote
	"telemetry/sentry.go":    {"own"},                // compares a DSN with the session's own
	"telemetry/spans.go":     {"decision", "action"}, // of a receipt, for people to read
	"upstream/credential.go": {"Own"},                // refuses any but the connection's own
	"upstream/node.go":       {"RoundTrip"},          // refuses any but its own
	"upstream/do.go":         {"request"},            // writes it
	"upstream/http1.go":      {"wellFormed", "bare"}, // refuses an empty one; writes what do.go wrote
}

// TestOnlyUpstreamDials: nothing under enforcers but upstream has a way to the
// network, and nobody takes a host from a request (the bug peers ship most).
func TestOnlyUpstreamDials(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata") {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, found := range offences(filepath.ToSlash(path), file) {
			t.Errorf("%s: %s", fset.Position(found.pos), found.what)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

type offence struct {
	pos  token.Pos
	what string
}

func offences(path string, file *ast.File) []offence {
	names := make(map[string]string) // local name -> import path
	for _, imp := range file.Imports {
		p := strings.Trim(imp.Path.Value, `"`)
		name := p[strings.LastIndexByte(p, '/')+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		names[name] = p
	}
	var out []offence
	for _, decl := range file.Decls {
		fn, _ := decl.(*ast.FuncDecl)
		called := make(map[ast.Node]bool)
		ast.Inspect(decl, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				called[call.Fun] = true
			}
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && !strings.HasPrefix(path, "upstream/") && matchesAny(dials[names[x.Name]], sel.Sel.Name) {
				out = append(out, offence{sel.Pos(), "only upstream may use " + names[x.Name] + "." + sel.Sel.Name})
			}
			// A call is Authority.Host(); a field is a request's or a URL's.
			if field := sel.Sel.Name; (field == "Host" || field == "RemoteAddr") && !called[sel] {
				if fn == nil || !slices.Contains(hostReaders[path], fn.Name.Name) {
					out = append(out, offence{sel.Pos(), "the " + field + " of a request is the agent's words: use the Authority"})
				}
			}
			return true
		})
	}
	return out
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, star := strings.CutSuffix(p, "*")
		return p == name || star && strings.HasPrefix(name, prefix)
	})
}

// TestOffences shows that the test above can fail.
func TestOffences(t *testing.T) {
	for name, src := range map[string]string{
		"dial":        `package x; import "net"; func f() { net.Dial("tcp", "a:1") }`,
		"dialer":      `package x; import "net"; var d net.Dialer`,
		"renamed":     `package x; import n "net"; func f() { n.LookupHost("a") }`,
		"http":        `package x; import "net/http"; func f() { http.Get("https://a") }`,
		"client":      `package x; import "net/http"; var c = http.Client{}`,
		"dns":         `package x; import "github.com/miekg/dns"; var c dns.Client`,
		"host":        `package x; import "net/http"; func f(r *http.Request) string { return r.Host }`,
		"url_host":    `package x; import "net/http"; func f(r *http.Request) string { return r.URL.Host }`,
		"remote_addr": `package x; import "net/http"; func f(r *http.Request) string { return r.RemoteAddr }`,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if len(offences("door/x.go", file)) != 1 {
			t.Errorf("%s goes unseen", name)
		}
	}
}
