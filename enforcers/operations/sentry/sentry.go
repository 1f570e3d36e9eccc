// Package sentry has the operations on Sentry: notes on the session's own issue.
// It reads valid arguments and writes requests of Sentry's API through a Remote.
//
// It must never take an issue from arguments, or return what others wrote there.
package sentry

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"gatehouse/enforcers/operations"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Host is Sentry's own service.
const Host = "sentry.io"

// Note is the operation's name.
const Note = "sentry.note"

// Tracker are the operations of one session.
type Tracker struct {
	Remote *operations.Remote
	Issue  string // number of the session's issue
	// MarkKey seals the lines under notes: whoever knows a session's id could
	// otherwise write one first.
	MarkKey secret.Value
}

// Operations returns what can be done there.
func (t *Tracker) Operations() []operations.Operation {
	return []operations.Operation{{
		Name: Note, Summary: "Writes a note on the issue that this session is about.", Schema: json.RawMessage(schema),
		Limits: operations.Limits{Calls: 20, Minute: 10}, Do: t.note,
	}}
}

const schema = `{"type":"object","additionalProperties":false,"required":["text"],"properties":{"text":{"type":"string","minLength":1,"maxLength":20000}}}`

const markBegins = "[gatehouse"

// mark stands under a note, so that a call that is tried again finds it.
func (t *Tracker) mark(c *operations.Call) string {
	h := hmac.New(sha256.New, t.MarkKey.Reveal())
	fmt.Fprintf(h, "%s\x00%s\x00%s", Note, c.Session, c.Key)
	return fmt.Sprintf("\n\n%s %s %x]", markBegins, c.Session, h.Sum(nil)[:16])
}

type note struct {
	ID   string `json:"id"`
	Data struct {
		Text string `json:"text"`
	} `json:"data"`
}

func (t *Tracker) note(ctx context.Context, c *operations.Call) (any, error) {
	var a struct{ Text string }
	if err := c.Into(&a); err != nil {
		return nil, err
	}
	path := "/api/0/issues/" + url.PathEscape(t.Issue) + "/comments/"
	raw, err := t.Remote.Send(ctx, c, operations.Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return nil, err
	}
	var there []note
	if json.Unmarshal(raw, &there) != nil {
		return nil, problem.New(operations.CodeFailed, "Sentry's answer cannot be read", "Try again later with the same key.")
	}
	mark := t.mark(c)
	for _, n := range there {
		if strings.HasSuffix(n.Data.Text, strings.TrimSpace(mark)) {
			return made(n, true)
		}
	}
	// What could pass for a mark is taken out of the agent's words.
	body, err := json.Marshal(map[string]string{"text": strings.ReplaceAll(a.Text, markBegins, "[ gatehouse") + mark})
	if err != nil {
		return nil, err
	}
	if raw, err = t.Remote.Send(ctx, c, operations.Request{Method: http.MethodPost, Path: path, Body: body}); err != nil {
		return nil, err
	}
	var n note
	if json.Unmarshal(raw, &n) != nil {
		return nil, operations.Unknown(problem.New(operations.CodeFailed, "Sentry's answer cannot be read", "Try again with the same key."))
	}
	return made(n, false)
}

func made(n note, existed bool) (any, error) {
	for _, r := range n.ID {
		if r < '0' || r > '9' || len(n.ID) > 20 {
			n.ID = ""
			break
		}
	}
	return map[string]any{"id": n.ID, "existed": existed}, nil
}
