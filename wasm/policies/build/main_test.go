package main

import "testing"

// TestCheckedInModule rebuilds the module from the sources as they are, in
// another folder. A change of package policies without `make policies` fails
// here and not in production.
func TestCheckedInModule(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the guest; `make policies-check` does the same")
	}
	if err := run(true); err != nil {
		t.Error(err)
	}
}
