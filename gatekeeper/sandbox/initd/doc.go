// Package initd is the process that runs as PID 1 inside a sandbox.
package initd
