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

// admit judges one address before it may be dialed. Without ranges it must be
// public. With ranges it must lie in one of them, and if it is not public in
// the node's internal_networks as well. It must never be this host.
func (c *Client) admit(addr netip.Addr, ranges []netip.Prefix, own map[netip.Addr]bool) error {
	class, public := netguard.IsPublic(addr)
	addr = addr.Unmap()
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	switch {
	case !public && !(openable(class) && slices.ContainsFunc(ranges, within) && slices.ContainsFunc(c.o.Internal, within)):
		return fail(enforcers.CodeAddressNotPublic, "the name leads to an address that is not public", errors.New(string(class)))
	case len(ranges) > 0 && !slices.ContainsFunc(ranges, within):
		return fail(enforcers.CodeAddressNotListed, "the name leads to an address that the rule does not list", nil)
	case own[addr] || slices.Contains(c.o.Own, addr):
		return fail(enforcers.CodeLoop, "the name leads back to this host", nil) // EG-97, EG-98
	default:
		return nil
	}
}

// openable reports whether a rule can open an address of a class at all: only
// ordinary internal networks, never loopback, link-local or metadata.
func openable(class netguard.Class) bool {
	return class == netguard.Private || class == netguard.Shared
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
