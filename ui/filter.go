package ui

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"gatehouse/internal/view"
)

// filter is what a list is narrowed to, as it stands in the URL. The same line
// is typed here, at the CLI and at the API.
type filter struct {
	list  string // path of the list
	terms []view.Term
	sort  string
}

// asked is what a list's request asks for.
func asked(r *http.Request, keys []string) (f filter, cursor string, err error) {
	q := r.URL.Query()
	f = filter{list: r.URL.Path, sort: q.Get("sort")}
	f.terms, err = view.ParseTerms(q.Get("q"), keys)
	return f, q.Get("cursor"), err
}

// only returns the URL of a list narrowed to one value.
func only(list, key, value string) string {
	return filter{list: list}.with(key, value)
}

// String returns the filter as it is typed.
func (f filter) String() string {
	parts := make([]string, len(f.terms))
	for i, t := range f.terms {
		parts[i] = t.String()
	}
	return strings.Join(parts, " ")
}

// with returns the URL of the list with one more term.
func (f filter) with(key, value string) string {
	t := view.Term{Key: key, Value: value}
	if !slices.Contains(f.terms, t) {
		f.terms = append(slices.Clone(f.terms), t)
	}
	return f.page("")
}

// without returns the URL of the list without its i-th term.
func (f filter) without(i int) string {
	f.terms = slices.Delete(slices.Clone(f.terms), i, i+1)
	return f.page("")
}

// sorted returns the URL of the list in another order.
func (f filter) sorted(by string) string {
	f.sort = by
	return f.page("")
}

// page returns the URL of the page behind cursor.
func (f filter) page(cursor string) string {
	q := url.Values{}
	if s := f.String(); s != "" {
		q.Set("q", s)
	}
	if f.sort != "" {
		q.Set("sort", f.sort)
	}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	if len(q) == 0 {
		return f.list
	}
	return f.list + "?" + q.Encode()
}

// export returns the URL of the list as a download.
func (f filter) export(format string) string {
	f.list += "." + format
	return f.page("")
}

// equal returns the one value that key must have, if the filter says so, so that
// a list can use its own index.
func (f filter) equal(key string) string {
	found := ""
	for _, t := range f.terms {
		if t.Key != key || t.Not {
			continue
		}
		if found != "" || strings.Contains(t.Value, "*") {
			return ""
		}
		found = t.Value
	}
	return found
}

// fits reports whether a row with these fields is wanted.
func (f filter) fits(fields map[string]string) bool { return view.FitsTerms(f.terms, fields) }
