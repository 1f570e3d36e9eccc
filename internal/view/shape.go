package view

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// shapeVersion stands in every fingerprint. Raise it when a template below
// changes: groups are a fold and are made again, never mixed.
const shapeVersion = "1"

// anything stands in a template for what differs from request to request.
const anything = "*"

// maxShape is how many segments of a path a template tells apart.
const maxShape = 8

// HostPattern returns the host's template: labels that a machine made up become
// a star, so that one CDN is one group and not one a day. The last two labels
// always stand, and an address is its own pattern: its parts are no labels.
func HostPattern(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	labels := strings.Split(host, ".")
	for i := 0; i < len(labels)-2; i++ {
		if variable(labels[i]) {
			labels[i] = anything
		}
	}
	return strings.Join(labels, ".")
}

// PathShape returns a path's template: segments that look like an id become a
// star, and what lies deeper than a template reaches becomes **.
func PathShape(path string) string {
	if path == "" || path == "/" {
		return path
	}
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		if i == maxShape {
			segments = append(segments[:i], "**")
			break
		}
		if variable(s) {
			segments[i] = anything
		}
	}
	return "/" + strings.Join(segments, "/")
}

// variable reports whether a machine made the word up: a number, a long run of
// hexadecimal digits (with or without hyphens), or a long word with many digits
// in it. Version numbers and names people type are left as they are.
func variable(s string) bool {
	digits, hex, other := 0, 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
			hex++
		case c == '-' || c == '_':
		default:
			other++
		}
	}
	n := digits + hex + other
	switch {
	case n == 0:
		return false
	case digits == n && n == len(s):
		return true // 4711
	case other == 0 && n >= 8 && digits >= 2:
		return true // a commit, a UUID
	}
	return n >= 16 && digits*4 >= n
}

// refShape keeps the class of a ref and the first two segments behind it.
func refShape(ref string) string {
	segments := strings.SplitN(ref, "/", 4)
	if len(segments) == 4 {
		segments[3] = "**"
	}
	for i := 2; i < len(segments); i++ {
		if variable(segments[i]) {
			segments[i] = anything
		}
	}
	return strings.Join(segments, "/")
}

// fingerprint names a group by what it is about: no session, time or raw URL is
// part of it, so the same wish has the same name for ever.
func fingerprint(g *Group) string {
	h := sha256.New()
	for _, part := range []string{shapeVersion, g.Bundle, g.Enforcer, g.Rule, g.Reason, g.Kind, g.Host, strconv.Itoa(g.Port), g.Scheme, g.Method, g.Path, g.Name, g.Repository} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
