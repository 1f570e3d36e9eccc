package outside

import (
	"io"
	"log"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// DNS is an authoritative fake on loopback, UDP and TCP on one port. Names it
// does not know get NXDOMAIN; every query is counted, known or not.
type DNS struct {
	addr    string
	servers []*dns.Server

	mu      sync.Mutex
	answers map[string][][]netip.Addr // each query for an address consumes one set; the last one stays
	queries map[string]int
	total   int
}

func newDNS() (*DNS, error) {
	pc, l, err := listenBoth()
	if err != nil {
		return nil, err
	}
	d := &DNS{addr: pc.LocalAddr().String(), answers: map[string][][]netip.Addr{}, queries: map[string]int{}}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: d}, {Listener: l, Handler: d}} {
		d.servers = append(d.servers, s)
		up := make(chan struct{})
		s.NotifyStartedFunc = func() { close(up) }
		go func() { _ = s.ActivateAndServe() }()
		<-up // Shutdown of a server that has not started does nothing
	}
	return d, nil
}

// listenBoth opens one port for both protocols. One that is free for UDP may be
// taken for TCP, if only by somebody's outgoing connection: then it tries
// another.
func listenBoth() (net.PacketConn, net.Listener, error) {
	for tries := 0; ; tries++ {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		l, err := net.Listen("tcp", pc.LocalAddr().String())
		if err == nil {
			return pc, l, nil
		}
		_ = pc.Close()
		if tries == 100 {
			return nil, nil, err
		}
	}
}

func (d *DNS) close() {
	for _, s := range d.servers {
		_ = s.Shutdown()
	}
}

// Addr returns the server's "ip:port".
func (d *DNS) Addr() string { return d.addr }

// Answer makes name resolve to addrs, whatever was set before.
func (d *DNS) Answer(name string, addrs ...netip.Addr) { d.Flip(name, addrs) }

// Flip makes the first look-up of name see the first set, the second the
// second, and so on; the last one stays. A look-up is one A query; the AAAA
// query beside it sees the same set.
func (d *DNS) Flip(name string, sets ...[]netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[canonical(name)] = sets
}

// Queries returns how often name was asked for, all types together.
func (d *DNS) Queries(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queries[canonical(name)]
}

// Total returns how many queries arrived.
func (d *DNS) Total() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}

// QueriesUnder returns how many queries were for name or anything below it.
func (d *DNS) QueriesUnder(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for q, count := range d.queries {
		if q == canonical(name) || strings.HasSuffix(q, "."+canonical(name)) {
			n += count
		}
	}
	return n
}

// ServeDNS answers one query with a TTL of 0, so that nothing may be cached.
func (d *DNS) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative = true
	if len(q.Question) == 1 {
		d.fill(m, q.Question[0])
	}
	_ = w.WriteMsg(m)
}

func (d *DNS) fill(m *dns.Msg, q dns.Question) {
	name := canonical(q.Name)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queries[name]++
	d.total++
	sets, known := d.answers[name]
	if !known || len(sets) == 0 {
		m.Rcode = dns.RcodeNameError
		return
	}
	for _, a := range sets[0] {
		header := dns.RR_Header{Name: q.Name, Class: dns.ClassINET}
		switch {
		case q.Qtype == dns.TypeA && a.Is4():
			header.Rrtype = dns.TypeA
			m.Answer = append(m.Answer, &dns.A{Hdr: header, A: a.AsSlice()})
		case q.Qtype == dns.TypeAAAA && a.Is6():
			header.Rrtype = dns.TypeAAAA
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: header, AAAA: a.AsSlice()})
		}
	}
	// The A query moves the sequence on; resolvers ask A and AAAA in parallel.
	if q.Qtype == dns.TypeA && len(sets) > 1 {
		d.answers[name] = sets[1:]
	}
}

func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
