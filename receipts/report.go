package receipts

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report fills what the Result says in words and lists.
func (v *verifier) report() {
	o := &v.res.Observation
	o.Level = -1
	expected, reported, missing, notSeen := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	dev := false
	for _, c := range v.order {
		yes, no := c.reported()
		for _, p := range c.points {
			expected[p] = true
		}
		for _, p := range yes {
			reported[p] = true
		}
		for _, p := range no { // RC-31
			missing[p] = true
		}
		for _, p := range c.notSeen {
			notSeen[p] = true
		}
		if c.level >= 0 && (o.Level < 0 || c.level < o.Level) {
			o.Level = c.level
		}
		dev = dev || c.dev
		if len(v.res.Sessions) < MaxSessions {
			v.res.Sessions = append(v.res.Sessions, c.Session)
		}
	}
	o.Expected, o.Reported, o.Missing, o.NotObserved = sorted(expected), sorted(reported), sorted(missing), sorted(notSeen)

	a := &v.res.Authenticity
	switch {
	case v.ks == nil:
		a.State = Unknown
	case v.trusted && !v.has(ClassKey):
		a.State = Yes
	default:
		a.State = No
	}
	v.res.NotShown = v.notShown(dev)
}

// notShown lists what the file leaves open, the general limits last.
func (v *verifier) notShown(dev bool) []string {
	var out []string
	in, end := v.res.Integrity, v.res.Completeness
	if dev {
		out = append(out, "what real upstreams would have done: development substitutions were in force")
	}
	switch {
	case end.State == EndAsOf:
		out = append(out, "what happened after "+end.AsOf.Format(time.RFC3339))
	case end.State == EndUnknown:
		out = append(out, "anything: the file could not be read")
	case end.State != EndClosed && end.State != EndCurrent:
		out = append(out, "whether more happened than the file holds")
	}
	if end.Opened != nil && *end.Opened > end.InFile {
		out = append(out, fmt.Sprintf("the other %d of the %d sessions that the log opened", *end.Opened-end.InFile, *end.Opened))
	}
	if in.Hidden > 0 {
		out = append(out, fmt.Sprintf("what %d leaves say that stand by their hash alone", in.Hidden))
	}
	if n := v.res.Observation.NotObserved; len(n) > 0 {
		out = append(out, "what went by the paths that the record names as not observed: "+quoteAll(n))
	}
	return append(out,
		"that the agent's work is right, or what an allowed host did with what it received",
		"what was said in requests and answers: the record keeps no bodies, only keyed commitments",
		"true time: times are the node's own clock",
		"sessions that ran beside Gatehouse, and text that a session read later through the door")
}

// Lines returns the four lines that every report begins with.
func (r *Result) Lines() [4]string {
	return [4]string{
		"integrity:    " + r.integrityLine(),
		"authenticity: " + r.authenticityLine(),
		"completeness: " + r.completenessLine(),
		"observation:  " + r.observationLine(),
	}
}

func (r *Result) integrityLine() string {
	in := r.Integrity
	s := fmt.Sprintf("%d of %d receipts are the sealed ones", in.Matching, in.Receipts)
	if in.Receipts > 0 {
		s += fmt.Sprintf(" (%s, log indices %d to %d)", plural(in.Seals, "seal"), in.First, in.Last)
	}
	switch {
	case in.State == No:
		return "BROKEN: " + r.FirstBad.Message + at(r.FirstBad) + "; " + s
	case r.Exit == ExitUsage, r.Exit == ExitUnsupported:
		return "not judged: " + r.FirstBad.Message + at(r.FirstBad)
	case in.Receipts == 0:
		return "no receipts"
	}
	return s + ", every chain unbroken"
}

func at(f *Finding) string {
	if f.Index == nil {
		return ""
	}
	return fmt.Sprintf(" at log index %d", *f.Index)
}

func (r *Result) authenticityLine() string {
	a := r.Authenticity
	switch {
	case a.State == Unknown:
		return "not established: no keyset was read"
	case a.State == Yes:
		return fmt.Sprintf("keys of %s, keyset %d, signed by the root you gave", a.Origin, a.Serial)
	case !a.Pinned:
		return fmt.Sprintf("NOT ESTABLISHED: the file is signed by root %s, which you have not confirmed with --root", a.Root)
	}
	for _, f := range r.Findings {
		if f.Class == ClassKey {
			return "NOT ESTABLISHED: " + f.Message + at(&f)
		}
	}
	return "NOT ESTABLISHED"
}

func (r *Result) completenessLine() string {
	c := r.Completeness
	var s string
	switch c.State {
	case EndClosed:
		s = "every session in the file has ended and the file holds its end"
	case EndCurrent:
		s = fmt.Sprintf("proven through log size %d by the checkpoint you gave, of %s", c.Through, c.AsOf.Format(time.RFC3339))
	case EndAsOf:
		s = fmt.Sprintf("proven through log size %d as of %s; END SINCE THEN UNPROVEN", c.Through, c.AsOf.Format(time.RFC3339))
	case EndCut:
		s = "THE END IS CUT OFF"
	case EndEmpty:
		s = "NO RECEIPTS: this proves nothing"
	case EndUnproven:
		s = "END UNPROVEN: an intact beginning, and nothing that says it is all"
	default:
		s = "not judged"
	}
	if c.Opened != nil {
		s += fmt.Sprintf("; %d of %s that the log opened by then", c.InFile, plural(*c.Opened, "session"))
	}
	if p := r.Period; p != nil {
		s += fmt.Sprintf("; in the period asked for %s opened, %d in the file", plural(p.Opened, "session"), p.InFile)
	}
	return s
}

