package ui

import "gatehouse/internal/view"

const (
	pageRows = 50
	// maxPages bounds how far a filter that the view has no index for looks in one
	// request; the page says where it stopped by offering the rest.
	maxPages = 20
)

// gather reads pages of a list until it has a page of rows that keep, the end,
// or has looked far enough.
func gather[T any](list func(after string, n int) (view.Page[T], error), keep func(T) bool, after string) (view.Page[T], error) {
	var out view.Page[T]
	out.Next = after
	for range maxPages {
		p, err := list(out.Next, pageRows)
		if err != nil {
			return out, err
		}
		out.Next = p.Next
		for _, it := range p.Items {
			if keep(it) {
				out.Items = append(out.Items, it)
			}
		}
		if p.Next == "" || len(out.Items) >= pageRows {
			break
		}
	}
	return out, nil
}
