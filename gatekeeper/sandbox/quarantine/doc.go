// Package quarantine looks into the objects of a push with git, in a sandbox
// that has no exit, before any of them leaves. Outside, Runner reads a folder
// with the pack and starts the sandbox; inside, Main reads that folder and
// writes lines of JSON to its output: what it needs of the repository's own
// history, and at the end a Report. It must never run git outside a sandbox,
// hand the sandbox anything but that folder, or take more from its output than
// the fields below.
//
// Inside there are no hooks, no attributes, no configuration but three lines of
// its own, and no remote that a missing object could be asked from.
package quarantine
