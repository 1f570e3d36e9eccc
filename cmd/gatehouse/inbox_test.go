package main

import (
	"testing"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
)

// TestInboxOnlyHere: a provider on another machine shows none of this one's
// folders and refuses sessions that want one. What is brought in stands in results.
func TestInboxOnlyHere(t *testing.T) {
	for provider, want := range map[string]bool{"local": true, "oci": true, "remote": false, "openinspect": false} {
		b := &bundle.Bundle{Operations: []string{"scm.run.logs"}}
		b.Session.Provider = provider
		box, inside, err := inboxOf(gatekeeper.DoorSpec{Bundle: b, Dir: tempDir(t)})
		if err != nil || (box != nil) != want || (len(inside.Mounts) == 1) != want {
			t.Errorf("%s: %v, %+v, %v", provider, box, inside, err)
		}
	}
}
