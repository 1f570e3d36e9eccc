package config_test

import (
	"net"
	"slices"
	"testing"

	"gatehouse/internal/config"
)

// The operator listener answers to its own address only: with port 0 that is
// known once it listens.
func TestOperatorAt(t *testing.T) {
	real := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}
	for listen, want := range map[string][]string{
		"127.0.0.1:0":          {"127.0.0.1:4711", "localhost:4711", "[::1]:4711"},
		"127.0.0.1:8081":       {"127.0.0.1:8081", "localhost:8081", "[::1]:8081"},
		"ops.example.com:8443": {"ops.example.com:8443"},
	} {
		c := config.Default()
		c.Listen.Operator = listen
		at := c.At(real)
		if got := at.OperatorHosts(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", listen, got, want)
		}
		if at.OperatorURL() != "http://"+want[0] || c.Listen.Operator != listen {
			t.Errorf("%s: %s", listen, at.OperatorURL())
		}
	}
}
