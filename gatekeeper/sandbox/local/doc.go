// Package local runs agents on this Linux machine with bubblewrap. It reads a
// sandbox.Spec, starts bubblewrap and gatehouse-init and reads their control
// channel and the agent's output; it writes one folder per session and the
// transcript. It must never start anything as kernel uid 0, never hand its own
// environment, descriptors or folders to the agent, and never run an agent with
// a part of the boundary missing: what the machine lacks is an error with the
// code provider_capability_missing.
package local
