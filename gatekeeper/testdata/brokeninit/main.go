// Command brokeninit is gatehouse-init with one part broken on purpose, named
// by the last word of its own file: TestBrokenProviders appends it.
package main

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/initd"
	"gatehouse/gatekeeper/sandbox/probe"
)

func main() {
	p := initd.Probe{Run: probe.Run, Controls: probe.Controls, Attempt: probe.Attempt}
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch broken() {
	case "environment": // the agent's process starts with a variable of the host
		if role == "room" && os.Getenv("HOST_SECRET") == "" {
			_ = unix.Exec(sandbox.InitPath, os.Args, []string{"HOST_SECRET=1"})
		}
	case "filter": // no filter, no dropped rights
		if role == "drop" {
			_ = unix.Exec(sandbox.InitPath, []string{sandbox.InitPath, "room"}, []string{})
		}
	case "controls":
		p.Controls = func() map[string]string { return nil }
	case "empty":
		p.Run = func(sandbox.Plan) []sandbox.Case { return nil }
	case "dies":
		p.Run = func(sandbox.Plan) []sandbox.Case { os.Exit(3); return nil }
	}
	code, _ := initd.Main(os.Args, p)
	os.Exit(code)
}

func broken() string {
	self, err := os.ReadFile(sandbox.InitPath)
	if err != nil {
		return ""
	}
	return string(self[bytes.LastIndexByte(self, ' ')+1:])
}
