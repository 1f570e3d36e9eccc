package bundle_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"gatehouse/gatekeeper/bundle"
)

// What this file writes: schema.json and the generated parts of
// docs/bundles.md, both out of the structs, their tags and their comments.

const docFile = "../../docs/bundles.md"

// source is what the package's files say: comments of struct fields, patterns
// of named forms, comments of lint codes.
type source struct {
	types  map[string]string            // type -> comment
	fields map[string]map[string]string // type -> field -> comment
	forms  map[string]string            // form variable -> pattern
	codes  [][2]string                  // lint code, comment
}

func read(t *testing.T) source {
	t.Helper()
	s := source{types: map[string]string{}, fields: map[string]map[string]string{}, forms: map[string]string{}}
	fset := token.NewFileSet()
	for _, file := range []string{"bundle.go", "values.go", "shapes.go", "validate.go", "lint.go"} {
		f, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				switch x := spec.(type) {
				case *ast.TypeSpec:
					s.types[x.Name.Name] = meaning(g.Doc)
					if st, ok := x.Type.(*ast.StructType); ok {
						s.fields[x.Name.Name] = map[string]string{}
						for _, field := range st.Fields.List {
							for _, n := range field.Names {
								s.fields[x.Name.Name][n.Name] = meaning(field.Doc)
							}
						}
					}
				case *ast.ValueSpec:
					if g.Tok == token.CONST && strings.HasPrefix(x.Names[0].Name, "Lint") {
						s.codes = append(s.codes, [2]string{unquote(x.Values[0]), oneLine(x.Comment)})
					}
					if len(x.Values) == 1 && strings.HasSuffix(x.Names[0].Name, "Form") {
						if call, ok := x.Values[0].(*ast.CallExpr); ok && len(call.Args) == 1 {
							s.forms[strings.TrimSuffix(x.Names[0].Name, "Form")] = unquote(call.Args[0])
						}
					}
				}
			}
		}
	}
	return s
}

func unquote(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	return strings.Trim(lit.Value, "`\"")
}

func oneLine(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return strings.Join(strings.Fields(c.Text()), " ")
}

// meaning is a comment without the Go name that it begins with.
func meaning(c *ast.CommentGroup) string {
	_, s, _ := strings.Cut(oneLine(c), " ")
	s = strings.TrimPrefix(strings.TrimPrefix(s, "is "), "are ")
	return s
}

// required reports whether a field must be written.
func required(f reflect.StructField) bool {
	own, _, _ := strings.Cut(f.Tag.Get("validate"), "dive")
	return slices.Contains(strings.Split(own, ","), "required")
}

// scalars are the types that a reader sees as one value.
var scalars = map[reflect.Type]map[string]any{
	reflect.TypeFor[bundle.Duration](): {"type": "string", "pattern": `^([0-9.]+(h|m|s|ms))+$|^[0-9]+d$`, "examples": []any{"45m"}},
	reflect.TypeFor[bundle.Size]():     {"type": []any{"string", "integer"}, "pattern": `^[0-9]+([KMG]iB)?$`, "examples": []any{"10GiB"}},
	reflect.TypeFor[bundle.Money]():    {"type": "string", "pattern": `^[0-9]+(\.[0-9]{1,9})? USD$`, "examples": []any{"5.00 USD"}},
	reflect.TypeFor[bundle.Rate]():     {"type": "string", "pattern": `^[0-9]+/[0-9a-z.]+$`, "examples": []any{"3/24h"}},
	reflect.TypeFor[bundle.Day]():      {"type": "string", "examples": []any{"2027-01-31"}},
	reflect.TypeFor[netip.Prefix]():    {"type": "string", "examples": []any{"10.1.2.0/24"}},
}

// unionTypes are the types with more than one shape.
var unionTypes = []reflect.Type{
	reflect.TypeFor[bundle.Credentials](), reflect.TypeFor[bundle.Agent](), reflect.TypeFor[bundle.Rootfs](),
	reflect.TypeFor[bundle.GitRepository](), reflect.TypeFor[bundle.Condition](), reflect.TypeFor[bundle.Param](),
}

