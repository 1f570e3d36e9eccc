package bus

import "github.com/nats-io/nats.go"

// Conn lets tests write past the bus, as an intruder would.
func (b *Bus) Conn() *nats.Conn { return b.nc }
