// Package enforcers defines actions, verdicts, the gate and the Permit. It
// reads an Action, asks every Enforcer, has the receipt written, and only then
// makes a Permit. It must never do I/O of its own: no file, no socket, no DNS.
package enforcers
