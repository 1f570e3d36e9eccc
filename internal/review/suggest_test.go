package review_test

import (
	"strings"
	"testing"
)

// several is a set of which sessions want two hosts; of lone, one event alone
// wants the second.
const several = `
apiVersion: gatehouse/v1
kind: EgressSet
name: several
hosts: [a.several.example.net, b.several.example.net, c.several.example.net]
`

const lone = `
apiVersion: gatehouse/v1
kind: EgressSet
name: lone
hosts: [a.lone.example.net, b.lone.example.net]
`

// A set comes first when agents asked for several of its hosts: one entry, not
// ten that somebody collects refusal by refusal. One event alone moves nothing.
func TestSuggestPrefersSet(t *testing.T) {
	w := newWorld(t, map[string]string{"several": several, "lone": lone}, fix)
	for range 2 {
		a := w.session(w.event("issue_comment"), "fix", "member")
		for _, host := range []string{"a.several.example.net", "b.several.example.net", "a.lone.example.net"} {
			a.tries("GET", host, "/x.tgz")
		}
		a.ends("completed")
	}
	one := w.session(w.event("issue_comment"), "fix", "member")
	one.tries("GET", "b.lone.example.net", "/x.tgz")
	one.ends("completed")
	r := w.review()
	for host, kinds := range map[string]string{
		"a.several.example.net": "set exact host wildcard",
		"b.several.example.net": "set exact host wildcard",
		"a.lone.example.net":    "exact host set",
	} {
		t.Run(host, func(t *testing.T) {
			l, err := r.Suggest(t.Context(), group(t, r, "host:"+host).ID)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, rung := range l.Rungs {
				got = append(got, rung.Kind)
			}
			if strings.Join(got, " ") != kinds {
				t.Fatalf("rungs %v, want %s", got, kinds)
			}
			if first := l.Rungs[0]; first.Kind == "set" && (!strings.Contains(first.Entry, "set: several") || first.Covers != 4 || first.Groups != 2) {
				t.Errorf("set: %+v", first)
			}
		})
	}
}
