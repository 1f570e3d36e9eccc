package ui

import (
	"net/http"
	"strconv"

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

func (u *UI) receipt(r *http.Request) (answer, error) {
	id := r.PathValue("id")
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		return answer{}, problem.New(problem.NotFound, "a receipt is named by its number in the chain", "")
	}
	after := ""
	for {
		p, err := u.o.View.Receipts(r.Context(), id, after, view.MaxLimit)
		if err != nil {
			return answer{}, err
		}
		for _, rec := range p.Items {
			if rec.Seq != seq {
				continue
			}
			action, err := u.o.View.Action(r.Context(), rec.Leaf)
			if err != nil {
				action = nil // not kept: the page says so
			}
			return answer{title: "Receipt " + r.PathValue("seq"), body: receiptPage(rec, action)}, nil
		}
		if after = p.Next; after == "" {
			return answer{}, problem.New(problem.NotFound, "the chain has no such receipt", "")
		}
	}
}
