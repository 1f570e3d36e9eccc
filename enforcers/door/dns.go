package door

import (
	"encoding/binary"
	"io"
	"strings"
	"time"

	"github.com/miekg/dns"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
)

// syntheticTTL is short enough for a client that runs across a policy change.
const syntheticTTL = 60 // seconds

// maxQuery bounds one DNS message from inside.
const maxQuery = 4 << 10

// dns answers DNS messages in the framing of DNS over TCP until the client is
// done. Nothing is ever asked outside, in any mode (EG-94, EG-107).
func (l *link) dns() {
	for {
		if l.nc.SetReadDeadline(time.Now().Add(l.d.o.Timeouts.Handshake)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(l.r, size[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint16(size[:])
		if n > maxQuery {
			return
		}
		query := make([]byte, n)
		if _, err := io.ReadFull(l.r, query); err != nil {
			return
		}
		answer, ok := l.d.resolve(l, query)
		if !ok {
			return
		}
		_ = l.nc.SetWriteDeadline(time.Now().Add(l.d.o.Timeouts.Head))
		var out [2]byte
		binary.BigEndian.PutUint16(out[:], uint16(len(answer)))
		w := l.writer()
		_, _ = w.Write(out[:])
		_, _ = w.Write(answer)
		if w.Flush() != nil {
			return
		}
	}
}

// question reads one query strictly: one question of class IN and nothing that
// a query has no use for. ok is false for bytes that deserve no answer.
func question(raw []byte) (m *dns.Msg, rcode int, ok bool) {
	m = new(dns.Msg)
	if m.Unpack(raw) != nil || m.Response || len(m.Question) != 1 || len(m.Answer) > 0 || len(m.Ns) > 0 {
		return nil, 0, false
	}
	// The library takes a question that breaks off before its type or class.
	if m.Question[0].Qtype == dns.TypeNone || m.Question[0].Qclass == 0 {
		return nil, 0, false
	}
	switch q := m.Question[0]; {
	case m.Opcode != dns.OpcodeQuery:
		return m, dns.RcodeNotImplemented, true
	case q.Qclass != dns.ClassINET:
		return m, dns.RcodeRefused, true
	default:
		return m, dns.RcodeSuccess, true
	}
}

// resolve answers one query from the session's own table.
func (d *Door) resolve(l *link, raw []byte) ([]byte, bool) {
	m, rcode, ok := question(raw)
	if !ok {
		return nil, false
	}
	q := m.Question[0]
	reply := new(dns.Msg)
	reply.SetReply(m)
	reply.RecursionAvailable = true
	if rcode == dns.RcodeSuccess {
		rcode = d.answer(l, reply, q)
	}
	reply.Rcode = rcode
	if m.IsEdns0() != nil {
		reply.SetEdns0(1232, false)
	}
	out, err := reply.Pack()
	return out, err == nil
}

// answer judges a name and fills in its synthetic addresses. Other record
// types of a name that exists are empty, HTTPS records and with them any hint
// at another endpoint included (EG-61).
func (d *Door) answer(l *link, reply *dns.Msg, q dns.Question) (rcode int) {
	host, ip, err := authority.ParseHost(q.Name)
	if err != nil || ip {
		d.refuseName(l, "", q, enforcers.CodeBadAuthority)
		return dns.RcodeNameError
	}
	if probeName(host) {
		return dns.RcodeNameError
	}
	if host != Reserved {
		if code := d.names.admit(host); code != "" {
			d.refuseName(l, host, q, code)
			return dns.RcodeRefused
		}
		a := d.query(host, q)
		p, _ := d.gate.Decide(l.ctx, a)
		if p == nil {
			return dns.RcodeNameError
		}
		live := p.Use()
		p.Done(enforcers.Outcome{Effect: enforcers.NotForwarded, Code: enforcers.CodeAnswered})
		if live != nil {
			return dns.RcodeServerFailure
		}
	}
	v4, v6, ok := d.names.addresses(host)
	if !ok {
		return dns.RcodeServerFailure
	}
	h := dns.RR_Header{Name: q.Name, Class: dns.ClassINET, Ttl: syntheticTTL, Rrtype: q.Qtype}
	switch q.Qtype {
	case dns.TypeA:
		reply.Answer = []dns.RR{&dns.A{Hdr: h, A: v4.AsSlice()}}
	case dns.TypeAAAA:
		reply.Answer = []dns.RR{&dns.AAAA{Hdr: h, AAAA: v6.AsSlice()}}
	}
	return dns.RcodeSuccess
}

func (d *Door) query(host string, q dns.Question) *enforcers.Action {
	a := d.gate.Action(enforcers.DNSQuery)
	qtype, ok := dns.TypeToString[q.Qtype]
	if !ok || strings.ContainsFunc(qtype, func(r rune) bool { return r <= ' ' || r > '~' }) {
		qtype = "OTHER"
	}
	a.DNS = &enforcers.DNS{Name: host, Type: qtype}
	return a
}

// refuseName records a refusal. A name outside the grammar is not repeated: it
// is the agent's bytes.
func (d *Door) refuseName(l *link, host string, q dns.Question, code string) {
	a := d.query(host, q)
	a.HardSet = code
	_, _ = d.gate.Decide(l.ctx, a)
}
