//go:build linux

package remoted

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/remote"
)

// TestContract holds docs/api/remote-provider.yaml to the code: the same paths
// and the same fields, no more and no less.
func TestContract(t *testing.T) {
	raw, err := os.ReadFile("../../../../docs/api/remote-provider.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	var said []string
	for path, methods := range doc.Paths {
		for m := range methods {
			if m != "parameters" {
				said = append(said, strings.ToUpper(m)+" "+path)
			}
		}
	}
	slices.Sort(said)
	if d := cmp.Diff(slices.Sorted(maps.Keys(routes)), said); d != "" {
		t.Errorf("paths (-code +document):\n%s", d)
	}
	types := map[string]any{
		"About": remote.About{}, "Create": remote.Create{}, "DoorKey": remote.DoorKey{}, "Challenge": sandbox.Challenge{}, "Status": remote.Status{},
		"Cases": remote.Cases{}, "Case": remote.Case{}, "Line": remote.Line{}, "Ended": remote.Ended{}, "Fault": remote.Fault{},
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(types)), slices.Sorted(maps.Keys(doc.Components.Schemas))); d != "" {
		t.Errorf("schemas (-code +document):\n%s", d)
	}
	for name, v := range types {
		var fields []string
		for f := range reflect.TypeOf(v).Fields() {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, tag)
		}
		slices.Sort(fields)
		if d := cmp.Diff(fields, slices.Sorted(maps.Keys(doc.Components.Schemas[name].Properties))); d != "" {
			t.Errorf("%s (-code +document):\n%s", name, d)
		}
	}
}

func TestParseUser(t *testing.T) {
	cases := map[string]struct {
		status string
		want   uint32
		bad    bool
	}{
		"one":      {status: "Name:\tx\nUid:\t609999\t609999\t609999\t609999\n", want: 609999},
		"several":  {status: "Uid:\t1000\t0\t0\t0\n", bad: true},
		"none":     {status: "Name:\tUid:\n", bad: true},
		"unshaped": {status: "Uid:\tx\n", bad: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseUser(c.status)
			if (err != nil) != c.bad || got != c.want {
				t.Errorf("%d %v", got, err)
			}
		})
	}
}
