package wasm

import "gatehouse/enforcers"

// parseAnswer reads a decide answer, which has exactly one spelling per
// verdict:
//
//	{"obligations":[],"reason":CODE,"rule":ID,"verdict":"allow"|"deny"|"abstain"}
//
// where obligations may be left out and, in v1, has no types. Anything else,
// white space and extra keys included, is not ok.
func parseAnswer(b []byte) (effect enforcers.Effect, rule, reason []byte, ok bool) {
	if b, ok = cut(b, `{`); !ok {
		return "", nil, nil, false
	}
	b, _ = cut(b, `"obligations":[],`)
	if b, ok = cut(b, `"reason":"`); !ok {
		return "", nil, nil, false
	}
	if reason, b, ok = token(b, 256, isReason); !ok {
		return "", nil, nil, false
	}
	if b, ok = cut(b, `","rule":"`); !ok {
		return "", nil, nil, false
	}
	if rule, b, ok = token(b, 128, isRule); !ok {
		return "", nil, nil, false
	}
	switch string(b) {
	case `","verdict":"allow"}`:
		effect = enforcers.Allow
	case `","verdict":"deny"}`:
		effect = enforcers.Deny
	case `","verdict":"abstain"}`:
		return enforcers.Abstain, rule, reason, true
	default:
		return "", nil, nil, false
	}
	return effect, rule, reason, len(rule) > 0
}

func cut(b []byte, prefix string) ([]byte, bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return b, false
	}
	return b[len(prefix):], true
}

// token returns the longest prefix of b whose bytes are in the class, up to
// limit bytes, and the rest. Rule ids and reason codes need no escaping, so
// that neither can carry a payload's text into a receipt by accident.
func token(b []byte, limit int, class func(byte) bool) (tok, rest []byte, ok bool) {
	n := 0
	for n < len(b) && class(b[n]) {
		n++
	}
	return b[:n], b[n:], n <= limit
}

func isReason(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == ':' || c == '-'
}

func isRule(c byte) bool {
	return isReason(c) || 'A' <= c && c <= 'Z' || c == '[' || c == ']' || c == '/' || c == '@'
}
