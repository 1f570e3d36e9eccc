package authority

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Schemes of an Authority. A tunnel whose protocol is not known yet is TCP.
const (
	HTTP  = "http"
	HTTPS = "https"
	TCP   = "tcp"
)

// Authority is one immutable (scheme, host, port). Every decision, dial, TLS
// name, credential look-up and receipt takes this value and no host string.
// The zero Authority is invalid and matches nothing. Values are comparable
// with ==, and equal values name the same place.
type Authority struct {
	scheme string // http | https | tcp
	host   string // canonical ASCII name, or the canonical text of an IP literal
	port   uint16
	ip     bool
}

// New returns the Authority of scheme, host and port. host is untrusted text:
// it must pass the host grammar (ParseHost). An IPv6 literal has no brackets
// here.
func New(scheme, host string, port uint16) (Authority, error) {
	if scheme != HTTP && scheme != HTTPS && scheme != TCP {
		return Authority{}, ErrScheme
	}
	if port == 0 {
		return Authority{}, ErrPort
	}
	h, ip, err := ParseHost(host)
	if err != nil {
		return Authority{}, err
	}
	return Authority{scheme: scheme, host: h, port: port, ip: ip}, nil
}

// ParseHostPort reads "host:port" as it stands in a CONNECT target. Both parts
// are required: no userinfo, no path, no default port, no leading zero or sign
// in the port (EG-13, EG-17). An IPv6 literal must be in brackets and only an
// IPv6 literal may be (EG-09).
func ParseHostPort(scheme, s string) (Authority, error) {
	host, port, err := split(s)
	if err != nil {
		return Authority{}, err
	}
	return New(scheme, host, port)
}

// ParseHostHeader reads the value of a Host or :authority field for a request
// of the given scheme: "host" or "host:port", the port defaulting to the
// scheme's. It is for comparing with an Authority that was found otherwise.
func ParseHostHeader(scheme, s string) (Authority, error) {
	def, ok := defaultPort(scheme)
	if !ok {
		return Authority{}, ErrScheme
	}
	bracketed := strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]")
	if bracketed || !strings.Contains(s, ":") {
		s += ":" + strconv.Itoa(int(def))
	}
	return ParseHostPort(scheme, s)
}

// NamedBy reports whether the value of a Host or :authority field names a, and
// what is wrong with it if it names nothing: ParseHostHeader, compared. The text
// that HostHeader returns needs no reading.
func (a Authority) NamedBy(s string) (bool, error) {
	if _, ok := defaultPort(a.scheme); ok && s == a.HostHeader() {
		return true, nil
	}
	named, err := ParseHostHeader(a.scheme, s)
	return err == nil && named == a, err
}

// split cuts "host:port" at its last colon and checks both halves' shape; the
// host goes through ParseHost later.
func split(s string) (host string, port uint16, err error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", 0, ErrPort
	}
	host, digits := s[:i], s[i+1:]
	if port, err = ParsePort(digits); err != nil {
		return "", 0, err
	}
	if strings.HasPrefix(host, "[") {
		inner, ok := strings.CutSuffix(host[1:], "]")
		if !ok || !strings.Contains(inner, ":") {
			return "", 0, ErrBrackets // EG-09
		}
		return inner, port, nil
	}
	if strings.ContainsAny(host, ":]") {
		return "", 0, ErrBrackets
	}
	return host, port, nil
}

// ParsePort reads a decimal port from 1 to 65535 in its only canonical form.
func ParsePort(s string) (uint16, error) {
	if s == "" || len(s) > 5 || s[0] == '0' {
		return 0, ErrPort // EG-17: no port, port 0, 0443
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, ErrPort // EG-17: +443, name port
		}
		n = n*10 + int(s[i]-'0')
	}
	if n > 65535 {
		return 0, ErrPort
	}
	return uint16(n), nil
}

func defaultPort(scheme string) (uint16, bool) {
	switch scheme {
	case HTTP:
		return 80, true
	case HTTPS:
		return 443, true
	default:
		return 0, false
	}
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

// Addr returns the address of an IP literal and false for a name.
func (a Authority) Addr() (netip.Addr, bool) {
	if !a.ip {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(a.host)
	return addr, err == nil
}

// WithScheme returns a with another scheme, once a tunnel's first bytes have
// shown its protocol. Host and port never change. An unknown scheme gives the
// zero Authority.
func (a Authority) WithScheme(scheme string) Authority {
	if a.IsZero() || (scheme != HTTP && scheme != HTTPS && scheme != TCP) {
		return Authority{}
	}
	a.scheme = scheme
	return a
}

// SamePlace reports whether a and b have the same host and port, whatever
// their schemes. The zero Authority is nowhere.
func (a Authority) SamePlace(b Authority) bool {
	return !a.IsZero() && a.host == b.host && a.port == b.port
}

// HostPort returns "host:port", an IPv6 literal in brackets.
func (a Authority) HostPort() string {
	if a.IsZero() {
		return ""
	}
	return net.JoinHostPort(a.host, strconv.Itoa(int(a.port)))
}

// HostHeader returns the Host field for a request to a: the port is left out
// when it is the scheme's default.
func (a Authority) HostHeader() string {
	if def, ok := defaultPort(a.scheme); ok && def == a.port {
		if strings.Contains(a.host, ":") {
			return "[" + a.host + "]"
		}
		return a.host
	}
	return a.HostPort()
}

// String returns "scheme://host:port".
func (a Authority) String() string {
	if a.IsZero() {
		return ""
	}
	return a.scheme + "://" + a.HostPort()
}