func (r *Result) observationLine() string {
	o := r.Observation
	s := fmt.Sprintf("%d of %d expected points reported", len(o.Reported), len(o.Expected))
	if len(o.Missing) > 0 {
		s += " (silent: " + quoteAll(o.Missing) + ")"
	}
	if o.Level < 0 {
		s += "; no decision was observed"
	} else {
		s += fmt.Sprintf("; lowest level L%d, %s", o.Level, levels[o.Level])
	}
	if len(o.NotObserved) > 0 {
		s += "; not observed: " + quoteAll(o.NotObserved)
	}
	return s
}

// levels says what each observation level means.
var levels = [...]string{
	"told by the agent itself",
	"seen by a wrapper that the agent could go around",
	"seen outside the sandbox, other ways out not shown closed",
	"seen outside the sandbox, as the only way out that a probe found",
}

// Happened tells each session in a sentence. Names that people or programs
// chose are quoted, so that they cannot pass for the verifier's words.
func (r *Result) Happened() []string {
	out := make([]string, 0, len(r.Sessions))
	for _, s := range r.Sessions {
		out = append(out, s.sentence())
	}
	return out
}

func (s *Session) sentence() string {
	var b strings.Builder
	if s.ID == ControlSession {
		fmt.Fprintf(&b, "The node's control chain: %s from %s to %s.", plural(s.Receipts, "receipt"), stamp(s.From), stamp(s.To))
		return b.String()
	}
	fmt.Fprintf(&b, "Session %s", s.ID)
	if s.Event != "" {
		fmt.Fprintf(&b, ", for event %s,", quote(s.Event))
	}
	if s.State == "refused" {
		fmt.Fprintf(&b, " was refused at %s: %s.", stamp(s.From), s.Code)
		return b.String()
	}
	fmt.Fprintf(&b, " was admitted at %s", stamp(s.From))
	if s.Bundle != "" {
		fmt.Fprintf(&b, " under bundle %s (%s", quote(s.Bundle), s.Mode)
		if s.Policy != "" {
			fmt.Fprintf(&b, ", %s", s.Policy)
		}
		b.WriteString(")")
	}
	var total uint64
	for _, n := range s.Verdicts {
		total += n
	}
	fmt.Fprintf(&b, ". %s: %d allowed, %d denied, %d would have been blocked and passed, %d enforcer faults.",
		plural(total, "decision"), s.Verdicts[CountAllow], s.Verdicts[CountDeny], s.Verdicts[CountWouldBlock], s.Verdicts[CountFault])
	if s.Spent > 0 {
		fmt.Fprintf(&b, " Spent %s USD.", dollars(s.Spent))
	}
	if s.Unknown+s.Pending > 0 {
		fmt.Fprintf(&b, " The outcome of %s is not known.", plural(s.Unknown+s.Pending, "decision"))
	}
	switch {
	case s.State != "closed":
		fmt.Fprintf(&b, " The file does not hold its end; the last receipt is of %s.", stamp(s.To))
	case s.ExitCode != nil:
		fmt.Fprintf(&b, " It ended %s at %s, exit code %d.", s.Reason, stamp(s.To), *s.ExitCode)
	default:
		fmt.Fprintf(&b, " It ended %s at %s.", s.Reason, stamp(s.To))
	}
	return b.String()
}

// dollars writes nanodollars.
func dollars(n int64) string {
	s := fmt.Sprintf("%d.%09d", n/1e9, n%1e9)
	whole, frac, _ := strings.Cut(s, ".")
	for len(frac) > 2 && frac[len(frac)-1] == '0' {
		frac = frac[:len(frac)-1]
	}
	return whole + "." + frac
}

func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05Z") }

func quote(s string) string { return strconv.QuoteToASCII(s) }

func quoteAll(list []string) string {
	out := slices.Clone(list)
	for i := range out {
		out[i] = quote(out[i])
	}
	return strings.Join(out, ", ")
}

func plural(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// WriteText writes the whole report: the verdict, the four lines, what happened
// and what the file does not show.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Verdict())
	for _, l := range r.Lines() {
		fmt.Fprintln(&b, l)
	}
	if f := r.FirstBad; f != nil {
		fmt.Fprintf(&b, "\nFindings\n")
		for _, f := range r.Findings {
			fmt.Fprintf(&b, "  %d %s: %s%s\n", f.Exit, f.Class, f.Message, where(&f))
		}
		if r.More > 0 {
			fmt.Fprintf(&b, "  and %d more\n", r.More)
		}
	}
	if h := r.Happened(); len(h) > 0 {
		fmt.Fprintf(&b, "\nWhat happened, by these receipts\n")
		for _, s := range h {
			fmt.Fprintf(&b, "  %s\n", s)
		}
	}
	fmt.Fprintf(&b, "\nWhat this does not show\n")
	for _, s := range r.NotShown {
		fmt.Fprintf(&b, "  - %s\n", s)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func where(f *Finding) string {
	s := at(f)
	if f.Session != "" {
		s += ", session " + quote(f.Session)
	}
	return s + fmt.Sprintf(" (byte %d)", f.Offset)
}

// Verdict is the report's first line.
func (r *Result) Verdict() string {
	words := map[Exit]string{
		ExitComplete:    "complete",
		ExitTampered:    "TAMPERED",
		ExitUsage:       "UNREADABLE",
		ExitUnproven:    "VALID PREFIX, END UNPROVEN",
		ExitUntrusted:   "KEY NOT TRUSTED",
		ExitAdmitted:    "complete, with admitted losses or open outcomes",
		ExitUnsupported: "UNSUPPORTED",
	}
	return fmt.Sprintf("%s (exit %d, %s)", words[r.Exit], r.Exit, r.Class)
}
