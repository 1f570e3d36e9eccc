// Package linear has the operations on Linear: comments on the session's own
// issue, and activities in the agent session that started it. It reads valid
// arguments and writes requests of Linear's GraphQL API through a Remote.
//
// It must never take an issue or an agent session from arguments, send a query
// that arguments have a part in, or return Linear's own words.
package linear

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"

	"gatehouse/enforcers/operations"
	"gatehouse/internal/problem"
)

// Host is Linear's API.
const Host = "api.linear.app"

// Names of the operations.
const (
	Comment  = "linear.comment"
	Activity = "linear.activity"
)

// Tracker are the operations of one session. An operation whose subject is ""
// is not there.
type Tracker struct {
	Remote       *operations.Remote
	Issue        string // UUID of the session's issue
	AgentSession string // UUID of the agent session in Linear that started it
}

// Operations returns what can be done there.
func (t *Tracker) Operations() []operations.Operation {
	var all []operations.Operation
	if t.Issue != "" {
		all = append(all, operations.Operation{
			Name: Comment, Summary: "Comments on the issue that this session is about.", Schema: json.RawMessage(commentSchema),
			Limits: operations.Limits{Calls: 20, Minute: 10}, Do: t.comment,
		})
	}
	if t.AgentSession != "" {
		all = append(all, operations.Operation{
			Name: Activity, Summary: "Says in Linear's agent session what this session does, asks or has done.", Schema: json.RawMessage(activitySchema),
			Limits: operations.Limits{Calls: 50, Minute: 20}, Do: t.activity,
		})
	}
	return all
}

const (
	commentSchema  = `{"type":"object","additionalProperties":false,"required":["body"],"properties":{"body":{"type":"string","minLength":1,"maxLength":20000,"description":"Markdown"}}}`
	activitySchema = `{"type":"object","additionalProperties":false,"required":["type","body"],"properties":{
"type":{"enum":["thought","response","elicitation","error"]},
"body":{"type":"string","minLength":1,"maxLength":20000,"description":"Markdown"}}}`
)

// The queries are fixed; what is said is in the variables.
const (
	createComment  = `mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id url } } }`
	findComment    = `query($id: String!) { comment(id: $id) { id url } }`
	createActivity = `mutation($input: AgentActivityCreateInput!) { agentActivityCreate(input: $input) { success agentActivity { id } } }`
	findActivity   = `query($id: String!) { agentActivity(id: $id) { id } }`
)

func (t *Tracker) comment(ctx context.Context, c *operations.Call) (any, error) {
	var a struct{ Body string }
	if err := c.Into(&a); err != nil {
		return nil, err
	}
	return t.make(ctx, c, kind{createComment, "commentCreate", findComment, "comment"}, map[string]any{"id": t.Remote.ID(c, Comment), "issueId": t.Issue, "body": a.Body})
}

func (t *Tracker) activity(ctx context.Context, c *operations.Call) (any, error) {
	var a struct{ Type, Body string }
	if err := c.Into(&a); err != nil {
		return nil, err
	}
	return t.Say(ctx, c, a.Type, a.Body)
}

// Say writes one activity in the node's own words or an agent's.
func (t *Tracker) Say(ctx context.Context, c *operations.Call, kindOf, body string) (any, error) {
	return t.make(ctx, c, kind{createActivity, "agentActivityCreate", findActivity, "agentActivity"},
		map[string]any{"id": t.Remote.ID(c, Activity), "agentSessionId": t.AgentSession, "content": map[string]string{"type": kindOf, "body": body}})
}

// kind is how one kind of thing is made and found.
type kind struct{ create, made, find, thing string }

// made is what an operation returns.
type made struct {
	ID      string `json:"id"`
	URL     string `json:"url,omitempty"`
	Existed bool   `json:"existed"`
}

// make creates a thing under an id of this call's own. Linear takes an id once,
// so that a call that is tried again finds what it made.
func (t *Tracker) make(ctx context.Context, c *operations.Call, k kind, input map[string]any) (any, error) {
	data, err := t.query(ctx, c, k.create, map[string]any{"input": input})
	if err != nil {
		return nil, err
	}
	var done struct {
		Success bool                       `json:"success"`
		X       map[string]json.RawMessage `json:"-"`
	}
	if raw := data[k.made]; json.Unmarshal(raw, &done) == nil && done.Success && json.Unmarshal(raw, &done.X) == nil {
		return known(done.X[k.thing], input["id"], false)
	}
	data, err = t.query(ctx, c, k.find, map[string]any{"id": input["id"]})
	if err != nil {
		return nil, err
	}
	return known(data[k.thing], input["id"], true)
}

// urls are the only form in which an address is passed on.
var urls = regexp.MustCompile(`^https://linear\.app/[A-Za-z0-9/._#-]{1,300}$`)

func known(raw json.RawMessage, id any, existed bool) (any, error) {
	var x *struct{ ID, URL string }
	if err := json.Unmarshal(raw, &x); err != nil || x == nil || x.ID != id {
		return nil, problem.New(operations.CodeFailed, "Linear did not take it", "See that the node's connection may write there.")
	}
	m := made{ID: x.ID, Existed: existed}
	if urls.MatchString(x.URL) {
		m.URL = x.URL
	}
	return m, nil
}

// query makes one request. Linear says what it refuses in a 200 or in a 400.
func (t *Tracker) query(ctx context.Context, c *operations.Call, query string, variables map[string]any) (map[string]json.RawMessage, error) {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		return nil, err
	}
	q := operations.Request{Method: http.MethodPost, Path: "/graphql", Body: body}
	status, answer, err := t.Remote.Ask(ctx, c, q)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusBadRequest:
	case status != http.StatusOK:
		return nil, operations.Refused(status)
	}
	var out struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	if json.Unmarshal(answer, &out) != nil {
		return nil, problem.New(operations.CodeFailed, "Linear's answer cannot be read", "Try again later with the same key.")
	}
	return out.Data, nil
}
