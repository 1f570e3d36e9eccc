package git

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"gatehouse/enforcers/door"
)

// CodeGraphQL is a document that asks for more than a repository that the
// session may read.
const CodeGraphQL = "graphql_not_listed"

// CodeGraphQLStatic is any document under a credential that is not narrowed to
// one repository.
const CodeGraphQLStatic = "graphql_static_credential"

// Bounds of a GraphQL request.
const (
	maxGraphQL       = 128 << 10
	maxGraphQLTokens = 20_000
	maxGraphQLDepth  = 32
)

// graphQLFields are the fields of a query's root that may be asked for. A
// repository must be one that the session may read; the others say nothing of
// any.
var graphQLFields = map[string]bool{"repository": true, "rateLimit": true, "__type": true, "__schema": true, "__typename": true}

// graphQL handles a request to the GraphQL API. Only queries are passed on, and
// what is sent is the document as it was read. Node ids could name anything, so
// the root fields that take them are not listed, and below a repository stay
// those that lead to no other (EG-85). The token, which is good for one repository
// and to read, holds as well; where it is not, nothing is passed on.
func (m *Mediator) graphQL(w http.ResponseWriter, r *door.Request, h *host, code string) {
	raw, err := readJSON(r)
	if err == nil && code == "" && m.o.CreatePull != nil && h.Provider == "" {
		if p, ok := parsePull(raw); ok {
			m.createPull(w, r, p)
			return
		}
	}
	var body []byte
	about := ""
	if err == nil {
		body, about, err = m.readGraphQL(raw, h)
	}
	if h.Static && code == "" { // M-11: the token reaches whatever its owner does
		code = CodeGraphQLStatic
	}
	if err != nil && code == "" {
		code = CodeGraphQL
	}
	a := r.Action()
	a.Connection, a.HardSet = h.Connection, code
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Del("Content-Encoding")
	a.HTTP.Body.Length = r.ContentLength
	m.carry(w, r, a, Target{Repository: about, Access: Look, API: true})
}

var errGraphQL = errors.New("not a query about one repository")

// readJSON reads the body of a GraphQL request.
func readJSON(r *door.Request) ([]byte, error) {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if r.Method != http.MethodPost || r.Query != "" || strings.TrimSpace(kind) != "application/json" {
		return nil, errGraphQL
	}
	src, err := decoded(r)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(src, maxGraphQL+1))
	if err != nil || len(raw) > maxGraphQL {
		return nil, errGraphQL
	}
	return raw, nil
}

// readGraphQL reads a request and returns it in one spelling, with the id of the
// repository it is about, "" for none.
func (m *Mediator) readGraphQL(raw []byte, h *host) (body []byte, repository string, err error) {
	q, err := parseGraphQL(raw)
	if err != nil {
		return nil, "", err
	}
	names, err := q.repositories()
	if err != nil {
		return nil, "", err
	}
	for _, n := range names {
		path, bad := canonical(n[0], n[1])
		one, ok := h.by[path]
		if bad || !ok || !m.mayRead(one) || repository != "" && repository != one.ID {
			return nil, "", errGraphQL
		}
		repository = one.ID
	}
	return q.body, repository, nil
}

// graphQLQuery is one GraphQL request that was read.
type graphQLQuery struct {
	operation *ast.OperationDefinition
	fragments ast.FragmentDefinitionList
	variables map[string]any
	visited   map[visit]bool
	body      []byte // as it is sent
}

// parseGraphQL reads one request: one document with one operation, a query. What
// could be read in two ways (keys twice, several operations, a batch) is refused.
func parseGraphQL(raw []byte) (*graphQLQuery, error) { return parseOne(raw, ast.Query) }

