package gatekeeper

import (
	"strings"
	"testing"

	"gatehouse/gatekeeper/sandbox"
)

func TestHardens(t *testing.T) {
	for name, c := range map[string]struct {
		without []sandbox.Capability
		lacks   string
	}{
		"everything":         {nil, ""},
		"no_syscall_filter":  {[]sandbox.Capability{sandbox.SyscallsFiltered}, string(sandbox.SyscallsFiltered)},
		"no_resource_limits": {[]sandbox.Capability{sandbox.ResourceLimited}, string(sandbox.ResourceLimited)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{fixCI}, func(w *world) {
				for _, x := range c.without {
					delete(w.room.declared, x)
				}
			})
			all, err := w.Bundles(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := w.Hardens(all[0].Bundle)
			if (got == "") != (c.lacks == "") || !strings.Contains(got, c.lacks) {
				t.Errorf("lacks %q, want %q", got, c.lacks)
			}
		})
	}
}
