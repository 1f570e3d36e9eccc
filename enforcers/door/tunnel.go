package door

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
)

// dnsTarget is what init asks for when it forwards DNS.
const dnsTarget = "gatehouse-dns:53"

// connect handles a CONNECT on the door's socket. The target is the agent's
// words: an address that the session's own table does not know is an IP
// literal and judged as one.
func (l *link) connect(h *head) {
	l.d.met.add(h.target)
	if l.probed(h.target) {
		return
	}
	if h.length != 0 || h.expect {
		l.refuseTunnel(enforcers.CodeMalformed, authority.Authority{})
		return
	}
	if h.target == dnsTarget {
		if l.established() {
			l.dns()
		}
		return
	}
	to, err := authority.ParseHostPort(authority.TCP, h.target)
	if err != nil {
		l.refuseTunnel(enforcers.CodeBadAuthority, to) // EG-08 to EG-14, EG-16, EG-17, EG-21, EG-25
		return
	}
	if !h.sameHost(to) {
		l.refuseTunnel(enforcers.CodeMalformed, to) // EG-49
		return
	}
	if a, ok := to.Addr(); ok {
		if name, ok := l.d.names.name(a); ok {
			to, err = authority.New(authority.TCP, name, to.Port())
			if err != nil {
				l.refuseTunnel(enforcers.CodeBadAuthority, authority.Authority{})
				return
			}
		}
	}
	if to.Host() == Reserved {
		if l.established() {
			l.open(to, nil)
		}
		return
	}
	if code := l.d.admit(to); code != "" {
		l.refuseTunnel(code, to)
		return
	}
	a := l.d.gate.Action(enforcers.NetConnect)
	blind := l.d.blind(to)
	a.Connect = &enforcers.Connect{To: to, Literal: to.IsIP(), Blind: blind != ""}
	p, decision := l.d.gate.Decide(l.ctx, a)
	if p == nil {
		l.answer(decision, to)
		return
	}
	if !to.IsIP() {
		_, _, _ = l.d.names.addresses(to.Host())
	}
	// The tunnel ends with the policy it was opened under (EG-70, EG-100).
	stop := context.AfterFunc(p.Context(), func() { _ = l.nc.Close() })
	defer stop()
	if blind != "" {
		l.blindTunnel(to, blind, p, decision)
		return
	}
	code := enforcers.CodeTerminated
	if l.established() {
		code = l.open(to, p)
	}
	p.Done(enforcers.Outcome{Effect: enforcers.NotForwarded, Code: code})
}

// sameHost reports whether a CONNECT's Host field, if there is one, names the
// target; a client may leave the port out.
func (h *head) sameHost(to authority.Authority) bool {
	if h.host == "" || strings.EqualFold(h.host, h.target) {
		return true
	}
	for _, s := range []string{h.host, h.host + ":" + h.target[strings.LastIndexByte(h.target, ':')+1:]} {
		if a, err := authority.ParseHostPort(authority.TCP, s); err == nil {
			return a == to
		}
	}
	return false
}

// refuseTunnel answers a CONNECT that broke a rule no policy can lift.
func (l *link) refuseTunnel(code string, to authority.Authority) {
	a := l.d.gate.Action(enforcers.NetConnect)
	a.Connect = &enforcers.Connect{To: to, Literal: to.IsIP()}
	a.HardSet = code
	_, decision := l.d.gate.Decide(l.ctx, a)
	l.answer(decision, to)
}

func (l *link) answer(d enforcers.Decision, to authority.Authority) {
	w := newReply(l.writer(), http.MethodConnect)
	w.close = true
	code, hint := Reason(d)
	if p := to.Port(); p == 22 || p == 9418 { // EG-84
		hint = "Git goes over https here: use the repository's https address, not ssh or git://."
	}
	write(w, refusal{Title: "refused by Gatehouse", Status: statusOf(code), Code: code, Rule: d.Rule, Hint: hint}, d)
	w.finish()
}

