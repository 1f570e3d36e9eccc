package linear_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/operations"
	"gatehouse/enforcers/operations/linear"
	"gatehouse/enforcers/operations/operationstest"
	"gatehouse/receipts"
)

const (
	issue = "2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9"
	agent = "8c6d5b6e-7f4a-4a7f-a7a5-1d8f8f2f3c11"
)

// api is Linear's API as far as it is used: an id is taken once.
type api struct{ things map[string]bool }

func (a *api) answer(s operationstest.Seen) (int, string) {
	var q struct {
		Query     string
		Variables struct {
			ID    string
			Input struct {
				ID, IssueID, AgentSessionID string
			}
		}
	}
	if json.Unmarshal([]byte(s.Body), &q) != nil {
		return http.StatusBadRequest, `{"errors":[{"message":"canary: outside words"}]}`
	}
	id, create := q.Variables.Input.ID, strings.HasPrefix(q.Query, "mutation")
	thing := func(x string) string {
		return fmt.Sprintf(`{"id":%q,"url":"https://linear.app/acme/issue/ENG-1#comment-1"}`, x)
	}
	switch {
	case create && a.things[id]:
		return http.StatusBadRequest, `{"errors":[{"message":"canary: exists"}]}`
	case create && strings.Contains(q.Query, "commentCreate"):
		a.things[id] = true
		return http.StatusOK, `{"data":{"commentCreate":{"success":true,"comment":` + thing(id) + `}}}`
	case create:
		a.things[id] = true
		return http.StatusOK, `{"data":{"agentActivityCreate":{"success":true,"agentActivity":` + thing(id) + `}}}`
	case a.things[q.Variables.ID]:
		return http.StatusOK, `{"data":{"comment":` + thing(q.Variables.ID) + `,"agentActivity":` + thing(q.Variables.ID) + `}}`
	}
	return http.StatusOK, `{"errors":[{"message":"canary: not found"}],"data":null}`
}

func TestLinear(t *testing.T) {
	a := &api{things: map[string]bool{}}
	o := &operationstest.Outside{Answer: a.answer}
	tracker := &linear.Tracker{Remote: o.Remote(t), Issue: issue, AgentSession: agent}
	d := operationstest.New(t, receipts.Hard, []string{linear.Comment, linear.Activity}, tracker.Operations()...)
	d.Run(t, o, []operationstest.Row{
		{Name: "comment", Op: linear.Comment, Key: "k1", Args: `{"body":"done"}`, Status: 200, Want: `"url":"https://linear.app/acme/issue/ENG-1#comment-1","existed":false`, Left: 1},
		{Name: "comment_replayed", Op: linear.Comment, Key: "k1", Args: `{"body":"done"}`, Status: 200, Want: `"existed":false`, Left: 1},
		{Name: "comment_other_words", Op: linear.Comment, Key: "k1", Args: `{"body":"other"}`, Status: 400, Code: operations.CodeKey, Left: 1},
		{Name: "comment_names_an_issue", Op: linear.Comment, Key: "k2", Args: `{"body":"done","issueId":"x"}`, Status: 400, Code: operations.CodeArguments, Left: 1},
		{Name: "comment_too_long", Op: linear.Comment, Key: "k2", Args: `{"body":"` + strings.Repeat("a", 20001) + `"}`, Status: 400, Code: operations.CodeArguments, Left: 1},
		{Name: "activity", Op: linear.Activity, Key: "k3", Args: `{"type":"thought","body":"reading"}`, Status: 200, Want: `"existed":false`, Left: 2},
		{Name: "activity_of_another_kind", Op: linear.Activity, Key: "k4", Args: `{"type":"prompt","body":"x"}`, Status: 400, Code: operations.CodeArguments, Left: 2},
	})
	t.Run("one_subject", func(t *testing.T) {
		sent := o.Requests()
		if !strings.Contains(sent[0].Body, `"issueId":"`+issue+`"`) || !strings.Contains(sent[1].Body, `"agentSessionId":"`+agent+`"`) || sent[0].Target != "/graphql" {
			t.Errorf("%+v", sent)
		}
	})
	t.Run("found_after_a_crash", func(t *testing.T) {
		again := operationstest.New(t, receipts.Hard, []string{linear.Comment}, tracker.Operations()...)
		if a := again.Call(t, linear.Comment, "k1", `{"body":"done"}`); a.Status != 200 || !strings.Contains(a.Text, `"existed":true`) {
			t.Errorf("%s", a.Text)
		}
	})
	t.Run("over_limit", func(t *testing.T) {
		for i := range 9 {
			d.Call(t, linear.Comment, fmt.Sprint("more", i), `{"body":"done"}`)
		}
		left := len(o.Requests())
		a := d.Call(t, linear.Comment, "over", `{"body":"done"}`)
		if a.Status != 403 || a.Code != operations.CodeLimit || len(o.Requests()) != left || d.Receipts.Last().Effect != enforcers.NotForwarded {
			t.Errorf("%s", a.Text)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			left := len(o.Requests())
			none := operationstest.New(t, mode, nil, tracker.Operations()...)
			if a := none.Call(t, linear.Comment, "k", `{"body":"x"}`); a.Status != 403 || len(o.Requests()) != left {
				t.Errorf("%s: %s", mode, a.Text)
			}
		}
	})
}

