// Package demo is the hostile agent of `gatehouse demo`, the fake world around
// it and the judgement of what it achieved. The agent reads what it can reach
// inside a sandbox and writes one JSON line per attempt to its standard output;
// it must never be run outside one. Nothing here decides anything for a real
// session.
package demo
