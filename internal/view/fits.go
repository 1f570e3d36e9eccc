package view

import "strings"

// FitsTerms reports whether a row with these fields satisfies every term, as a
// list of groups judges its rows. A word without a key is looked for in every
// field.
func FitsTerms(terms []Term, fields map[string]string) bool {
	return matchTerms(terms, func(t *Term) bool {
		if t.Key != "" {
			return glob(t.Value, fields[t.Key])
		}
		for _, v := range fields {
			if strings.Contains(strings.ToLower(v), strings.ToLower(t.Value)) {
				return true
			}
		}
		return false
	})
}
