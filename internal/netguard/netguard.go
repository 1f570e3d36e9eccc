package netguard

import "net/netip"

// Class says what an address or a name is. Only Public is outside.
type Class string

// Classes. They stand in receipts and refusals.
const (
	Public        Class = "public"
	Unspecified   Class = "unspecified"
	ThisNetwork   Class = "this-network"
	Private       Class = "private"
	Shared        Class = "shared" // carrier-grade NAT
	Loopback      Class = "loopback"
	LinkLocal     Class = "link-local"
	SiteLocal     Class = "site-local"
	Metadata      Class = "metadata" // cloud metadata and platform services, wherever their addresses lie
	Reserved      Class = "reserved"
	Documentation Class = "documentation"
	Benchmark     Class = "benchmark"
	Multicast     Class = "multicast"
	Broadcast     Class = "broadcast"
	Translation   Class = "translation" // an IPv4 address inside an IPv6 one: the packet's end is elsewhere
	Unallocated   Class = "unallocated" // IPv6 outside 2000::/3
	Zoned         Class = "zoned"       // an address with a zone means something on this host only
	Invalid       Class = "invalid"     // the zero Addr
	Special       Class = "special"     // a name that never leaves the host or the link
)

// block is one row of the table.
type block struct {
	prefix netip.Prefix
	class  Class
}

var globalUnicast = netip.MustParsePrefix("2000::/3")

// Classify returns the class of an address. A v4-mapped address is judged as
// its v4 form (EG-23): netip.Prefix.Contains would say no to it for every v4
// prefix, and likewise to every address with a zone (EG-25).
func Classify(a netip.Addr) Class {
	if !a.IsValid() {
		return Invalid
	}
	if a.Zone() != "" {
		return Zoned
	}
	a = a.Unmap()
	// The table is sorted by descending prefix length: the first hit is the
	// most specific one.
	for i := range blocks {
		if blocks[i].prefix.Contains(a) {
			return blocks[i].class
		}
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return Unallocated
	}
	if a.Is6() && isatap(a) {
		return Translation
	}
	return Public
}

// IsPublic reports whether an address is outside, with its class.
func IsPublic(a netip.Addr) (Class, bool) {
	c := Classify(a)
	return c, c == Public
}

// isatap reports whether the interface identifier carries an IPv4 address as
// RFC 5214 does, under any prefix.
func isatap(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
