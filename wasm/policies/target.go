package policies

// target is a decoded authority: {"host":..,"ip":..,"port":..,"scheme":..}.
type target struct {
	host, scheme []byte
	port         int64
	ip           bool // the host is an IP literal
}

func (t *target) decode(c *cursor) {
	c.eat('{')
	c.seek(`"host":`)
	t.host = c.raw()
	c.seek(`"ip":`)
	t.ip = c.boolean()
	c.seek(`"port":`)
	t.port = c.integer()
	c.seek(`"scheme":`)
	t.scheme = c.raw()
	c.finish()
}

// schemeBit returns the bit of a scheme in a rule's set, 0 for an unknown one.
func schemeBit(s []byte) uint8 {
	switch string(s) {
	case "http":
		return schemeHTTP
	case "https":
		return schemeHTTPS
	case "tcp":
		return schemeTCP
	}
	return 0
}

const (
	schemeHTTP uint8 = 1 << iota
	schemeHTTPS
	schemeTCP
)

// actionPrefix begins every decide message.
const actionPrefix = `{"abi":1,"action":`

// envelope opens a decide message and leaves the cursor inside the action. It
// reports false when the message is not one of ABI v1.
func envelope(message []byte) (cursor, bool) {
	c := cursor{b: message}
	ok := c.has(actionPrefix + "{")
	return c, ok
}

// closeEnvelope consumes the rest of the action and what follows it, and
// reports whether the whole message was well formed.
func (c *cursor) closeEnvelope() bool {
	c.finish()
	if c.has(`,"state":`) {
		c.value()
	}
	c.eat('}')
	return c.done()
}
