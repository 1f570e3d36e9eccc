package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"
)

// rows prints records as a table, as one JSON array, or as one JSON object a
// line. head names the columns of the table; cells gives a record's row.
func rows[T any](c *cli, records []T, head []string, cells func(T) []string) error {
	switch c.output {
	case "json":
		if records == nil {
			records = []T{}
		}
		return c.json(records)
	case "ndjson":
		enc := json.NewEncoder(c.out)
		enc.SetEscapeHTML(false)
		for _, r := range records {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	case "table":
		w := tabwriter.NewWriter(c.out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, strings.ToUpper(strings.Join(head, "\t")))
		for _, r := range records {
			row := cells(r)
			for i := range row {
				row[i] = plain(row[i])
			}
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		return w.Flush()
	}
	return c.knownOutput()
}

// knownOutput refuses an --output that no verb has, before one takes it for JSON.
func (c *cli) knownOutput() error {
	switch c.output {
	case "table", "json", "ndjson":
		return nil
	}
	return usage(fmt.Sprintf("unknown output %q", c.output), "use table, json or ndjson")
}

// plain makes a cell fit a terminal: whatever could move the cursor, hide or
// reorder text is shown as an escape.
func plain(s string) string {
	if s == "" {
		return "-"
	}
	var b strings.Builder
	for _, r := range s {
		if r >= 0xe0000 || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			fmt.Fprintf(&b, `\u{%x}`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
