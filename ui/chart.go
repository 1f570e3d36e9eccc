package ui

import (
	"net/http"
	"net/url"
	"time"

	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

// spans are what the charts of a page show: its time axis is part of the URL.
type spans struct {
	id, name string
	by       time.Duration
	n        int
	format   string // of a point in the table
}

var allSpans = []spans{
	{"day", "24 hours", time.Hour, 24, "2 Jan 15:04"},
	{"month", "30 days", 24 * time.Hour, 30, "2 Jan"},
}

func spansOf(r *http.Request) (spans, error) {
	want := r.URL.Query().Get("span")
	for _, s := range allSpans {
		if s.id == want || want == "" {
			return s, nil
		}
	}
	return spans{}, problem.New(problem.Usage, "there is no such span", "Take day or month.")
}

// chart is a time series. Its table holds everything that is drawn: the script
// reads the table, so that the picture cannot say anything else.
type chart struct {
	id, title, unit string // unit is "" for a number, "usd" for dollars
	page            string
	span            spans
	lines           []chartLine
	at              []time.Time
}

type chartLine struct {
	name, class string // class is the colour
	values      []float64
	text        []string
}

// charts are the two series of a page: decisions, and spend with its cap.
func charts(page string, s spans, data []view.Span, cap int64) []chart {
	decided := chart{id: "decided", title: "Decisions", page: page, span: s, lines: []chartLine{
		{name: "allow", class: "allow"}, {name: "would block", class: "would"}, {name: "deny", class: "deny"}, {name: "fault", class: "fault"},
	}}
	spent := chart{id: "spent", title: "Spent in its UTC day", unit: "usd", page: page, span: s, lines: []chartLine{{name: "spent", class: "accent"}}}
	if cap > 0 {
		spent.lines = append(spent.lines, chartLine{name: "cap of the day", class: "deny"})
	}
	var day int64
	for _, x := range data {
		decided.at, spent.at = append(decided.at, x.Start), append(spent.at, x.Start)
		for i, n := range []uint64{x.Counts.Allow, x.Counts.WouldBlock, x.Counts.Deny, x.Counts.Fault} {
			decided.lines[i].add(float64(n), count(n))
		}
		if x.Start.Hour() == 0 {
			day = 0
		}
		day += x.Spent
		spent.lines[0].add(float64(day)/1e9, money(day))
		if cap > 0 {
			spent.lines[1].add(float64(cap)/1e9, money(cap))
		}
	}
	return []chart{decided, spent}
}

func (l *chartLine) add(v float64, text string) {
	l.values, l.text = append(l.values, v), append(l.text, text)
}

// flat reports whether nothing happened in the whole span.
func (c chart) flat() bool {
	for _, v := range c.lines[0].values {
		if v != 0 {
			return false
		}
	}
	if c.unit != "" {
		return true
	}
	for _, l := range c.lines[1:] {
		for _, v := range l.values {
			if v != 0 {
				return false
			}
		}
	}
	return true
}

// to is the page under another span.
func (c chart) to(s spans) string { return c.page + "?" + url.Values{"span": {s.id}}.Encode() }