// established opens the tunnel towards the client.
func (l *link) established() bool {
	_, err := io.WriteString(l.nc, "HTTP/1.1 200 OK\r\n\r\n")
	return err == nil
}

// open finds out what a tunnel speaks and serves it. Nothing is dialed here:
// each request inside is judged by itself. It returns the code of the tunnel's
// outcome. p is nil for the reserved host.
func (l *link) open(to authority.Authority, p *enforcers.Permit) (code string) {
	ctx := l.ctx
	if p != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(l.ctx)
		stop := context.AfterFunc(p.Context(), func() { cancel(context.Cause(p.Context())) })
		defer stop()
		defer cancel(nil)
	}
	if err := l.nc.SetReadDeadline(time.Now().Add(l.d.o.Timeouts.Handshake)); err != nil {
		return enforcers.CodeClientGone
	}
	first, err := l.r.Peek(1)
	switch {
	case err != nil:
		return enforcers.CodeClientGone // EG-65
	case first[0] == recordHandshake:
		return l.terminate(ctx, to.WithScheme(authority.HTTPS))
	case 'A' <= first[0] && first[0] <= 'Z':
		l.d.link(ctx, l.nc, l.takeReader(), to.WithScheme(authority.HTTP)).run()
		return enforcers.CodeTerminated
	default:
		return enforcers.CodeNotHTTP // EG-64
	}
}

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 0x16

var errMisdirected = errors.New("server name differs from the tunnel's target")

// terminate speaks TLS with the client under the session's own CA and serves
// what is inside.
func (l *link) terminate(ctx context.Context, to authority.Authority) (code string) {
	select {
	case l.d.handshakes <- struct{}{}:
	case <-ctx.Done():
		return enforcers.CodeClientGone
	}
	misdirected := false
	raw := &replayed{Conn: l.nc, r: l.takeReader(), to: to, closed: make(chan struct{})}
	conn := tls.Server(raw, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !sameName(hello.ServerName, to) {
				misdirected = true // EG-39, EG-40: before any certificate is made
				return nil, errMisdirected
			}
			cert, err := l.d.o.CA.certificate(to)
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion:             tls.VersionTLS12,
				Certificates:           []tls.Certificate{*cert},
				NextProtos:             l.d.protocols(to),
				SessionTicketsDisabled: true,
			}, nil
		},
	})
	hctx, cancel := context.WithTimeout(ctx, l.d.o.Timeouts.Handshake)
	err := conn.HandshakeContext(hctx)
	cancel()
	<-l.d.handshakes
	if misdirected {
		l.receipt(enforcers.CodeMisdirected, to)
		return enforcers.CodeMisdirected
	}
	if err != nil {
		return enforcers.CodeClientTLS
	}
	_ = l.nc.SetDeadline(time.Time{})
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		l.d.h2.take(ctx, conn, raw)
		return enforcers.CodeTerminated
	}
	in := l.d.link(ctx, conn, newReader(conn), to)
	in.run()
	if in.alert {
		return enforcers.CodeClientTLS // TLS 1.3 lets a client complain after the handshake
	}
	return enforcers.CodeTerminated
}

// protocols returns what is spoken in a tunnel, what is taken first in front.
func (d *Door) protocols(to authority.Authority) []string {
	for _, route := range d.o.Routes {
		if route.HTTP1 != nil && route.HTTP1(to) {
			return []string{"http/1.1", "h2"}
		}
	}
	return []string{"h2", "http/1.1"}
}

// receipt records a refusal that has no answer in HTTP.
func (l *link) receipt(code string, to authority.Authority) {
	a := l.d.gate.Action(enforcers.NetConnect)
	a.Connect = &enforcers.Connect{To: to, Literal: to.IsIP()}
	a.HardSet = code
	_, _ = l.d.gate.Decide(l.ctx, a)
}

