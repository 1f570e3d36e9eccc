package ui

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// term is one part of a filter: key:value, -key:value, or a word by itself.
type term struct {
	not   bool
	key   string // "" for a word
	value string // may hold * for any run of characters
}

// String returns the term as it is typed.
func (t term) String() string {
	var b strings.Builder
	if t.not {
		b.WriteByte('-')
	}
	if t.key != "" {
		b.WriteString(t.key + ":")
	}
	if strings.ContainsAny(t.value, " \t\"") {
		b.WriteString(`"` + strings.ReplaceAll(t.value, `"`, "") + `"`)
	} else {
		b.WriteString(t.value)
	}
	return b.String()
}

// filter is what a list is narrowed to. All terms must hold.
type filter struct {
	terms []term
	wrong []string // terms that can't hold, in words
}

// maxTerms bounds what one filter may ask for.
const maxTerms = 16

// parseFilter reads a filter whose keys are among keys.
func parseFilter(s string, keys []string) filter {
	var f filter
	for _, w := range words(s) {
		if len(f.terms)+len(f.wrong) == maxTerms {
			f.wrong = append(f.wrong, fmt.Sprintf("only the first %d terms count", maxTerms))
			break
		}
		t := term{value: w}
		if rest, ok := strings.CutPrefix(w, "-"); ok && rest != "" {
			t.not, t.value = true, rest
		}
		if key, value, ok := strings.Cut(t.value, ":"); ok {
			t.key, t.value = strings.ToLower(key), strings.Trim(value, `"`)
			if !slices.Contains(keys, t.key) {
				f.wrong = append(f.wrong, fmt.Sprintf("no key %q here; keys: %s", word(t.key), strings.Join(keys, ", ")))
				continue
			}
		}
		t.value = strings.Trim(t.value, `"`)
		if t.value != "" {
			f.terms = append(f.terms, t)
		}
	}
	return f
}

// words splits at blanks outside of quotes.
func words(s string) []string {
	var out []string
	var b strings.Builder
	quoted := false
	for _, r := range s {
		if r == '"' {
			quoted = !quoted
		}
		if (r == ' ' || r == '\t' || r == '\n') && !quoted {
			if b.Len() > 0 {
				out = append(out, b.String())
				b.Reset()
			}
			continue
		}
		b.WriteRune(r)
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	return out
}

// String returns the filter as it is typed.
func (f filter) String() string {
	parts := make([]string, len(f.terms))
	for i, t := range f.terms {
		parts[i] = t.String()
	}
	return strings.Join(parts, " ")
}

// with returns the filter with one more term.
func (f filter) with(t term) filter {
	if slices.Contains(f.terms, t) {
		return filter{terms: f.terms}
	}
	return filter{terms: append(slices.Clone(f.terms), t)}
}

// without returns the filter without its i-th term.
func (f filter) without(i int) filter {
	return filter{terms: slices.Delete(slices.Clone(f.terms), i, i+1)}
}

// equal returns the value that key must have, if the filter says so without
// wildcard, so that a list can use its own index.
func (f filter) equal(key string) string {
	for _, t := range f.terms {
		if !t.not && t.key == key && !strings.Contains(t.value, "*") {
			return t.value
		}
	}
	return ""
}

// holds reports whether a row with these fields fits. A word fits a field that
// holds it.
func (f filter) holds(fields map[string]string) bool {
	for _, t := range f.terms {
		if t.in(fields) == t.not {
			return false
		}
	}
	return true
}

func (t term) in(fields map[string]string) bool {
	if t.key != "" {
		return t.fits(fields[t.key])
	}
	for _, v := range fields {
		if strings.Contains(strings.ToLower(v), strings.ToLower(t.value)) {
			return true
		}
	}
	return false
}

// fits compares without case; * stands for anything.
func (t term) fits(v string) bool {
	want, v := strings.ToLower(t.value), strings.ToLower(v)
	if !strings.Contains(want, "*") {
		return want == v
	}
	// path.Match's other specials are letters here, and / is no border.
	esc := strings.NewReplacer(`\`, `\\`, `?`, `\?`, `[`, `\[`, "/", "\x00").Replace(want)
	ok, err := path.Match(esc, strings.ReplaceAll(v, "/", "\x00"))
	return err == nil && ok
}

// at returns the URL of a list under f, at its beginning.
func (f filter) at(list string) string { return f.page(list, "") }

// page returns the URL of the page behind cursor.
func (f filter) page(list, cursor string) string {
	q := url.Values{}
	if s := f.String(); s != "" {
		q.Set("q", s)
	}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	if len(q) == 0 {
		return list
	}
	return list + "?" + q.Encode()
}