// What Linear says that is not what was asked for is a failure, and its words
// stay outside.
func TestLinearAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		code   string
		hard   int
	}{
		"not_json":       {200, `canary`, operations.CodeFailed, 502},
		"not_made":       {200, `{"data":{"commentCreate":{"success":false}}}`, operations.CodeFailed, 502},
		"another_id":     {200, `{"data":{"commentCreate":{"success":true,"comment":{"id":"x","url":"canary"}}}}`, operations.CodeFailed, 502},
		"unauthorized":   {401, `canary`, operations.CodeFailed, 502},
		"ME-13_reflects": {200, `{"data":{"x":"` + operationstest.Credential + `"}}`, enforcers.CodeReflected, 403},
	} {
		t.Run(name, func(t *testing.T) {
			o := &operationstest.Outside{Answer: func(operationstest.Seen) (int, string) { return c.status, c.body }}
			tracker := &linear.Tracker{Remote: o.Remote(t), Issue: issue}
			d := operationstest.New(t, receipts.Hard, []string{linear.Comment}, tracker.Operations()...)
			if a := d.Call(t, linear.Comment, "k", `{"body":"x"}`); a.Status != c.hard || a.Code != c.code {
				t.Errorf("%s", a.Text)
			}
		})
	}
}

// T-17: an id says nothing of what it is of to whoever knows the session and the
// key of the call: no stranger is there first with something else under it.
func TestIDsAreSealed(t *testing.T) {
	guess := func(key string) string { // as whoever reads this file would
		h := hmac.New(sha256.New, []byte(key))
		fmt.Fprintf(h, "gatehouse id\x00%s\x00%s\x00%s", linear.Comment, "s-1", "k1")
		b := h.Sum(nil)
		plain := sha256.Sum256(fmt.Appendf(nil, "gatehouse\x00%s\x00%s\x00%s", linear.Comment, "s-1", "k1"))
		if key == "" {
			b = plain[:]
		}
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
		return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
	}
	a := &api{things: map[string]bool{guess(""): true, guess("a key"): true}}
	o := &operationstest.Outside{Answer: a.answer}
	tracker := &linear.Tracker{Remote: o.Remote(t), Issue: issue}
	d := operationstest.New(t, receipts.Hard, []string{linear.Comment}, tracker.Operations()...)
	if a := d.Call(t, linear.Comment, "k1", `{"body":"done"}`); a.Status != 200 || !strings.Contains(a.Text, `"existed":false`) {
		t.Errorf("a stranger's comment passes for the session's: %s", a.Text)
	}
	if !a.things[guess(string(tracker.Remote.MarkKey.Reveal()))] {
		t.Error("the id is not the node's own")
	}
	c := &operations.Call{Session: "s-1", Key: "k1"}
	keyless := &operations.Remote{}
	if first, again := keyless.ID(c, linear.Comment), keyless.ID(c, linear.Comment); first == again {
		t.Error("without a key an id can be known beforehand")
	}
}
