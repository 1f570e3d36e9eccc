package bus

import (
	"net"

	"github.com/nats-io/nats.go"
)

// Conn lets tests write past the bus, as an intruder would.
func (b *Bus) Conn() *nats.Conn { return b.nc }

// Listens returns the embedded server's client address, nil for none.
func (b *Bus) Listens() net.Addr { return b.srv.Addr() }