func parseOne(raw []byte, kind ast.Operation) (*graphQLQuery, error) {
	if twice(raw) {
		return nil, errGraphQL
	}
	var in struct {
		Query         string          `json:"query"`
		OperationName *string         `json:"operationName"`
		Variables     json.RawMessage `json:"variables"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, errGraphQL
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errGraphQL
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: in.Query}, maxGraphQLTokens)
	if err != nil || len(doc.Operations) != 1 {
		return nil, errGraphQL
	}
	q := &graphQLQuery{operation: doc.Operations[0], fragments: doc.Fragments, variables: map[string]any{}, visited: map[visit]bool{}}
	if q.operation.Operation != kind || in.OperationName != nil && *in.OperationName != "" && *in.OperationName != q.operation.Name {
		return nil, errGraphQL
	}
	if len(in.Variables) > 0 && string(in.Variables) != "null" {
		if err := json.Unmarshal(in.Variables, &q.variables); err != nil {
			return nil, errGraphQL
		}
	}
	out := map[string]any{"query": in.Query, "variables": q.variables}
	if q.operation.Name != "" {
		out["operationName"] = q.operation.Name
	}
	if q.body, err = json.Marshal(out); err != nil {
		return nil, errGraphQL
	}
	return q, nil
}

// repositories returns owner and name of every repository that the query's root
// asks for.
func (q *graphQLQuery) repositories() ([][2]string, error) {
	var names [][2]string
	return names, q.root(q.operation.SelectionSet, 0, &names)
}

func (q *graphQLQuery) root(set ast.SelectionSet, depth int, names *[][2]string) error {
	if depth > maxGraphQLDepth {
		return errGraphQL
	}
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			if !graphQLFields[s.Name] {
				return errGraphQL
			}
			if s.Name != "repository" {
				continue
			}
			var name [2]string
			for _, a := range s.Arguments {
				at := map[string]int{"owner": 0, "name": 1}
				i, ok := at[a.Name]
				if a.Name == "followRenames" && a.Value != nil && a.Value.Kind == ast.BooleanValue {
					continue // the token is for the one repository, whatever a name leads to
				}
				if !ok || name[i] != "" {
					return errGraphQL
				}
				v, err := q.text(a.Value)
				if err != nil {
					return err
				}
				name[i] = v
			}
			*names = append(*names, name)
			if err := q.below(s.SelectionSet, inRepository, depth+1); err != nil {
				return err
			}
		case *ast.InlineFragment:
			if err := q.root(s.SelectionSet, depth+1, names); err != nil {
				return err
			}
		case *ast.FragmentSpread:
			f, err := q.spread(s.Name, atRoot)
			if err != nil {
				return err
			}
			if f == nil {
				continue
			}
			if err := q.root(f.SelectionSet, depth+1, names); err != nil {
				return err
			}
		}
	}
	return nil
}

// text returns the string that an argument has: written there, or in a variable
// without a default.
func (q *graphQLQuery) text(v *ast.Value) (string, error) {
	switch {
	case v == nil:
		return "", errGraphQL
	case v.Kind == ast.StringValue:
		return v.Raw, nil
	case v.Kind == ast.Variable:
		d := q.operation.VariableDefinitions.ForName(v.Raw)
		s, ok := q.variables[v.Raw].(string)
		if d == nil || !ok {
			return "", errGraphQL
		}
		return s, nil
	}
	return "", errGraphQL
}

// twice reports whether any object in a JSON text has a key twice, or the text
// cannot be read at all.
func twice(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	type level struct {
		object bool
		key    bool // the next token of an object is a key
		seen   map[string]bool
	}
	var stack []level
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return len(stack) > 0
		}
		if err != nil || len(stack) > 64 {
			return true
		}
		top := len(stack) - 1
		if delim, ok := t.(json.Delim); ok {
			switch delim {
			case '{', '[':
				if top >= 0 && stack[top].object {
					stack[top].key = true
				}
				stack = append(stack, level{object: delim == '{', key: delim == '{', seen: map[string]bool{}})
			default:
				stack = stack[:top]
			}
			continue
		}
		if top < 0 || !stack[top].object {
			continue
		}
		if !stack[top].key {
			stack[top].key = true
			continue
		}
		k := strings.ToLower(t.(string)) // encoding/json matches names in any case
		if stack[top].seen[k] {
			return true
		}
		stack[top].seen[k], stack[top].key = true, false
	}
}
