package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"gatehouse/enforcers"
	"gatehouse/internal/netguard"
)

// Bounds on one answer (EG-37). More than this is no address list of an
// ordinary service.
const (
	maxChain     = 8  // CNAME hops
	maxAddresses = 32 // per family
	maxRecords   = 64 // per message
)

// resolver asks one configured server. It is not net.Resolver because that one
// reads the system's files, takes any address record whatever name it
// belongs to, and hides the aliases in between: docs/adr/0001-upstream-asks-dns-itself.md.
type resolver struct {
	server  netip.AddrPort
	timeout time.Duration // for both families
}

// lookup returns the IPv4 and then the IPv6 addresses of a canonical name. It
// asks for each family once; the name is absolute, so no search domain is ever
// appended (EG-38). Any failure, of either family, is an error.
func (r *resolver) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	type answer struct {
		addrs []netip.Addr
		err   error
	}
	six := make(chan answer, 1)
	go func() {
		addrs, err := r.query(ctx, host, dns.TypeAAAA)
		six <- answer{addrs, err}
	}()
	addrs, err := r.query(ctx, host, dns.TypeA)
	a := <-six
	if err != nil && a.err != nil && err.Error() == a.err.Error() {
		a.err = nil // said once
	}
	if err := errors.Join(err, a.err); err != nil {
		return nil, err
	}
	addrs = append(addrs, a.addrs...)
	if len(addrs) == 0 {
		return nil, fail(enforcers.CodeDNSName, "the name has no address", nil)
	}
	return addrs, nil
}

// query asks for one record type, by UDP and again by TCP if the answer did
// not fit.
func (r *resolver) query(ctx context.Context, host string, qtype uint16) ([]netip.Addr, error) {
	q := new(dns.Msg)
	q.SetQuestion(host+".", qtype)
	q.SetEdns0(1232, false)
	m, err := r.exchange(ctx, "udp", q)
	if err == nil && m.Truncated {
		m, err = r.exchange(ctx, "tcp", q)
	}
	if err != nil {
		return nil, fail(enforcers.CodeDNS, "the resolver did not answer", err)
	}
	switch {
	case !m.Response || m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 || !sameQuestion(m.Question[0], q.Question[0]):
		return nil, fail(enforcers.CodeDNS, "the resolver answered another question", nil)
	case m.Truncated:
		return nil, fail(enforcers.CodeDNSAnswers, "the resolver's answer is cut off", nil)
	case m.Rcode == dns.RcodeNameError:
		return nil, fail(enforcers.CodeDNSName, "the name does not exist", nil)
	case m.Rcode != dns.RcodeSuccess:
		return nil, fail(enforcers.CodeDNS, "the resolver refused", fmt.Errorf("rcode %d", m.Rcode))
	case len(m.Answer) > maxRecords:
		return nil, fail(enforcers.CodeDNSAnswers, "the resolver's answer is too long", nil)
	}
	return addresses(m.Answer, q.Question[0])
}

func (r *resolver) exchange(ctx context.Context, network string, q *dns.Msg) (*dns.Msg, error) {
	c := dns.Client{Net: network, UDPSize: 1232, Timeout: r.timeout, Dialer: &net.Dialer{Timeout: r.timeout}}
	m, _, err := c.ExchangeContext(ctx, q, r.server.String())
	return m, err
}

func sameQuestion(a, b dns.Question) bool {
	return strings.EqualFold(a.Name, b.Name) && a.Qtype == b.Qtype && a.Qclass == b.Qclass
}

// addresses follows the aliases from the name asked for and returns the
// address records at their end. A record of a name outside that chain, a loop,
// or an alias to a refused name refuses the answer (EG-36, EG-37).
func addresses(answer []dns.RR, q dns.Question) ([]netip.Addr, error) {
	alias := make(map[string]string)
	found := make(map[string][]netip.Addr)
	for _, rr := range answer {
		owner := strings.ToLower(rr.Header().Name)
		switch rr := rr.(type) {
		case *dns.CNAME:
			if _, twice := alias[owner]; twice {
				return nil, fail(enforcers.CodeDNS, "a name has two aliases", nil)
			}
			alias[owner] = strings.ToLower(rr.Target)
		case *dns.A:
			if a, ok := netip.AddrFromSlice(rr.A.To4()); ok && q.Qtype == dns.TypeA {
				found[owner] = append(found[owner], a)
			}
		case *dns.AAAA:
			// Not unmapped: a v4-mapped AAAA is judged by what it maps to.
			if a, ok := netip.AddrFromSlice(rr.AAAA.To16()); ok && q.Qtype == dns.TypeAAAA {
				found[owner] = append(found[owner], a)
			}
		}
	}
	name := strings.ToLower(q.Name)
	for hops := 0; ; hops++ {
		next, ok := alias[name]
		if !ok {
			break
		}
		if hops == maxChain {
			return nil, fail(enforcers.CodeDNSAnswers, "the name's aliases go on too long", nil)
		}
		if class, ok := netguard.Name(strings.TrimSuffix(next, ".")); !ok {
			return nil, fail(enforcers.CodeAddressNotPublic, "the name is an alias of a name that is never reached", errors.New(string(class)))
		}
		delete(alias, name) // a loop finds its first name gone
		name = next
	}
	if len(alias) > 0 {
		return nil, fail(enforcers.CodeDNS, "the answer holds aliases of other names", nil)
	}
	addrs := found[name]
	delete(found, name)
	switch {
	case len(found) > 0:
		return nil, fail(enforcers.CodeDNS, "the answer holds addresses of other names", nil)
	case len(addrs) > maxAddresses:
		return nil, fail(enforcers.CodeDNSAnswers, "the name has too many addresses", nil)
	}
	return addrs, nil
}
