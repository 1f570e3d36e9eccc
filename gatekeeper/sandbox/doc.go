// Package sandbox is the contract between the gatekeeper and the providers
// that run agents. It reads a Spec and returns what was proven and how the run
// ended. It must never hold a secret, and a provider must never fall back to a
// weaker boundary.
package sandbox
