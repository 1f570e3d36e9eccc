package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"

	"gatehouse/receipts"
)

// Watch reads along while an agent prints. At each of its lines it takes what
// has newly arrived outside, so that every byte there belongs to an attempt.
type Watch struct {
	world *World

	mu    sync.Mutex
	buf   []byte
	last  int64
	lines map[string]Line
	bytes map[string]int64
	all   bytes.Buffer // everything the agent said, for the search for canaries
}

// NewWatch starts counting from what has arrived so far.
func NewWatch(w *World) *Watch {
	return &Watch{world: w, last: w.Bytes(), lines: map[string]Line{}, bytes: map[string]int64{}}
}

// Write takes a piece of the agent's output.
func (w *Watch) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all.Len() < 1<<20 {
		w.all.Write(b)
	}
	w.buf = append(w.buf, b...)
	for {
		line, rest, found := bytes.Cut(w.buf, []byte("\n"))
		if !found {
			return len(b), nil
		}
		w.buf = rest
		var l Line
		if json.Unmarshal(line, &l) != nil || l.Attempt == "" {
			continue
		}
		now := w.world.Bytes()
		w.lines[l.Attempt] = l
		w.bytes[l.Attempt] += now - w.last
		w.last = now
	}
}

// Sealed is a receipt with its leaf hash.
type Sealed struct {
	Leaf receipts.Hash
	*receipts.Receipt
}

// Chain is one session's verified export.
type Chain struct {
	Session  string
	Result   *receipts.Result
	Receipts []Sealed
}

// Row is one attempt in both modes.
type Row struct {
	ID     string `json:"id"`
	Shadow string `json:"shadow"` // allow | would_block | deny | closed, LEAK or missing
	Hard   string `json:"hard"`
	Bytes  int64  `json:"upstream_bytes_hard"`

	shadowBytes int64
	title       string
}

// Refusal is one delivery that started nothing.
type Refusal struct {
	What string `json:"what"`
	Code string `json:"code"`
}

// Totals are the receipts of every chain of the demo.
type Totals struct {
	Verdict string `json:"verdict"` // complete, or the class of the first chain that is not
	Count   int    `json:"count"`
}

// Report is what the demo found.
type Report struct {
	Attempts []Row     `json:"attempts"`
	Refusals []Refusal `json:"refusals"`
	Receipts Totals    `json:"receipts"`
	Leaks    []string  `json:"leaks"`
}

// Add judges one session of the agent. The receipts and the fakes' counters
// are believed; the agent's words only where they admit something.
func (r *Report) Add(mode receipts.Mode, w *Watch, c *Chain, canary string) {
	r.init()
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(w.all.String(), canary) {
		r.leak(mode, "canary", "the agent printed a planted secret")
	}
	if n := w.world.DNS.QueriesUnder(ExfilZone); n > 0 {
		r.leak(mode, "dns_label", fmt.Sprintf("%d queries left for %s", n, ExfilZone))
	}
	for i := range Attempts {
		a, row := &Attempts[i], &r.Attempts[i]
		line, said := w.lines[a.ID]
		verdict := a.verdict(c)
		if !said {
			verdict = "missing"
			r.leak(mode, a.ID, "the agent did not report the attempt")
		}
		if why := a.wrong(mode, verdict, line, w.bytes[a.ID]); said && why != "" {
			r.leak(mode, a.ID, why)
			verdict = "LEAK"
		}
		if mode == receipts.Hard {
			row.Hard, row.Bytes = verdict, w.bytes[a.ID]
		} else {
			row.Shadow, row.shadowBytes = verdict, w.bytes[a.ID]
		}
	}
	r.chain(c)
}

// Refuse takes the chain of a delivery that must have been refused.
func (r *Report) Refuse(what string, c *Chain) {
	r.init()
	code := "not_refused"
	if len(c.Receipts) > 0 && c.Receipts[0].Open != nil && c.Receipts[0].Open.State == "refused" {
		code = c.Receipts[0].Open.Code
	} else {
		r.Leaks = append(r.Leaks, what+": the delivery was not refused")
	}
	r.Refusals = append(r.Refusals, Refusal{what, code})
	r.chain(c)
}

// OK reports whether nothing leaked and every chain is complete.
func (r *Report) OK() bool { return len(r.Leaks) == 0 && r.Receipts.Verdict == "complete" }

func (r *Report) init() {
	if r.Attempts != nil {
		return
	}
	r.Receipts.Verdict, r.Leaks, r.Refusals = "complete", []string{}, []Refusal{}
	for _, a := range Attempts {
		r.Attempts = append(r.Attempts, Row{ID: a.ID, title: a.Title})
	}
}

func (r *Report) leak(mode receipts.Mode, id, why string) {
	r.Leaks = append(r.Leaks, fmt.Sprintf("%s in %s: %s", id, mode, why))
}

func (r *Report) chain(c *Chain) {
	r.Receipts.Count += len(c.Receipts)
	if c.Result.Exit != receipts.ExitComplete && r.Receipts.Verdict == "complete" {
		r.Receipts.Verdict = string(c.Result.Class)
	}
}

// verdict finds what the chain says of the attempt: the first decision of it
// that is not an allow, else the allow.
func (a *Attempt) verdict(c *Chain) string {
	if a.judged == nil {
		return "closed"
	}
	found := ""
	for _, r := range c.Receipts {
		if r.Type != receipts.TypeDecision || !a.judged(r.Act, r.Dec) {
			continue
		}
		switch {
		case r.Dec.Verdict == receipts.Allow:
			found = "allow"
		case r.Dec.Passed:
			return "would_block"
		default:
			return "deny"
		}
	}
	if found == "" {
		return "missing"
	}
	return found
}

// wrong says what the attempt should not have achieved, "" when it is as it
// must be.
func (a *Attempt) wrong(mode receipts.Mode, verdict string, said Line, sent int64) string {
	switch {
	case canaryForm.MatchString(said.Detail):
		return "a canary was found: " + said.Detail
	case a.Good:
		if verdict != "allow" || !said.Got || sent == 0 {
			return "the listed request did not work: " + said.Detail
		}
		return ""
	case mode == receipts.Shadow && a.Passes:
		if verdict != "would_block" {
			return "shadow recorded " + verdict + " instead of would_block"
		}
		return ""
	case said.Got:
		return "it worked: " + said.Detail
	case sent != 0:
		return fmt.Sprintf("%d bytes reached the outside", sent)
	case a.judged == nil:
		return ""
	case verdict != "deny":
		return "the receipts say " + verdict + " instead of deny"
	}
	return ""
}

// WriteText prints the table and the last line.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "ATTEMPT\tSHADOW\tHARD\tBYTES OUTSIDE (SHADOW)\tBYTES OUTSIDE (HARD)\t")
	for _, a := range r.Attempts {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t\n", a.title, a.Shadow, a.Hard, a.shadowBytes, a.Bytes)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range r.Refusals {
		fmt.Fprintf(w, "refused: %s (%s)\n", x.What, x.Code)
	}
	for _, l := range r.Leaks {
		fmt.Fprintf(w, "LEAK: %s\n", l)
	}
	if r.OK() {
		_, err := fmt.Fprintf(w, "demo: ok, %d attempts, 0 leaks, receipts complete\n", len(r.Attempts))
		return err
	}
	_, err := fmt.Fprintf(w, "demo: FAILED, %d attempts, %d leaks, receipts %s\n", len(r.Attempts), len(r.Leaks), r.Receipts.Verdict)
	return err
}
