package review_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/review"
)

// T-13: what another set file would give stands in words and in the difference,
// as any other widening does.
func TestSetChangeInWords(t *testing.T) {
	src := strings.Replace(fix, "egress: [", "egress: [{set: npm}, ", 1)
	hold := func(file string) *bundle.Bundle {
		b, err := bundle.Parse([]byte(src))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = b.Pin(bundle.Sets(fstest.MapFS{"npm.yaml": {Data: []byte(file)}})); err != nil {
			t.Fatal(err)
		}
		return b
	}
	with := func(hosts string) string {
		return "apiVersion: gatehouse/v1\nkind: EgressSet\nname: npm\nhosts: [" + hosts + "]\n"
	}
	before, after := hold(with("a.example.net")), hold(with("a.example.net, evil.example.net"))
	want := []string{"set npm: a new host: evil.example.net", "no credential goes there; what the agent can read, it can send there", "every path of the host"}
	if diff := cmp.Diff(want, review.Growth(before, after)); diff != "" {
		t.Error(diff)
	}
	if got := review.Growth(after, before); len(got) != 0 {
		t.Errorf("narrowing grows: %v", got)
	}
	writes := review.Growth(before, hold(with("a.example.net")+"methods: [GET, HEAD, PUT]\n"))
	if len(writes) == 0 || writes[0] != "set npm: more of host a.example.net, which is listed already" || !slices.ContainsFunc(writes, func(s string) bool { return strings.HasPrefix(s, "writing methods: PUT") }) {
		t.Errorf("another method: %q", writes)
	}
	d, err := review.Diff(before, after)
	if err != nil || !strings.Contains(d, "+            - evil.example.net\n") {
		t.Errorf("%v\n%s", err, d)
	}
	plain, err := bundle.Parse([]byte(fix))
	if err != nil {
		t.Fatal(err)
	}
	if got := review.Growth(plain, after); len(got) != 1 || got[0] != "every host of the set npm becomes reachable: a.example.net, evil.example.net" {
		t.Errorf("a new set: %q", got)
	}

	w := newWorld(t, map[string]string{"npm": with("a.example.net")}, src)
	files := fstest.MapFS{"npm.yaml": {Data: []byte(with("a.example.net"))}}
	r := w.review(func(o *review.Options) { o.Sets = bundle.Sets(files) })
	item := func() review.Item {
		t.Helper()
		got, err := r.Ready(t.Context(), "fix")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(got.Items, func(i review.Item) bool { return i.ID == "sets" })
		if i < 0 {
			t.Fatalf("no item about sets: %+v", got.Items)
		}
		return got.Items[i]
	}
	if got := item(); !got.OK {
		t.Errorf("the file is the one that is held: %+v", got)
	}
	files["npm.yaml"] = &fstest.MapFile{Data: []byte(with("a.example.net, evil.example.net"))}
	if got := item(); got.OK || !strings.Contains(got.Text, "set npm adds evil.example.net") {
		t.Errorf("the file changed: %+v", got)
	}
	sim, err := r.Simulate(t.Context(), []byte(src), review.Window{})
	if err != nil || sim.Digest == sim.Base {
		t.Errorf("simulating the file again is simulating another version: %v, %s", err, sim.Digest)
	}
}
