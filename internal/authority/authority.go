package authority

// Authority is one immutable (scheme, host, port). Every decision, dial, TLS
// name, credential look-up and receipt takes this value and no host string.
// The zero Authority is invalid and matches nothing.
type Authority struct {
	scheme string // http | https | tcp
	host   string // canonical ASCII name, or the canonical text of an IP literal
	port   uint16
	ip     bool
}

// Scheme returns "http", "https" or "tcp".
func (a Authority) Scheme() string { return a.scheme }

// Host returns the canonical host, lower case, without the root dot or brackets.
func (a Authority) Host() string { return a.host }

// Port returns the port, never 0 in a valid Authority.
func (a Authority) Port() uint16 { return a.port }

// IsIP reports whether the host is an IP literal.
func (a Authority) IsIP() bool { return a.ip }

// IsZero reports whether a is the invalid zero value.
func (a Authority) IsZero() bool { return a.port == 0 }
