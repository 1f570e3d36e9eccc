package ui

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"gatehouse/enforcers/spend"
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
	t, err := u.timelineOf(r, s)
	if err != nil {
		return answer{}, err
	}
	children, err := u.o.View.Sessions(view.SessionFilter{Parent: id}, "", pageRows)
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Session " + short(id), body: sessionPage(s, t, u.purse(id), children.Items)}, nil
}

// line is one row of a timeline: a receipt, and the outcome of a decision.
type line struct {
	view.Receipt
	outcome *view.Receipt
}

// lines puts outcomes beside their decisions. One whose decision is on an
// earlier page keeps a row of its own: nothing is left out. What grows has its
// newest row first.
func (p piece) lines() []line {
	out := paired(p.rows.Items)
	if p.live {
		slices.Reverse(out)
	}
	return out
}

func paired(all []view.Receipt) []line {
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
	t, err := u.timelineOf(r, s)
	if err != nil {
		return answer{}, err
	}
	return answer{part: true, body: timeline(s, t)}, nil
}

// purse is what a session may spend, the zero one when it has no budget.
func (u *UI) purse(id string) spend.Budget {
	if u.o.Budget != nil {
		if b, ok := u.o.Budget(id); ok {
			return b
		}
	}
	return spend.Budget{}
}

// purseBar divides a bar among what is spent and held of a limit.
func purseBar(b spend.Budget) []segment {
	if b.Limit <= 0 {
		return nil
	}
	part := func(n spend.Nano) int { return int(min(n, b.Limit) * 1000 / b.Limit) }
	spent := part(b.Spent)
	return []segment{{"would", 0, spent}, {"fault", spent, min(part(b.Held), 1000-spent)}}
}

// piece is the part of a chain that a page shows.
type piece struct {
	rows view.Page[view.Receipt]
	live bool // it is the end of a chain that grows
}

// timelineOf reads the end of a chain that grows, and every other from where the
// URL says. "from=start" shows the beginning of one that grows.
func (u *UI) timelineOf(r *http.Request, s view.Session) (p piece, err error) {
	q := r.URL.Query()
	p.live = growing(s) && q.Get("cursor") == "" && q.Get("from") == ""
	if p.live {
		p.rows, err = u.o.View.Tail(r.Context(), s.ID)
	} else {
		p.rows, err = u.o.View.Receipts(r.Context(), s.ID, q.Get("cursor"), sessionRowsShown)
	}
	return p, err
}

func growing(s view.Session) bool {
	return s.State == "running" || s.State == "preparing" || s.State == "admitted"
}

// How often a live page is told that its chain grew, and how long it hears nothing
// before the connection is tried.
const (
	liveEvery = 250 * time.Millisecond
	livePing  = 15 * time.Second
	// A page that takes nothing for so long is gone.
	liveStall = time.Minute
)

// live rings a bell at a page whenever its session's chain grew, as server-sent
// events: the number of receipts, and nothing else. However fast they come a page
// hears it four times a second at most, and asks for the rows it shows itself.
func (u *UI) live(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	s, err := u.o.View.Session(id)
	if err != nil {
		p := problemOf(err)
		http.Error(w, sentence(p.Msg), p.Code.Status())
		return
	}
	if !growing(s) {
		w.WriteHeader(http.StatusNoContent) // a browser does not come back
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	var said uint64
	for heard := time.Now(); ; {
		line := ""
		switch {
		case s.Receipts != said:
			line, said = fmt.Sprintf("data: %d\n\n", s.Receipts), s.Receipts
		case time.Since(heard) > livePing:
			line = ": ping\n\n"
		}
		if !growing(s) {
			line += "event: end\ndata: end\n\n"
		}
		if line != "" {
			_ = out.SetWriteDeadline(time.Now().Add(liveStall))
			if _, err := io.WriteString(w, line); err != nil || out.Flush() != nil {
				return
			}
			heard = time.Now()
		}
		if !growing(s) {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-u.o.Ending:
			return
		case <-tick.C:
		}
		if s, err = u.o.View.Session(id); err != nil {
			return // it left the lists
		}
	}
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

func (u *UI) askArtifacts(r *http.Request) (answer, error) {
	s, err := u.o.View.Session(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Artifacts", body: confirm("Reveal the artifacts of "+short(s.ID)+"?",
		"Their names are the agent's words, and so is what stands in them.", "/ui/sessions/"+s.ID+"/artifacts", "Reveal", false, "/ui/sessions/"+s.ID)}, nil
}

// artifacts lists what the agent left, once that is written down.
func (u *UI) artifacts(r *http.Request) (answer, error) {
	id := r.PathValue("id")
	s, err := u.o.View.Session(id)
	if err != nil {
		return answer{}, err
	}
	all, err := u.o.Do.Artifacts(r.Context(), id)
	if err != nil {
		return answer{}, err
	}
	if err := u.o.Changes.Note(r.Context(), gatekeeper.StepReveal, s.Bundle, id, u.o.Who(r).By); err != nil {
		return answer{}, err
	}
	return answer{title: "Artifacts " + short(id), body: artifactsPage(s, all)}, nil
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
