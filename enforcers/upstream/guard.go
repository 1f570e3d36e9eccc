package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"gatehouse/enforcers"
	"gatehouse/internal/netguard"
)

// admit judges one address before it may be dialed: it must be public, or lie
// both in the rule's addresses and in the node's internal_networks, and it must
// not be this host.
func (c *Client) admit(to netip.AddrPort, ranges []enforcers.AddressRange, own map[netip.Addr]bool) error {
	addr := to.Addr().Unmap()
	class, public := netguard.IsPublic(to.Addr())
	if !public && !c.opened(netip.AddrPortFrom(addr, to.Port()), class, ranges) {
		return fail(enforcers.CodeAddressNotPublic, "the name leads to an address that is not public", errors.New(string(class)))
	}
	if own[addr] || slices.Contains(c.o.Own, addr) {
		return fail(enforcers.CodeLoop, "the name leads back to this host", nil) // EG-97, EG-98
	}
	return nil
}

// opened reports whether a rule opens a non-public address. Only ordinary
// private networks can be opened: never loopback, link-local or metadata.
func (c *Client) opened(to netip.AddrPort, class netguard.Class, ranges []enforcers.AddressRange) bool {
	if class != netguard.Private && class != netguard.Shared {
		return false
	}
	within := func(p netip.Prefix) bool { return p.Contains(to.Addr()) }
	return slices.ContainsFunc(c.o.Internal, within) &&
		slices.ContainsFunc(ranges, func(r enforcers.AddressRange) bool {
			return within(r.Prefix) && slices.Contains(r.Ports, to.Port())
		})
}

// ownAddresses reads the interfaces anew: an address that came up a moment ago
// is as much a loop as an old one.
func ownAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	own := make(map[netip.Addr]bool, len(all))
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return own, nil
}

func checkRedirection(from, to netip.AddrPort) error {
	if class, ok := netguard.IsPublic(from.Addr()); !ok {
		return fmt.Errorf("dev upstream %s: %s, not a public address", from, class)
	}
	if !to.Addr().IsLoopback() {
		return fmt.Errorf("dev upstream %s: target %s is not loopback", from, to)
	}
	return nil
}