// sameName reports whether a client's server name fits the tunnel's target. A
// named target needs its name; a literal has none to send.
func sameName(sni string, to authority.Authority) bool {
	if to.IsIP() {
		return sni == ""
	}
	host, ip, err := authority.ParseHost(sni)
	return err == nil && !ip && host == to.Host()
}

// blindTunnel relays a tunnel that a rule wants unread. TLS passthrough still
// compares the server name, and refuses a hello whose name it cannot see.
func (l *link) blindTunnel(to authority.Authority, kind string, p *enforcers.Permit, decision enforcers.Decision) {
	var hello string
	if kind == "tls" {
		if !l.established() {
			p.Done(enforcers.Outcome{Effect: enforcers.NotForwarded, Code: enforcers.CodeClientGone})
			return
		}
		var code string
		if hello, code = l.hello(to); code != "" {
			if code == enforcers.CodeMisdirected {
				l.receipt(code, to)
			}
			p.Done(enforcers.Outcome{Effect: enforcers.NotForwarded, Code: code})
			return
		}
	}
	up, err := l.d.o.Up.Dial(l.ctx, p)
	if err != nil {
		if kind != "tls" {
			w := newReply(l.writer(), http.MethodConnect)
			w.close = true
			Fail(w, decision, err)
			w.finish()
		}
		return
	}
	defer up.Close()
	if kind != "tls" && !l.established() {
		return
	}
	_ = l.nc.SetDeadline(time.Time{})
	relay(l.nc, append([]byte(hello), l.buffered()...), up)
}

// takeReader hands the link's reader over: the link reads no more.
func (l *link) takeReader() *bufio.Reader {
	r := l.r
	l.r = nil
	return r
}

// buffered returns what was read ahead and gives the reader's buffer back.
func (l *link) buffered() []byte {
	r := l.takeReader()
	defer dropReader(r)
	b, _ := r.Peek(r.Buffered())
	return bytes.Clone(b)
}

// relay sends what was read already, copies both ways and passes half-closes
// on.
func relay(client net.Conn, begun []byte, up net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := up.Write(begun)
		if err == nil {
			err = pump(up, client)
		}
		if w, ok := up.(interface{ CloseWrite() error }); err != nil || !ok || w.CloseWrite() != nil {
			_ = up.Close()
		}
	})
	err := pump(client, up)
	if w, ok := client.(interface{ CloseWrite() error }); err != nil || !ok || w.CloseWrite() != nil {
		_ = client.Close()
	}
	wg.Wait()
}

// pump copies until src ends. It holds a buffer only while there is something
// to copy: most tunnels are idle.
func pump(dst io.Writer, src net.Conn) error {
	for {
		if err := upstream.Readable(src); err != nil {
			return err
		}
		buf := buffers.Get().(*[]byte)
		n, err := src.Read(*buf)
		if n > 0 {
			if _, werr := dst.Write((*buf)[:n]); werr != nil {
				err = werr
			}
		}
		buffers.Put(buf)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

const extensionECH = 0xfe0d

// hello reads a ClientHello without answering it and returns its bytes.
func (l *link) hello(to authority.Authority) (raw string, code string) {
	if err := l.nc.SetReadDeadline(time.Now().Add(l.d.o.Timeouts.Handshake)); err != nil {
		return "", enforcers.CodeClientGone
	}
	var seen strings.Builder
	code = enforcers.CodeNotHTTP
	sink := &mute{l.nc, io.TeeReader(l.r, &seen)}
	_ = tls.Server(sink, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			code = ""
			if !sameName(hello.ServerName, to) || slices.Contains(hello.Extensions, extensionECH) {
				code = enforcers.CodeMisdirected // EG-39, EG-41
			}
			return nil, errMisdirected
		},
	}).Handshake()
	return seen.String(), code
}

// mute is a connection that only listens: the alert that ends a hello's
// parsing must not reach the client.
type mute struct {
	net.Conn
	r io.Reader
}

func (c *mute) Read(b []byte) (int, error) { return c.r.Read(b) }
func (*mute) Write(b []byte) (int, error)  { return len(b), nil }