// unions writes them out.
func unions(g generator) map[reflect.Type]map[string]any {
	one := func(name string, of map[string]any) map[string]any {
		return map[string]any{"type": "object", "additionalProperties": false, "required": []any{name}, "properties": map[string]any{name: of}}
	}
	text := map[string]any{"type": "string"}
	words := map[string]any{"type": "array", "minItems": 1, "items": text}
	value := map[string]any{"type": []any{"string", "number", "boolean"}}
	return map[reflect.Type]map[string]any{
		reflect.TypeFor[bundle.Credentials](): {"oneOf": []any{
			map[string]any{"enum": []any{"credential_free", "required"}},
			one("compatibility", g.object(reflect.TypeFor[bundle.Exception]())),
		}},
		reflect.TypeFor[bundle.Agent](): {"oneOf": []any{
			map[string]any{"enum": []any{"claude-code", "codex", "gemini", "opencode"}},
			one("command", one("argv", words)),
		}},
		reflect.TypeFor[bundle.Rootfs](): {"oneOf": []any{map[string]any{"const": "host"}, one("dir", text), one("oci", text)}},
		reflect.TypeFor[bundle.GitRepository](): {"oneOf": []any{text, map[string]any{
			"type": "object", "additionalProperties": false, "required": []any{"by", "map"},
			"properties": map[string]any{"by": text, "map": map[string]any{"type": "object", "additionalProperties": text}},
		}}},
		reflect.TypeFor[bundle.Param](): {"type": []any{"string", "integer", "boolean", "array", "object"}},
		reflect.TypeFor[bundle.Condition](): {"oneOf": []any{value, map[string]any{"type": "array", "minItems": 1, "items": value}, map[string]any{
			"type": "object", "additionalProperties": false, "minProperties": 1, "properties": map[string]any{
				"prefix": text, "glob": text, "min": map[string]any{"type": "integer"}, "max": map[string]any{"type": "integer"},
				"not": map[string]any{"oneOf": []any{value, map[string]any{"type": "array", "minItems": 1, "items": value}}},
			},
		}}},
	}
}

type generator struct{ s source }

func (g generator) object(t reflect.Type) map[string]any {
	props := map[string]any{}
	var need []any
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		rules := strings.Split(f.Tag.Get("validate"), ",")
		p := g.value(f.Type, rules)
		p["description"] = g.s.fields[t.Name()][f.Name]
		if required(f) {
			need = append(need, name)
		}
		props[name] = p
	}
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": props}
	if len(need) > 0 {
		out["required"] = need
	}
	return out
}

func (g generator) value(t reflect.Type, rules []string) map[string]any {
	if s, ok := scalars[t]; ok {
		return clone(s)
	}
	if slices.Contains(unionTypes, t) {
		return clone(unions(g)[t])
	}
	item := rules
	if i := slices.Index(rules, "dive"); i >= 0 {
		item = rules[i+1:]
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.value(t.Elem(), rules)
	case reflect.Struct:
		return g.object(t)
	case reflect.Slice:
		out := map[string]any{"type": "array", "items": g.value(t.Elem(), item)}
		if slices.Contains(rules, "unique") {
			out["uniqueItems"] = true
		}
		if slices.Contains(rules, "min=1") {
			out["minItems"] = 1
		}
		return out
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": g.value(t.Elem(), nil)}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		out := map[string]any{"type": "string"}
		for _, r := range item {
			name, param, _ := strings.Cut(r, "=")
			if words := strings.Fields(param); name == "oneof" || name == "eq" {
				var list []any
				for _, w := range words {
					list = append(list, w)
				}
				out = map[string]any{"enum": list}
			}
			for form, pattern := range g.s.forms {
				if name == form || name == form+"name" || name == "envname" && form == "env" || name == "modelname" && form == "model" {
					out["pattern"] = pattern
				}
			}
		}
		return out
	default:
		out := map[string]any{"type": "integer"}
		for _, r := range item {
			if n, ok := strings.CutPrefix(r, "gte="); ok {
				out["minimum"] = json.Number(n)
			}
			if n, ok := strings.CutPrefix(r, "lte="); ok {
				out["maximum"] = json.Number(n)
			}
		}
		return out
	}
}

