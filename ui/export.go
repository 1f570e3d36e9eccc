package ui

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"gatehouse/internal/view"
)

// maxExported bounds one download of a list; the streams hold the rest.
const maxExported = 10_000

// table is a list as a download has it.
type table struct {
	columns []string
	rows    func(after string) (rows []row, next string, err error)
}

// row is one row: its cells for CSV, the whole of it for NDJSON.
type row struct {
	cells []string
	whole any
}

// download serves a list under its filter as CSV or NDJSON: what the page shows,
// all pages of it.
func (u *UI) download(list string, of func(*http.Request) (table, error)) {
	serve := func(w http.ResponseWriter, r *http.Request, format string) {
		t, err := of(r)
		if err != nil {
			p := problemOf(err)
			http.Error(w, sentence(p.Msg), p.Code.Status())
			return
		}
		w.Header().Set("Content-Disposition", `attachment; filename="`+list+"."+format+`"`)
		write := t.csv
		w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
		if format == "ndjson" {
			write = t.ndjson
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		if err := write(w); err != nil {
			u.o.Log.WarnContext(r.Context(), "download", slog.String("path", r.URL.Path), slog.Any("err", err))
			panic(http.ErrAbortHandler) // half a file must not look whole
		}
	}
	for _, format := range []string{"csv", "ndjson"} {
		u.mux.HandleFunc("GET /ui/"+list+"."+format, func(w http.ResponseWriter, r *http.Request) { serve(w, r, format) })
	}
}

// each calls f with every row, at most maxExported.
func (t table) each(f func(row) error) error {
	n, after := 0, ""
	for {
		rows, next, err := t.rows(after)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if n++; n > maxExported {
				return nil
			}
			if err := f(r); err != nil {
				return err
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}

func (t table) csv(w http.ResponseWriter) error {
	out := csv.NewWriter(w)
	if err := out.Write(t.columns); err != nil {
		return err
	}
	err := t.each(func(r row) error {
		for i, c := range r.cells {
			r.cells[i] = cell(c)
		}
		return out.Write(r.cells)
	})
	out.Flush()
	if err == nil {
		err = out.Error()
	}
	return err
}

func (t table) ndjson(w http.ResponseWriter) error {
	out := json.NewEncoder(w)
	return t.each(func(r row) error { return out.Encode(r.whole) })
}

// cell keeps a spreadsheet from taking a stranger's text for a formula, and
// writes hidden characters out.
func cell(s string) string {
	s = word(s)
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func (u *UI) sessionTable(r *http.Request) (table, error) {
	f, _, err := asked(r, sessionKeys)
	return table{
		columns: []string{"session", "state", "reason", "bundle", "mode", "event", "allow", "would_block", "deny", "fault", "spent_nanodollars", "started"},
		rows: func(after string) ([]row, string, error) {
			p, err := u.o.View.Sessions(view.SessionFilter{}, after, view.MaxLimit)
			var out []row
			for _, s := range p.Items {
				if f.fits(sessionFields(s)) {
					out = append(out, row{[]string{s.ID, s.State, s.Reason, s.Bundle, s.Mode, s.Event, fmt.Sprint(s.Counts.Allow), fmt.Sprint(s.Counts.WouldBlock),
						fmt.Sprint(s.Counts.Deny), fmt.Sprint(s.Counts.Fault), fmt.Sprint(s.Spent), stamp(s.Started)}, s})
				}
			}
			return out, p.Next, err
		},
	}, err
}

func (u *UI) eventTable(r *http.Request) (table, error) {
	f, _, err := asked(r, eventKeys)
	return table{
		columns: []string{"event", "source", "endpoint", "kind", "actor", "level", "anomalies", "received"},
		rows: func(after string) ([]row, string, error) {
			p, err := u.o.View.Events(view.EventFilter{}, after, view.MaxLimit)
			var out []row
			for _, e := range p.Items {
				if f.fits(eventFields(e)) {
					out = append(out, row{[]string{e.ID, e.Source, e.Endpoint, kindOf(e), e.Actor.ID, e.Actor.Level, strings.Join(e.Anomalies, " "), stamp(e.Received)}, e})
				}
			}
			return out, p.Next, err
		},
	}, err
}

func (u *UI) groupTable(r *http.Request) (table, error) {
	f, _, err := asked(r, view.GroupKeys)
	line := f.String()
	if line == "" {
		line = toLookAt
	}
	return table{
		columns: []string{"group", "bundle", "kind", "method", "target", "rule", "reason", "would_block", "refused", "sessions", "events", "status", "first", "last"},
		rows: func(after string) ([]row, string, error) {
			p, err := u.o.Review.Groups(r.Context(), line, f.sort, after, view.MaxLimit)
			var out []row
			for _, g := range p.Items {
				out = append(out, row{[]string{g.ID, g.Bundle, g.Kind, g.Method, targetOf(g), g.Rule, g.Reason, fmt.Sprint(g.WouldBlock), fmt.Sprint(g.Refused),
					fmt.Sprint(g.Sessions), fmt.Sprint(g.Events), g.Status, stamp(g.First), stamp(g.Last)}, g})
			}
			return out, p.Next, err
		},
	}, err
}
