package github

import (
	"slices"
	"strings"

	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// Commands is the closed list of words that a comment may turn into the fact
// "command". The zero value admits none.
type Commands struct {
	Mention string   // "@gatehouse"; stands at the start of a line
	Words   []string // tokens
}

func (c Commands) check() error {
	if c.Mention == "" && len(c.Words) == 0 {
		return nil
	}
	bad := func(msg string) error {
		return problem.New(problem.ConfigInvalid, msg, `Write commands: {mention: "@name", words: [fix]}.`)
	}
	if c.Mention == "" || len(c.Words) == 0 {
		return bad("commands need a mention and words")
	}
	if strings.ContainsAny(c.Mention, " \t\r\n") {
		return bad("a mention holds no blanks")
	}
	for _, w := range c.Words {
		if !event.IsToken(w) {
			return bad("a command word is not made of a-z, 0-9, _ and -")
		}
	}
	return nil
}

// find returns the one command of a comment. Two different ones are none: which
// is meant is not for us to guess. Quoted lines begin with ">" and do not match;
// fenced code and HTML comments, which a reader does not take for words of the
// author, are skipped.
func (c Commands) find(body string) string {
	if c.Mention == "" {
		return ""
	}
	found, fence := "", ""
	for line := range strings.Lines(visible(body)) {
		line = strings.TrimRight(line, "\r\n")
		if mark := fenceOf(line); mark != "" && (fence == "" || mark == fence) {
			if fence == "" {
				fence = mark
			} else {
				fence = ""
			}
			continue
		}
		rest, ok := strings.CutPrefix(line, c.Mention)
		if !ok || fence != "" || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		words := strings.Fields(rest)
		if len(words) == 0 || !slices.Contains(c.Words, words[0]) {
			continue
		}
		if found != "" && found != words[0] {
			return ""
		}
		found = words[0]
	}
	return found
}

func fenceOf(line string) string {
	t := strings.TrimLeft(line, " ")
	for _, mark := range []string{"```", "~~~"} {
		if strings.HasPrefix(t, mark) {
			return mark
		}
	}
	return ""
}

// visible replaces HTML comments by a character that begins no mention, so that
// what follows one does not move to the start of a line.
func visible(body string) string {
	var b strings.Builder
	for {
		head, rest, ok := strings.Cut(body, "<!--")
		b.WriteString(head)
		if !ok {
			return b.String()
		}
		b.WriteByte(0)
		if _, body, ok = strings.Cut(rest, "-->"); !ok {
			return b.String()
		}
	}
}
