package authority

import (
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// What can be wrong with the text of an authority. Each is answered with 400
// before any DNS query.
var (
	ErrScheme   = errors.New("scheme is not http, https or tcp")
	ErrPort     = errors.New("port is missing or not 1 to 65535 in plain decimal")
	ErrBrackets = errors.New("brackets or colons around something that is not an IPv6 literal")
	ErrZone     = errors.New("address has a zone")
	ErrEmpty    = errors.New("host has an empty label")
	ErrByte     = errors.New("host has a byte other than a letter, a digit, a hyphen or a dot")
	ErrLength   = errors.New("host or one of its labels is too long")
	ErrHyphen   = errors.New("label begins or ends with a hyphen")
	ErrNumeric  = errors.New("last label is a number but the host is not an IP address")
	ErrALabel   = errors.New("label begins with xn-- but is not valid punycode")
)

const (
	maxHost  = 253
	maxLabel = 63
)

// ParseHost checks untrusted host text against the host grammar and returns
// its canonical form and whether it is an IP literal.
//
// A name is labels of letters, digits and inner hyphens, at most 63 bytes each
// and 253 in all, with at most one root dot, which is dropped. Letters become
// lower case. Anything else is refused rather than repaired: underscores,
// percent signs, brackets, controls, every byte outside ASCII. A name whose
// last label a lenient resolver could read as a number is refused, since it
// would become an address (EG-21).
func ParseHost(s string) (host string, ip bool, err error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return "", false, ErrZone // EG-25
		}
		return addr.Unmap().String(), true, nil // EG-23
	}
	if strings.Contains(s, ":") {
		return "", false, ErrBrackets
	}
	for i := 0; i < len(s); i++ {
		if !hostByte(s[i]) {
			return "", false, ErrByte // EG-10, EG-11, EG-12, EG-14, EG-16
		}
	}
	host = strings.ToLower(strings.TrimSuffix(s, ".")) // EG-06, EG-07
	if len(host) > maxHost {
		return "", false, ErrLength // EG-16
	}
	rest, last := host, ""
	for more := true; more; {
		last, rest, more = strings.Cut(rest, ".")
		if err := checkLabel(last); err != nil {
			return "", false, err
		}
	}
	if numeric(last) {
		return "", false, ErrNumeric // EG-21
	}
	return host, false, nil
}

func hostByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.':
		return true
	default:
		return false
	}
}

func checkLabel(l string) error {
	switch {
	case l == "":
		return ErrEmpty // EG-08
	case len(l) > maxLabel:
		return ErrLength
	case l[0] == '-' || l[len(l)-1] == '-':
		return ErrHyphen
	case strings.HasPrefix(l, "xn--"):
		// EG-15: a label that is not the canonical encoding of what it decodes
		// to could be compared in one form and shown in another.
		u, err := idna.Lookup.ToUnicode(l)
		if err != nil {
			return ErrALabel
		}
		if back, err := idna.Lookup.ToASCII(u); err != nil || back != l {
			return ErrALabel
		}
	}
	return nil
}

// numeric reports whether inet_aton would read the label as a number: decimal,
// octal, or hexadecimal after 0x.
func numeric(l string) bool {
	if hex, ok := strings.CutPrefix(l, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(l, "0123456789") == ""
}
