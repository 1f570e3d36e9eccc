// Package probe tries to get out of a sandbox, from the very process that
// becomes the agent. It reads its provider's sandbox.Plan and whatever it can
// reach inside; it writes only into the agent's own folders, and returns one
// sandbox.Case per attempt. It must never need a right that the agent lacks,
// never count an attempt that could not be made as passed, and never do lasting
// harm when an attempt succeeds.
//
// Each case has a positive control: the same attempt outside the filter, made
// by PID 1's child (Controls), or a variant that must succeed in the same
// process. A control that fails for want of the feature makes the case absent;
// a control that fails otherwise, or did not run, makes it failed.
//
// The cases carry the ids SB-nn of docs/sandbox.md. Those that need an observer
// outside, or that would exhaust something, are in package sandboxtest.
package probe
