//go:build linux

package initd

import (
	"errors"
	"fmt"
	"net"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
)

// loopbackUp sets lo up. A fresh network namespace has no other interface.
func loopbackUp() error {
	c, err := rtnetlink.Dial(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	index, err := loIndex()
	if err != nil {
		return err
	}
	err = c.Link.Set(&rtnetlink.LinkMessage{
		Family: unix.AF_UNSPEC, Index: index, Flags: unix.IFF_UP, Change: unix.IFF_UP,
	})
	if err != nil {
		return fmt.Errorf("lo up: %w", err)
	}
	return nil
}

func loIndex() (uint32, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return 0, err
	}
	if len(ifs) != 1 || ifs[0].Flags&net.FlagLoopback == 0 {
		return 0, fmt.Errorf("expected lo alone, found %d interfaces", len(ifs))
	}
	return uint32(ifs[0].Index), nil
}

// lo carries one address of the documentation ranges per family beside the
// loopback ones: resolvers skip families without an address of their own
// (AI_ADDRCONFIG).
var (
	ownAddress4 = net.IPv4(192, 0, 2, 2).To4()
	ownAddress6 = net.ParseIP("2001:db8::2")
)

// everythingLocal makes every address of both families an address of lo, so
// that a connection to anywhere ends in this namespace. It reports whether the
// machine has IPv6 at all; without it there is no IPv6 socket to open either.
func everythingLocal() (v6 bool, err error) {
	c, err := rtnetlink.Dial(nil)
	if err != nil {
		return false, err
	}
	defer c.Close()
	index, err := loIndex()
	if err != nil {
		return false, err
	}
	add := func(family, bits uint8, own net.IP) error {
		err := c.Route.Add(&rtnetlink.RouteMessage{
			Family: family, Table: unix.RT_TABLE_LOCAL, Protocol: unix.RTPROT_STATIC,
			Scope: unix.RT_SCOPE_HOST, Type: unix.RTN_LOCAL,
			Attributes: rtnetlink.RouteAttributes{OutIface: index},
		})
		if err != nil {
			return fmt.Errorf("local route for all: %w", err)
		}
		err = c.Address.New(&rtnetlink.AddressMessage{
			Family: family, PrefixLength: bits, Scope: unix.RT_SCOPE_UNIVERSE, Index: index, Flags: unix.IFA_F_NODAD,
			Attributes: &rtnetlink.AddressAttributes{Address: own, Local: own},
		})
		if err != nil {
			return fmt.Errorf("address %s: %w", own, err)
		}
		return nil
	}
	if err := add(unix.AF_INET, 32, ownAddress4); err != nil {
		return false, err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	unix.Close(fd)
	if err := add(unix.AF_INET6, 128, ownAddress6); err != nil {
		return false, err
	}
	return true, nil
}

// redirect installs the one chain of the sandbox.
func redirect(capture, resolver uint16) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "gatehouse"})
	chain := c.AddChain(&nftables.Chain{
		Name: "output", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
	rule := func(parts ...[]expr.Any) {
		var e []expr.Any
		for _, p := range parts {
			e = append(e, p...)
		}
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: e})
	}
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	// Port 53 first, loopback included: no name may be resolved by another road.
	rule(protocol(unix.IPPROTO_UDP), port(53), toPort(resolver))
	rule(protocol(unix.IPPROTO_TCP), port(53), toPort(resolver))
	// The agent's own servers on loopback are its own business.
	rule(destination(unix.NFPROTO_IPV4, 16, []byte{0xff, 0, 0, 0}, []byte{127, 0, 0, 0}), accept)
	rule(destination(unix.NFPROTO_IPV6, 24, net.CIDRMask(128, 128), net.IPv6loopback), accept)
	rule(protocol(unix.IPPROTO_TCP), toPort(capture))
	return c.Flush()
}

func protocol(p byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{p}},
	}
}

func port(p uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(p)},
	}
}

// destination matches the destination address at offset of the family's header.
func destination(family byte, offset uint32, mask, want []byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(want))},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(want)), Mask: mask, Xor: make([]byte, len(want))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: want},
	}
}

func toPort(p uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(p)},
		&expr.Redir{RegisterProtoMin: 1},
	}
}
