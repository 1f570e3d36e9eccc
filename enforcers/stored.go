package enforcers

import (
	"net/url"
	"slices"
	"strings"
)

// Stored returns the action as it may be kept for reviewers and replay: without
// the body's bytes, the values of the query, and the values of headers. The
// names stay, because they tell a reviewer what was tried and carry no load that
// the receipt hides.
func (a *Action) Stored() *Action {
	c := *a
	c.Signed = nil
	if a.HTTP != nil {
		h := *a.HTTP
		h.Body.Bytes = nil
		h.Query = queryNames(a.HTTP.Query)
		h.Headers = make(map[string][]string, len(a.HTTP.Headers))
		for name := range a.HTTP.Headers {
			h.Headers[name] = nil
		}
		c.HTTP = &h
	}
	if a.Operation != nil {
		o := *a.Operation
		o.Args = nil
		c.Operation = &o
	}
	return &c
}

// queryNames returns the names of a query in order, without values. What does
// not parse as name=value is dropped whole.
func queryNames(raw string) string {
	if raw == "" {
		return ""
	}
	var names []string
	for pair := range strings.SplitSeq(raw, "&") {
		name, _, found := strings.Cut(pair, "=")
		if !found {
			continue // a bare word may be the load itself
		}
		if plain, err := url.QueryUnescape(name); err == nil && !slices.Contains(names, plain) {
			names = append(names, plain)
		}
	}
	return strings.Join(names, "&")
}
