package ui

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/a-h/templ"

	"gatehouse/internal/problem"
)

// problemText is a problem in words for a page.
type problemText struct{ title, says, hint, code string }

// textOf says a problem under a title that tells at a glance whose turn it is.
func textOf(p *problem.Error) problemText {
	title := "Not done"
	switch p.Code {
	case problem.NotFound:
		title = "Not found"
	case problem.Forbidden, problem.LoginAgain:
		title = "Not allowed"
	case problem.Usage:
		title = "Not understood"
	case problem.Internal, problem.Unavailable:
		title = "Not available"
	}
	return problemText{title, p.Msg, p.Hint, string(p.Code)}
}

// backFrom is the page from which a step was asked for: steps lie below their pages.
func backFrom(r *http.Request) string {
	if i := strings.LastIndexByte(r.URL.Path, '/'); r.Method == http.MethodPost && strings.Count(r.URL.Path[:i], "/") > 2 {
		return (&url.URL{Path: r.URL.Path[:i]}).String()
	}
	return ""
}

// sentence gives a message, which the CLI prints in lower case, the form of a
// page's prose. A name at its beginning stays as it is written.
func sentence(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	if first, _, _ := strings.Cut(s, " "); !strings.ContainsAny(strings.TrimRight(first, ".:,;"), "._-/:") {
		s = string(unicode.ToUpper(r)) + s[n:]
	}
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// moment is a time with the now it is told from.
type moment struct{ t, now time.Time }

func (m moment) iso() string { return m.t.UTC().Format(time.RFC3339Nano) }

// at returns t for the page that is being made.
func at(ctx context.Context, t time.Time) moment { return moment{t, of(ctx).now} }

// short is the part of an identifier by which people tell it from others.
func short(s string) string {
	s = word(s)
	if r := []rune(s); len(r) > 28 {
		return string(r[:16]) + "…" + string(r[len(r)-8:])
	}
	return s
}

// stateClass maps a session's state to a class, so that no other text becomes one.
func stateClass(s string) string {
	switch s {
	case "admitted", "preparing", "running", "ended", "refused":
		return s
	}
	return "other"
}

// written writes a stranger's text, its escapes marked. It is no template
// because in a pre element every blank counts.
func written(rs []run) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		var b strings.Builder
		for _, r := range rs {
			if r.escape {
				b.WriteString(`<span class="esc">` + templ.EscapeString(r.text) + `</span>`)
			} else {
				b.WriteString(templ.EscapeString(r.text))
			}
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// diffLines writes a unified diff with a class for each kind of line.
func diffLines(text string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		var b strings.Builder
		head := true
		for line := range strings.Lines(text) {
			class := ""
			head = head && line[0] != '@'
			switch {
			case head:
				class = "at" // the versions' names, which are neither added nor taken away
			case line[0] == '+':
				class = "added"
			case line[0] == '-':
				class = "removed"
			case line[0] == '@':
				class = "at"
			}
			b.WriteString(`<span class="` + class + `">` + templ.EscapeString(strings.TrimRight(line, "\n")) + "</span>\n")
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}
