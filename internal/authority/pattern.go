package authority

import (
	"errors"
	"strings"

	"golang.org/x/net/idna"
)

// Errors of host patterns in rules.
var (
	ErrPatternStar  = errors.New("a star may only be the whole first label, as in *.example.com or **.example.com")
	ErrPatternWide  = errors.New("a wildcard needs at least two labels after it")
	ErrPatternHost  = errors.New("not a host name or IP literal")
	ErrPatternBlank = errors.New("host pattern is empty")
)

// Pattern is the host part of a rule: an exact host, "*.rest" for exactly one
// label before rest, or "**.rest" for one label or more. Neither wildcard
// matches rest itself, so an apex is always written out (EG-04). The zero
// Pattern matches nothing.
type Pattern struct {
	host  string // exact host, or what follows the wildcard's dot
	stars int    // 0 exact, 1 one label, 2 any depth
}

// ParsePattern reads a rule's host. A name with letters outside ASCII is turned
// into its A-label form by the strict IDNA lookup profile. A wildcard over a
// top-level name, such as "*.com" or "*", is refused (EG-101).
func ParsePattern(s string) (Pattern, error) {
	if s == "" {
		return Pattern{}, ErrPatternBlank
	}
	p := Pattern{}
	rest := s
	if strings.HasPrefix(s, "*") {
		first, after, _ := strings.Cut(s, ".")
		if first != "*" && first != "**" {
			return Pattern{}, ErrPatternStar
		}
		p.stars, rest = len(first), after
	}
	if strings.Contains(rest, "*") {
		return Pattern{}, ErrPatternStar
	}
	if p.stars > 0 && !strings.Contains(strings.TrimSuffix(rest, "."), ".") {
		return Pattern{}, ErrPatternWide
	}
	if !ascii(rest) {
		a, err := idna.Lookup.ToASCII(rest)
		if err != nil {
			return Pattern{}, ErrPatternHost
		}
		rest = a
	}
	host, ip, err := ParseHost(rest)
	if err != nil || (ip && p.stars > 0) {
		return Pattern{}, ErrPatternHost
	}
	p.host = host
	return p, nil
}

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Match reports whether the pattern covers a's host.
func (p Pattern) Match(a Authority) bool { return !a.IsZero() && p.MatchHost(a.host) }

// MatchHost reports whether the pattern covers a canonical host. The part
// under a wildcard must not hold an A-label: an internationalized name is
// admitted by an exact rule only (EG-14).
func (p Pattern) MatchHost(host string) bool {
	if p.stars == 0 {
		return p.host != "" && host == p.host
	}
	under, ok := strings.CutSuffix(host, p.host)
	if !ok || len(under) < 2 || under[len(under)-1] != '.' {
		return false // EG-02, EG-03, EG-04
	}
	under = under[:len(under)-1]
	if p.stars == 1 && strings.Contains(under, ".") {
		return false // EG-05
	}
	return !strings.HasPrefix(under, "xn--") && !strings.Contains(under, ".xn--")
}

// Base is the exact host, or what a wildcard stands before: every host that
// matches is Base, or ends in a dot and Base. It is "" for the zero Pattern.
func (p Pattern) Base() string { return p.host }

// Wildcard reports whether more than one name can match.
func (p Pattern) Wildcard() bool { return p.stars > 0 }

// String returns the canonical form of the pattern.
func (p Pattern) String() string {
	switch p.stars {
	case 1:
		return "*." + p.host
	case 2:
		return "**." + p.host
	default:
		return p.host
	}
}
