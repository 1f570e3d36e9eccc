// Package probe tries to get out of the sandbox, from inside it.
package probe
