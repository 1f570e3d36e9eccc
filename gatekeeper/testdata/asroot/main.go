// Command asroot, set-user-id root, becomes root and executes its arguments: a
// deliberately broken way to start a sandbox.
package main

import (
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	if unix.Setresgid(0, 0, 0) == nil && unix.Setresuid(0, 0, 0) == nil {
		_ = unix.Exec(os.Args[1], os.Args[1:], []string{})
	}
	os.Exit(1)
}
