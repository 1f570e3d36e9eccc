package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"gatehouse/gatekeeper"
	"gatehouse/internal/view"
)

// money says nanodollars in dollars, with as many places as matter.
func money(nano int64) string {
	if nano == 0 {
		return "–"
	}
	cents := float64(nano) / 1e9
	if cents < 0.01 {
		return fmt.Sprintf("$%.6f", cents)
	}
	return fmt.Sprintf("$%.2f", cents)
}

// dollars is money where nothing is a number too.
func dollars(nano int64) string {
	if nano == 0 {
		return "$0.00"
	}
	return money(nano)
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return word(s)
}

// floorWords says what the lowest origin of the delivered text means.
func floorWords(floor string) string {
	if floor == "" {
		return "none"
	}
	return word(floor) + " or better; text read later is not rated"
}

// effect says what happened after a decision.
func effect(r view.Receipt) string {
	if r.Effect == "" {
		return ""
	}
	out := []string{strings.ReplaceAll(word(r.Effect), "_", " ")}
	if r.Status != 0 {
		out = append(out, fmt.Sprint(r.Status))
	}
	if r.Up+r.Down > 0 {
		out = append(out, fmt.Sprintf("%s up, %s down", size(r.Up), size(r.Down)))
	}
	if r.Spent > 0 {
		out = append(out, money(r.Spent))
	}
	return strings.Join(out, " · ")
}

func size(n uint64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
}

// indent lays JSON out for reading; what is none is shown as it is.
func indent(b []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, b, "", "  ") != nil {
		return string(b)
	}
	return out.String()
}

// eventURL is an event's page. Its id holds colons and what a platform put in.
func eventURL(id string) string { return "/ui/events/" + url.PathEscape(id) }

// allRuns is runs without its limit, for a page of its own.
func allRuns(s string) []run {
	var out []run
	for len(s) > 0 {
		rs, more := runs(s)
		out = append(out, rs...)
		s = s[len(s)-more:]
	}
	return out
}

// whole is a number that is counted.
type whole interface{ ~int | ~int64 | ~uint64 }

// count writes a number in groups of three digits: one that is long can't be read
// at a glance.
func count[N whole](n N) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural counts what has an s for more than one.
func plural[N whole](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}

// tileWords is what stands under a number, which is said before it.
func tileWords[N whole](n N, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// partWords says how many of n are meant, where all and none are words.
func partWords[N whole](part, n N, none, all, some string) string {
	switch part {
	case 0:
		return none
	case n:
		return all
	}
	return count(part) + " " + some
}

// viaWords says by which road somebody came. The configuration has one only.
func viaWords(via string) string {
	if via == "" || via == "config" {
		return ""
	}
	return "via " + word(via)
}

// rootPointer names the pointer of a whole document.
func rootPointer(p string) string {
	if p == "" {
		return "everything else"
	}
	return word(p)
}

// floorName names the lowest origin of what a session was shown.
func floorName(o string) string {
	if o == "" {
		return "nothing shown"
	}
	return word(o)
}

// markWords is what a person said of a group.
func markWords(status string) string {
	switch status {
	case view.StatusKept:
		return "It stays blocked"
	case view.StatusNoise:
		return "It is noise"
	}
	return "It is looked at again"
}

// markWord is what was done to a group, for a line of a history.
func markWord(status string) string {
	switch status {
	case view.StatusKept:
		return "stays blocked"
	case view.StatusNoise:
		return "is noise"
	}
	return "is looked at again"
}

// sparkWords is what a sparkline shows, for those who can't see it.
func sparkWords(days []uint64) string {
	var sum, most uint64
	for _, d := range days {
		sum += d
		most = max(most, d)
	}
	return fmt.Sprintf("%d attempts in %d days, at most %d a day", sum, len(days), most)
}

// changeWords says what a proposal asks for.
func changeWords(p gatekeeper.Proposal) string {
	switch p.Kind {
	case "mode":
		of := "the bundle"
		if p.Enforcer != "" {
			of = "the enforcer " + word(p.Enforcer)
		}
		return fmt.Sprintf("Turn %s from %s to %s", of, p.From, p.To)
	case "resume":
		return "Resume the bundle"
	}
	return "A new version " + word(p.Digest[:min(12, len(p.Digest))])
}

// approvalsOf counts people: a proposer who is one counts.
func approvalsOf(p gatekeeper.Proposal) string {
	n := len(p.Approvals)
	if p.By != gatekeeper.ByLocal && p.By != gatekeeper.ByConfig {
		n++
	}
	return fmt.Sprintf("%d of %d", n, p.Needs)
}

// versionsOf lists the versions that were in force before, the newest first.
func versionsOf(x bundleView) []string {
	var out []string
	for _, c := range x.history {
		if c.Digest != "" && c.Digest != x.b.Digest && c.Result == "applied" && !slices.Contains(out, c.Digest) {
			out = append(out, c.Digest)
		}
	}
	return out
}

// pageLink is a link of a checklist, which must stay on these pages.
func pageLink(to string) string {
	if strings.HasPrefix(to, "/ui/") && !strings.HasPrefix(to, "//") {
		return to
	}
	return "/ui/"
}
