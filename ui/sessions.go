package ui

import (
	"io"
	"net/http"

	"gatehouse/gatekeeper"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

var sessionKeys = []string{"state", "reason", "bundle", "mode", "event", "parent", "provider", "id"}

func sessionFields(s view.Session) map[string]string {
	return map[string]string{
		"state": s.State, "reason": s.Reason, "bundle": s.Bundle, "mode": s.Mode, "event": s.Event,
		"parent": s.Parent, "provider": s.Provider, "id": s.ID,
	}
}

func (u *UI) sessions(r *http.Request) (answer, error) {
	f, cursor, err := asked(r, sessionKeys)
	if err != nil {
		return answer{}, err
	}
	// The view's own index narrows first; what it can't say is looked at here.
	want := view.SessionFilter{State: f.equal("state"), Reason: f.equal("reason"), Bundle: f.equal("bundle"), Mode: f.equal("mode"), Event: f.equal("event"), Parent: f.equal("parent")}
	p, err := gather(func(after string, n int) (view.Page[view.Session], error) { return u.o.View.Sessions(want, after, n) },
		func(s view.Session) bool { return f.fits(sessionFields(s)) }, cursor)
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Sessions", body: sessionList(f, p, cursor != "")}, nil
}

// sessionRowsShown is how many receipts of a chain a page holds.
const sessionRowsShown = 200

func (u *UI) session(r *http.Request) (answer, error) {
	id := r.PathValue("id")
	s, err := u.o.View.Session(id)
	if err != nil {
		return answer{}, err
	}
	rows, err := u.o.View.Receipts(r.Context(), id, r.URL.Query().Get("cursor"), sessionRowsShown)
	if err != nil {
		return answer{}, err
	}
	children, err := u.o.View.Sessions(view.SessionFilter{Parent: id}, "", pageRows)
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Session " + short(id), body: sessionPage(s, rows, children.Items)}, nil
}

// line is one row of a timeline: a receipt, and the outcome of a decision.
type line struct {
	view.Receipt
	outcome *view.Receipt
}

// lines puts outcomes beside their decisions. One whose decision is on an
// earlier page keeps a row of its own: nothing is left out.
func lines(all []view.Receipt) []line {
	var out []line
	at := map[string]int{}
	for _, r := range all {
		if i, ok := at[r.Of]; ok && r.Of != "" && out[i].outcome == nil && r.Effect != "" {
			out[i].outcome = &r
			continue
		}
		if r.Verdict != "" {
			at[r.Leaf] = len(out)
		}
		out = append(out, line{Receipt: r})
	}
	return out
}

// sessionRows is the part of a running session's page that htmx asks for again.
func (u *UI) sessionRows(r *http.Request) (answer, error) {
	id := r.PathValue("id")
	s, err := u.o.View.Session(id)
	if err != nil {
		return answer{}, err
	}
	rows, err := u.o.View.Receipts(r.Context(), id, r.URL.Query().Get("cursor"), sessionRowsShown)
	if err != nil {
		return answer{}, err
	}
	return answer{part: true, body: timeline(s, rows)}, nil
}

// maxTranscript is how much of a transcript a page shows: its end, where the
// result stands.
const maxTranscript = 256 << 10

func (u *UI) askTranscript(r *http.Request) (answer, error) {
	s, err := u.o.View.Session(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Transcript", body: confirm("Reveal the transcript of "+short(s.ID)+"?",
		"It is what the agent printed: text of strangers may stand in it, made to be read by you.", "/ui/sessions/"+s.ID+"/transcript", "Reveal", false, "/ui/sessions/"+s.ID)}, nil
}

// transcript shows what the agent printed, once that is written down.
func (u *UI) transcript(r *http.Request) (answer, error) {
	id := r.PathValue("id")
	s, err := u.o.View.Session(id)
	if err != nil {
		return answer{}, err
	}
	if err := u.o.Changes.Note(r.Context(), gatekeeper.StepReveal, s.Bundle, id, u.o.Who(r).By); err != nil {
		return answer{}, err
	}
	f, err := u.o.Do.Logs(r.Context(), id)
	if err != nil {
		return answer{}, err
	}
	defer f.Close()
	var last []byte
	total, buf := 0, make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		total += n
		last = append(last, buf[:n]...)
		if len(last) > 2*maxTranscript {
			last = append(last[:0], last[len(last)-maxTranscript:]...)
		}
		if err == io.EOF {
			break
		} else if err != nil {
			return answer{}, problem.Wrap(err, problem.Unavailable, "the transcript could not be read", "Try again.")
		}
	}
	if len(last) > maxTranscript {
		last = last[len(last)-maxTranscript:]
	}
	return answer{title: "Transcript " + short(id), body: transcriptPage(s, string(last), total)}, nil
}

func (u *UI) askKill(r *http.Request) (answer, error) {
	s, err := u.o.View.Session(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Kill session", body: confirm("Kill session "+short(s.ID)+"?",
		"The agent is ended and its door closed at once. What it has done stays done.", "/ui/sessions/"+s.ID+"/kill", "Kill the session", true, "/ui/sessions/"+s.ID)}, nil
}

func (u *UI) kill(r *http.Request) (answer, error) {
	who, err := u.allowed(r, ActOperate)
	if err != nil {
		return answer{}, err
	}
	id := r.PathValue("id")
	if err := u.o.Do.Kill(r.Context(), id, who); err != nil {
		return answer{}, err
	}
	return answer{to: "/ui/sessions/" + id}, nil
}

func (u *UI) askRetry(r *http.Request) (answer, error) {
	s, err := u.o.View.Session(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Retry session", body: confirm("Start the event of "+short(s.ID)+" again?",
		"Its event is judged again from the beginning, under the bundles in force now.", "/ui/sessions/"+s.ID+"/retry", "Retry", false, "/ui/sessions/"+s.ID)}, nil
}

func (u *UI) retry(r *http.Request) (answer, error) {
	who, err := u.allowed(r, ActOperate)
	if err != nil {
		return answer{}, err
	}
	id, err := u.o.Do.Retry(r.Context(), r.PathValue("id"), who)
	if err != nil {
		return answer{}, err
	}
	return answer{to: "/ui/sessions/" + id}, nil
}
