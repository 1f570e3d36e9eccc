//go:build linux

package probe

import "gatehouse/gatekeeper/sandbox"

// Run runs every case of the plan in the calling process.
func Run(p sandbox.Plan) []sandbox.Case { return nil }
