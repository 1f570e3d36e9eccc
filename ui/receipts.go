package ui

import (
	"net/http"
	"strconv"

	"gatehouse/gatekeeper"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

// receipts leads to a chain and verifies one in the page.
func (u *UI) receipts(r *http.Request) (answer, error) {
	q := r.URL.Query()
	session := q.Get("session")
	if seq := q.Get("seq"); seq != "" && session != "" {
		n, err := strconv.ParseUint(seq, 10, 64)
		if err != nil {
			return answer{}, problem.New(problem.Usage, "a receipt is named by its number in the chain", "")
		}
		return answer{to: "/ui/receipts/" + session + "/" + strconv.FormatUint(n, 10)}, nil
	}
	if session != "" {
		if _, err := u.o.View.Session(session); err != nil {
			return answer{}, err
		}
	}
	return answer{title: "Receipts", body: receiptsPage(u.o.View.Heads(), session)}, nil
}

// judgedAction is what a decision judged: paths and names that a client chose.
type judgedAction struct {
	length int    // 0 when it is not kept
	text   []byte // nil until somebody revealed it
}

func (u *UI) receipt(r *http.Request) (answer, error) {
	rec, action, err := u.judged(r)
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Receipt " + r.PathValue("seq"), body: receiptPage(rec, judgedAction{length: len(action)})}, nil
}

// revealAction shows a receipt with what was judged, once that is written down.
func (u *UI) revealAction(r *http.Request) (answer, error) {
	rec, action, err := u.judged(r)
	if err != nil {
		return answer{}, err
	}
	if err := u.o.Changes.Note(r.Context(), gatekeeper.StepReveal, "", rec.Leaf, u.o.Who(r).By); err != nil {
		return answer{}, err
	}
	return answer{title: "Receipt " + r.PathValue("seq"), body: receiptPage(rec, judgedAction{len(action), action})}, nil
}

// judged finds the receipt of a page, and its action when it is kept.
func (u *UI) judged(r *http.Request) (view.Receipt, []byte, error) {
	id := r.PathValue("id")
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		return view.Receipt{}, nil, problem.New(problem.NotFound, "a receipt is named by its number in the chain", "")
	}
	after := ""
	for {
		p, err := u.o.View.Receipts(r.Context(), id, after, view.MaxLimit)
		if err != nil {
			return view.Receipt{}, nil, err
		}
		for _, rec := range p.Items {
			if rec.Seq != seq {
				continue
			}
			action, err := u.o.View.Action(r.Context(), rec.Leaf)
			if err != nil {
				action = nil // not kept: the page says so
			}
			return rec, action, nil
		}
		if after = p.Next; after == "" {
			return view.Receipt{}, nil, problem.New(problem.NotFound, "the chain has no such receipt", "")
		}
	}
}
