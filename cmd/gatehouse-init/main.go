//go:build linux

// Command gatehouse-init runs inside a sandbox: as its PID 1, and then, with
// every right given up, as the probe that becomes the agent, or as the program
// that looks into a push.
package main

import (
	"fmt"
	"os"

	"gatehouse/gatekeeper/sandbox/initd"
	"gatehouse/gatekeeper/sandbox/probe"
	"gatehouse/gatekeeper/sandbox/quarantine"
)

func main() {
	exit, ok := initd.Main(os.Args, initd.Probe{Run: probe.Run, Controls: probe.Controls, Attempt: probe.Attempt})
	if !ok {
		exit, ok = quarantine.Main(os.Args)
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "gatehouse-init: started by gatehouse inside a sandbox, not by hand")
		exit = 2
	}
	os.Exit(exit)
}
