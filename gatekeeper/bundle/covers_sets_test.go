package bundle_test

import "testing"

// TestCoversAddressesOfSets is EG-31 where a set says which addresses its hosts
// may have: the first rule that allows a request binds it to its own, so that
// leaving out that rule may open others.
func TestCoversAddressesOfSets(t *testing.T) {
	const (
		inside = "sets: {s: {hosts: [a.test, b.test], addresses: [10.0.0.0/8]}}\n"
		deep   = "sets: {s: {hosts: [a.c.test], addresses: [10.0.0.0/8]}}\n"
		public = "sets: {s: {hosts: [a.test, b.test]}}\n"
	)
	for name, c := range map[string]struct {
		have, next string
		want       bool
	}{
		"EG-31_set_that_stood_before":       {"egress: [{set: s}, {host: a.test}]\n" + inside, "egress: [{host: a.test}]\n", false},
		"EG-31_host_that_stood_before":      {"egress: [{host: a.test}, {set: s}]\n" + inside, "egress: [{set: s}]\n" + inside, false},
		"EG-31_host_behind_its_set":         {"egress: [{host: a.test}, {set: s}]\n" + inside, "egress: [{set: s}, {host: a.test}]\n" + inside, false},
		"EG-31_wildcard_that_stood_before":  {"egress: [{host: '*.c.test'}, {set: s}]\n" + deep, "egress: [{set: s}]\n" + deep, false},
		"EG-31_addresses_before_public_set": {"egress: [{host: a.test, addresses: [10.0.0.0/8]}, {set: s}]\n" + public, "egress: [{set: s}]\n" + public, false},
		"set_of_other_hosts_gone":           {"egress: [{set: s}, {host: c.test}]\n" + inside, "egress: [{host: c.test}]\n", true},
		"other_host_gone":                   {"egress: [{host: c.test}, {set: s}]\n" + inside, "egress: [{set: s}]\n" + inside, true},
		"set_behind_gone":                   {"egress: [{host: a.test}, {set: s}]\n" + inside, "egress: [{host: a.test}]\n", true},
		"public_set_gone":                   {"egress: [{set: s}, {host: a.test}]\n" + public, "egress: [{host: a.test}]\n", true},
		"unchanged":                         {"egress: [{host: a.test}, {set: s}]\n" + inside, "egress: [{host: a.test}, {set: s}]\n" + inside, true},
	} {
		t.Run(name, func(t *testing.T) {
			if ok, why := parse(t, minimal+c.have).Covers(parse(t, minimal+c.next)); ok != c.want {
				t.Errorf("covers = %t (%s), want %t", ok, why, c.want)
			}
		})
	}
}
