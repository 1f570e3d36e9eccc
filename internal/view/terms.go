package view

import (
	"strings"

	"gatehouse/internal/problem"
)

// Term is one part of a filter: key:value, with - in front to exclude. A word
// without a key is looked for in what is shown.
type Term struct {
	Key, Value string
	Not        bool
}

// String is how the term is typed.
func (t Term) String() string {
	s := t.Value
	if strings.ContainsAny(s, " \t\"") {
		s = `"` + strings.ReplaceAll(s, `"`, "") + `"`
	}
	if t.Key != "" {
		s = t.Key + ":" + s
	}
	if t.Not {
		s = "-" + s
	}
	return s
}

// ParseTerms reads a filter line: terms with blanks between them, a value with
// blanks in double quotes. The same line is typed in the UI, the CLI and the q
// of the API. keys are the names that the list knows.
func ParseTerms(line string, keys []string) ([]Term, error) {
	var out []Term
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return out, nil
		}
		end, quoted := len(line), false
		for i := 0; i < len(line); i++ {
			if line[i] == '"' {
				quoted = !quoted
			} else if !quoted && (line[i] == ' ' || line[i] == '\t') {
				end = i
				break
			}
		}
		word := strings.ReplaceAll(line[:end], `"`, "")
		line = line[end:]
		t := Term{}
		word, t.Not = strings.CutPrefix(word, "-")
		key, value, found := strings.Cut(word, ":")
		if known := found && contains(keys, key); known {
			t.Key, t.Value = key, value
		} else if found && isWord(key) && !strings.HasPrefix(value, "/") {
			return nil, problem.New(problem.Usage, "no filter is called "+strings.ToLower(key), "Filters: "+strings.Join(keys, ", ")+"; put text with a colon in double quotes.")
		} else {
			t.Value = word
		}
		if t.Value != "" {
			out = append(out, t)
		}
		if len(out) > 32 {
			return nil, problem.New(problem.Usage, "a filter has at most 32 terms", "")
		}
	}
}

func contains(list []string, s string) bool {
	for _, have := range list {
		if have == s {
			return true
		}
	}
	return false
}

func isWord(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return s != ""
}

// matchTerms reports whether a row satisfies every term. Terms of one key that
// are not excluded are alternatives. At most 32 terms, as ParseTerms has them.
func matchTerms(terms []Term, holds func(*Term) bool) bool {
	var wanted, met uint32 // by the place of a key's first term
	for i := range terms {
		t := &terms[i]
		ok := holds(t)
		switch {
		case t.Not && ok, !t.Not && t.Key == "" && !ok:
			return false
		case t.Not || t.Key == "":
			continue
		}
		first := 0
		for terms[first].Key != t.Key || terms[first].Not {
			first++
		}
		wanted |= 1 << first
		if ok {
			met |= 1 << first
		}
	}
	return wanted == met
}

// glob matches with * for any run of characters. A star in the value that is
// matched is a character like any other.
func glob(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	parts := strings.Split(rest, "*")
	for i, part := range parts {
		if i == len(parts)-1 {
			return strings.HasSuffix(s, part)
		}
		at := strings.Index(s, part)
		if at < 0 {
			return false
		}
		s = s[at+len(part):]
	}
	return true
}
