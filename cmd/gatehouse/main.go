package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"gatehouse/gatekeeper/sandbox/initd"
	"gatehouse/gatekeeper/sandbox/probe"
	"gatehouse/gatekeeper/sandbox/quarantine"
)

// version is set by the linker.
var version = "dev"

func main() {
	// Inside a sandbox this same file is gatehouse-init; nothing else may run first.
	if code, ok := initd.Main(os.Args, initd.Probe{Run: probe.Run, Controls: probe.Controls, Attempt: probe.Attempt}); ok {
		os.Exit(code)
	}
	if code, ok := quarantine.Main(os.Args); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
