package api

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"gatehouse/internal/problem"
)

// Problem is an RFC 9457 body.
type Problem struct {
	Type   string       `json:"type" doc:"urn:gatehouse:problem: and the code"`
	Title  string       `json:"title" doc:"what happened"`
	Status int          `json:"status"`
	Code   problem.Code `json:"code" doc:"stable code from a closed list"`
	Hint   string       `json:"hint,omitempty" doc:"the next step"`
	Detail string       `json:"detail,omitempty" doc:"which part of the request was wrong"`
}

// Error returns the title.
func (p *Problem) Error() string { return p.Title }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of RFC 9457.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

func problemOf(code problem.Code, title, hint string) *Problem {
	return &Problem{Type: "urn:gatehouse:problem:" + string(code), Title: title, Status: code.Status(), Code: code, Hint: hint}
}

// fail turns an error of a view or command into a Problem. The cause of an
// internal error goes to the operator's log and nowhere else.
func (a *API) fail(err error) *Problem {
	var p *problem.Error
	if errors.As(err, &p) {
		return problemOf(p.Code, p.Msg, p.Hint)
	}
	a.o.Log.Error("request failed", slog.Any("err", err))
	return problemOf(problem.Internal, "the request failed inside Gatehouse", "Read the node's log.")
}

// asProblem replaces huma's own error bodies, which it makes for requests that
// do not fit the schema.
func asProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := problemOf(problem.Usage, "the request is not well formed", "Compare it with /openapi.yaml.")
	p.Status = m.Status
	var details []string
	for _, e := range m.Errors {
		details = append(details, e.Location+": "+e.Message)
	}
	if p.Detail = strings.Join(details, "; "); p.Detail == "" {
		p.Detail = m.Detail
	}
	return p, nil
}

// refuse answers a request that no route sees.
func refuse(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}