func clone(m map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func TestSchema(t *testing.T) {
	g := generator{read(t)}
	root := g.object(reflect.TypeFor[bundle.Bundle]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Gatehouse capability bundle"
	raw, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "schema.json", append(raw, '\n'))
	if *update {
		return
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(bundle.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	judge := func(src string) error {
		var v any
		if err := yaml.Unmarshal([]byte(src), &v); err != nil {
			t.Fatal(err)
		}
		// Editors see JSON: a date is a string there.
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var instance any
		if err := json.Unmarshal(raw, &instance); err != nil {
			t.Fatal(err)
		}
		return resolved.Validate(instance)
	}
	for name, src := range map[string]string{
		"sample": string(sample(t)), "full": full, "minimal": minimal, "canonical": string(parse(t, full).Canonical()),
	} {
		t.Run("accepts_"+name, func(t *testing.T) {
			if err := judge(src); err != nil {
				t.Error(err)
			}
		})
	}
	for name, src := range map[string]string{
		"unknown_key":    minimal + "egres: []\n",
		"unknown_nested": minimal + "egress: [{hots: a}]\n",
		"no_name":        strings.Replace(minimal, "name: b\n", "", 1),
		"bad_mode":       minimal + "mode: off\n",
		"bad_kind":       minimal + "match: [{source: github, kinds: ['a.b.c']}]\n",
		"bad_agent":      head + "session: {agent: vim, task: go}\n",
		"bare_weakness":  minimal + "credentials: compatibility\n",
	} {
		t.Run("refuses_"+name, func(t *testing.T) {
			if judge(src) == nil {
				t.Error("accepted")
			}
			if _, err := bundle.Parse([]byte(src)); err == nil {
				t.Error("Parse accepts it")
			}
		})
	}
}

// tables writes the reference: one table a struct, in the file's order.
func (g generator) tables() string {
	var b strings.Builder
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type, at string)
	walk = func(t reflect.Type, at string) {
		if seen[t] {
			return
		}
		seen[t] = true
		title := at
		if at == "" {
			title = "The file"
		}
		about := g.s.types[t.Name()]
		fmt.Fprintf(&b, "### %s\n\n%s\n\n| key | value | meaning |\n| --- | --- | --- |\n", title, strings.ToUpper(about[:1])+about[1:])
		type below struct {
			t  reflect.Type
			at string
		}
		var next []below
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			kind, inner, suffix := g.kind(f.Type)
			if required(f) {
				kind += ", required"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, kind, strings.ReplaceAll(g.s.fields[t.Name()][f.Name], "|", "\\|"))
			if inner != nil {
				next = append(next, below{inner, strings.TrimPrefix(at+"."+name+suffix, ".")})
			}
		}
		b.WriteString("\n")
		for _, n := range next {
			walk(n.t, n.at)
		}
	}
	walk(reflect.TypeFor[bundle.Bundle](), "")
	return b.String()
}

// kind words a field's type and returns the struct below it, if it has one.
func (g generator) kind(t reflect.Type) (word string, inner reflect.Type, suffix string) {
	names := map[reflect.Type]string{
		reflect.TypeFor[bundle.Duration](): "duration", reflect.TypeFor[bundle.Size](): "size", reflect.TypeFor[bundle.Money](): "amount",
		reflect.TypeFor[bundle.Rate](): "rate", reflect.TypeFor[bundle.Day](): "date", reflect.TypeFor[netip.Prefix](): "prefix",
		reflect.TypeFor[bundle.Condition](): "condition", reflect.TypeFor[bundle.Param](): "setting",
	}
	if n, ok := names[t]; ok {
		return n, nil, ""
	}
	if slices.Contains(unionTypes, t) {
		return "word or map", nil, ""
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.kind(t.Elem())
	case reflect.Struct:
		return "map", t, ""
	case reflect.Slice:
		word, inner, _ := g.kind(t.Elem())
		return "list of " + strings.Replace(word+"s", "xs", "xes", 1), inner, "[]"
	case reflect.Map:
		word, inner, _ := g.kind(t.Elem())
		return "map of " + word + "s", inner, ".*"
	case reflect.Bool:
		return "true or false", nil, ""
	case reflect.String:
		return "word", nil, ""
	}
	return "number", nil, ""
}

func (g generator) lintTable() string {
	var b strings.Builder
	b.WriteString("| code | when |\n| --- | --- |\n")
	for _, c := range g.s.codes {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c[0], c[1])
	}
	return b.String()
}

func deliverTable() string {
	var b strings.Builder
	b.WriteString("| kind | delivered by default |\n| --- | --- |\n")
	for _, kind := range []string{"check_run", "issue_comment", "issues", "pull_request", "pull_request_review", "pull_request_review_comment", "workflow_run"} {
		fmt.Fprintf(&b, "| `github` `%s` | `%s` |\n", kind, strings.Join(bundle.DefaultDeliver("github", kind), "`, `"))
	}
	return b.String()
}

// block replaces what stands between the marks of a generated part.
func block(t *testing.T, doc []byte, name, body string) []byte {
	t.Helper()
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	i, j := bytes.Index(doc, []byte(begin)), bytes.Index(doc, []byte(end))
	if i < 0 || j < i {
		t.Fatalf("%s has no part %s", docFile, name)
	}
	return slices.Concat(doc[:i+len(begin)], []byte("\n"+strings.TrimRight(body, "\n")+"\n\n"), doc[j:])
}

func TestDoc(t *testing.T) {
	doc, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	g := generator{read(t)}
	policy, err := os.ReadFile("testdata/policy/sample.json")
	if err != nil {
		t.Fatal(err)
	}
	out := block(t, doc, "sample", "```yaml\n"+string(sample(t))+"```")
	out = block(t, out, "keys", g.tables())
	out = block(t, out, "deliver", deliverTable())
	out = block(t, out, "lint", g.lintTable())
	out = block(t, out, "policy", "```json\n"+string(policy)+"```")
	golden(t, docFile, out)
	t.Run("every_key_has_a_meaning", func(t *testing.T) {
		empty := regexp.MustCompile("(?m)^\\| `[^`]+` \\| [^|]* \\|  \\|$")
		if m := empty.Find(out); m != nil {
			t.Errorf("no meaning: %s", m)
		}
	})
}
