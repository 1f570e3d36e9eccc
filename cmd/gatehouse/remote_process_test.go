package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"gatehouse/gatekeeper/sandbox/programtest"
	"gatehouse/internal/outside"
)

// remoteHost is the name of the other machine, and remoteAddress where the fake
// outside has it.
const (
	remoteHost    = "sandboxes.good.test"
	remoteAddress = "93.184.216.50"
)

// otherMachine is gatehouse-remote as operators run it.
type otherMachine struct{ *programtest.Machine }

// newOtherMachine starts the program, which writes its certificate and its token
// into the node's folder, where the node's configuration names them.
func newOtherMachine(t testing.TB, dir string, world *outside.World) otherMachine {
	t.Helper()
	listen, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	world.DNS.Answer(remoteHost, netip.MustParseAddr(remoteAddress))
	return otherMachine{programtest.NewMachine(t, dir, remoteHost, unique("remote", "remote-token-"), listen)}
}

// config sends a node to the machine, and its shims to the node.
func (m otherMachine) config(world *outside.World) string {
	m.T.Helper()
	doors, err := freeAddr()
	if err != nil {
		m.T.Fatal(err)
	}
	dev := strings.Replace(worldConfig(world), "upstreams: {", fmt.Sprintf("upstreams: {%q: %q, ", remoteAddress+":443", m.Addr), 1)
	return strings.TrimSuffix(dev, "}\n") + fmt.Sprintf(", ca: %s}\n", programtest.CA) +
		fmt.Sprintf("providers: {local: {}, remote: {url: \"https://%s\", ca: %s, token: \"${file:%s}\", doors: %q}}\n", remoteHost, programtest.CA, programtest.Token, doors)
}
