package git

import (
	"net/http"

	"github.com/vektah/gqlparser/v2/ast"

	"gatehouse/enforcers/door"
	"gatehouse/internal/problem"
)

// PullRequest is what a client asked the API to open.
type PullRequest struct {
	Head, Base, Title, Body string
	Draft                   bool
}

// parsePull reads the one mutation that is not refused: createPullRequest alone,
// as gh sends it. It is not passed on; what it asks for is done as a named
// operation in the session's own repository, whatever id stands in it.
func parsePull(raw []byte) (PullRequest, bool) {
	var p PullRequest
	q, err := parseOne(raw, ast.Mutation)
	if err != nil || len(q.operation.SelectionSet) != 1 {
		return p, false
	}
	f, ok := q.operation.SelectionSet[0].(*ast.Field)
	if !ok || f.Name != "createPullRequest" || len(f.Arguments) != 1 || f.Arguments[0].Name != "input" || f.Arguments[0].Value.Kind != ast.Variable {
		return p, false
	}
	input, ok := q.variables[f.Arguments[0].Value.Raw].(map[string]any)
	if !ok {
		return p, false
	}
	for name, v := range input {
		text, isText := v.(string)
		flag, isFlag := v.(bool)
		switch name {
		case "headRefName":
			p.Head, ok = text, isText
		case "baseRefName":
			p.Base, ok = text, isText
		case "title":
			p.Title, ok = text, isText
		case "body":
			p.Body, ok = text, isText
		case "draft":
			p.Draft, ok = flag, isFlag
		case "repositoryId", "maintainerCanModify": // the session's own, and nobody else's fork
		default:
			ok = false
		}
		if !ok {
			return p, false
		}
	}
	return p, p.Head != "" && p.Base != "" && p.Title != ""
}

// createPull has a pull request opened and answers as the API would.
func (m *Mediator) createPull(w http.ResponseWriter, r *door.Request, p PullRequest) {
	url, d, err := m.o.CreatePull(r.Context(), r.Gate, p)
	if err != nil {
		if !d.Passed && d.Reason != "" {
			refuseAPI(w, d)
			return
		}
		// GraphQL's own form: gh prints the message.
		said := "Gatehouse: " + string(problem.CodeOf(err))
		if hint := problem.HintOf(err); hint != "" {
			said += ": " + hint
		}
		writeJSON(w, http.StatusOK, "application/json", map[string]any{"data": nil, "errors": []any{map[string]any{"message": said}}})
		return
	}
	writeJSON(w, http.StatusOK, "application/json", map[string]any{"data": map[string]any{"createPullRequest": map[string]any{"pullRequest": map[string]any{"id": "", "url": url}}}})
}
