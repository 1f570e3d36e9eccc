//go:build linux

package initd

import "gatehouse/gatekeeper/sandbox"

// Attempts runs the probe; it is probe.Run.
type Attempts func(sandbox.Plan) []sandbox.Case

// Main runs the role that argv names and reports whether argv was meant for
// init at all. The main functions of gatehouse-init and of gatehouse call it
// before anything else.
func Main(argv []string, probe Attempts) (exit int, ok bool) { return 0, false }
