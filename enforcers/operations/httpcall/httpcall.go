// Package httpcall has the operations http.call.NAME: requests that an operator
// declared as a template. It reads valid arguments, puts them where the template
// says, and writes one request through a Remote.
//
// It must never let an argument choose the host, the method or the shape of the
// path, or return a part of the answer that the template does not name.
package httpcall

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"gatehouse/enforcers/operations"
	"gatehouse/internal/problem"
)

// Prefix begins the names of these operations; the template's name follows.
const Prefix = "http.call."

// Template is one declared request.
type Template struct {
	Name    string // the operation's, Prefix included
	Summary string
	Remote  *operations.Remote
	Method  string
	Path    string          // absolute; {argument} stands for a whole segment
	Schema  json.RawMessage // of the arguments
	Answer  []string        // members of a JSON answer that are returned
	Calls   int             // in one session, 0 = 20
}

var methods = map[string]bool{http.MethodGet: true, http.MethodPost: true, http.MethodPut: true, http.MethodPatch: true, http.MethodDelete: true}

// Operation returns the operation, or says what is wrong with the template.
func (t *Template) Operation() (operations.Operation, error) {
	if !methods[t.Method] {
		return operations.Operation{}, errors.New("method is GET, POST, PUT, PATCH or DELETE")
	}
	if err := operations.CheckPath(t.Path); err != nil {
		return operations.Operation{}, err
	}
	calls := t.Calls
	if calls == 0 {
		calls = 20
	}
	return operations.Operation{
		Name: t.Name, Summary: t.Summary, Schema: t.Schema, Limits: operations.Limits{Calls: calls, Minute: 10}, Do: t.call,
		Once: t.Method != http.MethodGet && t.Method != http.MethodPut && t.Method != http.MethodDelete, // else again is the same
	}, nil
}

func (t *Template) call(ctx context.Context, c *operations.Call) (any, error) {
	args := map[string]any{}
	d := json.NewDecoder(strings.NewReader(string(c.Args)))
	d.UseNumber()
	if err := d.Decode(&args); err != nil {
		return nil, err
	}
	path, rest, err := operations.FillPath(t.Path, args)
	if err != nil {
		return nil, err
	}
	q := operations.Request{Method: t.Method, Path: path, Header: http.Header{"Idempotency-Key": {t.Remote.ID(c, t.Name)}}}
	switch {
	case t.Method != http.MethodGet && t.Method != http.MethodDelete:
		if q.Body, err = json.Marshal(rest); err != nil {
			return nil, err
		}
	case len(rest) > 0:
		q.Query = url.Values{}
		for k, v := range rest {
			s, plain := operations.Plain(v)
			if !plain {
				return nil, problem.New(operations.CodeArguments, k+" cannot stand in a query", "")
			}
			q.Query.Set(k, s)
		}
	}
	body, err := t.Remote.Send(ctx, c, q)
	if err != nil {
		return nil, err
	}
	out := result{Origin: "outsider", Answer: map[string]any{}}
	if len(t.Answer) == 0 {
		return out, nil
	}
	answer := map[string]any{}
	a := json.NewDecoder(strings.NewReader(string(body)))
	a.UseNumber()
	if a.Decode(&answer) != nil {
		return out, nil // it was carried out; what it says cannot be passed on
	}
	for _, name := range t.Answer {
		switch v := answer[name].(type) {
		case string:
			out.Answer[name] = operations.Scrub(v, 4<<10)
		case json.Number, bool:
			out.Answer[name] = v
		}
	}
	return out, nil
}

// result is what a call returns. What the other side says is text of outsiders.
type result struct {
	Origin string         `json:"origin"` // always outsider
	Answer map[string]any `json:"untrusted_answer"`
}
