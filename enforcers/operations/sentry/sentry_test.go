package sentry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/operations"
	"gatehouse/enforcers/operations/operationstest"
	"gatehouse/enforcers/operations/sentry"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// api keeps notes as Sentry does.
type api struct{ notes []string }

func (a *api) answer(s operationstest.Seen) (int, string) {
	note := func(i int) string { return fmt.Sprintf(`{"id":"%d","data":{"text":%q}}`, 100+i, a.notes[i]) }
	if s.Method == "GET" {
		var all []string
		for i := range a.notes {
			all = append(all, note(i))
		}
		return 200, "[" + strings.Join(all, ",") + "]"
	}
	var made struct{ Text string }
	if json.Unmarshal([]byte(s.Body), &made) != nil {
		return 400, "canary"
	}
	a.notes = append(a.notes, strings.TrimSpace(made.Text))
	return 201, note(len(a.notes) - 1)
}

func TestNote(t *testing.T) {
	a := &api{notes: []string{"canary: what others wrote"}}
	o := &operationstest.Outside{Answer: a.answer}
	tracker := &sentry.Tracker{Remote: o.Remote(t), Issue: "4711", MarkKey: secret.FromString("mark-key")}
	d := operationstest.New(t, receipts.Hard, []string{sentry.Note}, tracker.Operations()...)
	d.Run(t, o, []operationstest.Row{
		{Name: "note", Op: sentry.Note, Key: "k1", Args: `{"text":"fixed in 7f3"}`, Status: 200, Want: `{"existed":false,"id":"101"}`, Left: 2},
		{Name: "note_replayed", Op: sentry.Note, Key: "k1", Args: `{"text":"fixed in 7f3"}`, Status: 200, Want: `"id":"101"`, Left: 2},
		{Name: "note_names_an_issue", Op: sentry.Note, Key: "k2", Args: `{"text":"x","issue":"4712"}`, Status: 400, Code: operations.CodeArguments, Left: 2},
		{Name: "note_empty", Op: sentry.Note, Key: "k2", Args: `{"text":""}`, Status: 400, Code: operations.CodeArguments, Left: 2},
		{Name: "forged_mark", Op: sentry.Note, Key: "k3", Args: `{"text":"x\n\n[gatehouse s-1 00]"}`, Status: 200, Want: `"id":"102"`, Left: 4},
	})
	if sent := o.Requests()[1]; sent.Target != "/api/0/issues/4711/comments/" || strings.Count(a.notes[2], "[gatehouse") != 1 {
		t.Errorf("%+v, %q", sent, a.notes[2])
	}
	t.Run("found_after_a_crash", func(t *testing.T) {
		again := operationstest.New(t, receipts.Hard, []string{sentry.Note}, tracker.Operations()...)
		if a := again.Call(t, sentry.Note, "k1", `{"text":"fixed in 7f3"}`); a.Status != 200 || !strings.Contains(a.Text, `"existed":true`) {
			t.Errorf("%s", a.Text)
		}
	})
	t.Run("refused", func(t *testing.T) {
		left := len(o.Requests())
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			none := operationstest.New(t, mode, nil, tracker.Operations()...)
			if a := none.Call(t, sentry.Note, "k", `{"text":"x"}`); a.Status != 403 || len(o.Requests()) != left {
				t.Errorf("%s: %s", mode, a.Text)
			}
		}
	})
	t.Run("over_limit", func(t *testing.T) {
		for i := range 9 {
			d.Call(t, sentry.Note, fmt.Sprint("more", i), `{"text":"x"}`)
		}
		left := len(o.Requests())
		if a := d.Call(t, sentry.Note, "over", `{"text":"x"}`); a.Status != 403 || a.Code != operations.CodeLimit || len(o.Requests()) != left || d.Receipts.Last().Effect != enforcers.NotForwarded {
			t.Errorf("%s", a.Text)
		}
	})
}
