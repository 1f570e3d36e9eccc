//go:build linux

package initd

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// DNSTarget is the CONNECT target that means "the door's own resolver".
const DNSTarget = "gatehouse-dns:53"

const (
	maxHead      = 8 << 10 // bytes of the door's response head
	maxTunnels   = 512     // connections forwarded at once; beyond it the accept loop waits
	maxQueries   = 32      // UDP queries under way at once; beyond it they are dropped, as UDP may be
	answerWithin = 15 * time.Second
	queryWithin  = 5 * time.Second
)

// forwarder carries the agent's connections to the door.
type forwarder struct {
	door  string // path of the door's socket
	slots chan struct{}
}

func newForwarder(door string, tunnels int) *forwarder {
	return &forwarder{door: door, slots: make(chan struct{}, tunnels)}
}

// serve accepts until l is closed. handle owns its connection.
func (f *forwarder) serve(l net.Listener, handle func(*net.TCPConn)) error {
	for {
		f.slots <- struct{}{} // the accept loop stops, it does not queue
		c, err := l.Accept()
		if err != nil {
			<-f.slots
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			// The agent can exhaust descriptors; accepting must survive that.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			defer func() { <-f.slots }()
			handle(c.(*net.TCPConn))
		}()
	}
}

// captured carries one redirected connection.
func (f *forwarder) captured(c *net.TCPConn) {
	target, err := originalTarget(c)
	if err != nil || target.Addr().IsLoopback() || target.Addr().IsUnspecified() {
		reset(c)
		return
	}
	f.tunnel(c, target.String())
}

// resolver carries one DNS-over-TCP connection.
func (f *forwarder) resolver(c *net.TCPConn) {
	if _, err := originalTarget(c); err != nil {
		reset(c)
		return
	}
	f.tunnel(c, DNSTarget)
}

// plain carries one connection to the plain proxy listener, unread.
func (f *forwarder) plain(c *net.TCPConn) {
	door, err := f.dial()
	if err != nil {
		reset(c)
		return
	}
	relay(c, door, nil)
}

func (f *forwarder) tunnel(c *net.TCPConn, target string) {
	door, early, err := f.connect(target)
	if err != nil {
		reset(c)
		return
	}
	relay(c, door, early)
}

func (f *forwarder) dial() (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: f.door, Net: "unix"})
}

// connect opens the door for target. early is what the far side said right
// after the door's answer.
func (f *forwarder) connect(target string) (door *net.UnixConn, early []byte, err error) {
	if door, err = f.dial(); err != nil {
		return nil, nil, err
	}
	if early, err = ask(door, target); err != nil {
		_ = door.Close()
		return nil, nil, err
	}
	return door, early, nil
}

// ask speaks the CONNECT line and reads the door's answer.
func ask(door *net.UnixConn, target string) (early []byte, err error) {
	if err := door.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(door, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return nil, err
	}
	if early, err = readAnswer(door); err != nil {
		return nil, err
	}
	return early, door.SetDeadline(time.Time{})
}

// readAnswer reads the door's response head and returns the bytes that came
// with it but belong to the tunnel.
func readAnswer(r io.Reader) ([]byte, error) {
	br := bufio.NewReaderSize(io.LimitReader(r, maxHead), maxHead)
	for first := true; ; first = false {
		line, err := br.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("door's answer: %w", err)
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if first && !strings.HasPrefix(line, "HTTP/1.1 200 ") && line != "HTTP/1.1 200" {
			return nil, errors.New("door refused")
		}
		if line == "" {
			break
		}
	}
	early := make([]byte, br.Buffered())
	_, err := io.ReadFull(br, early)
	return early, err
}

// relay copies both ways until both are done, passing half-closes on, and
// closes both.
func relay(agent *net.TCPConn, door *net.UnixConn, early []byte) {
	defer agent.Close()
	defer door.Close()
	if len(early) > 0 {
		if _, err := agent.Write(early); err != nil {
			return
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(door, agent); err != nil {
			reset(agent)
			door.Close()
			return
		}
		_ = door.CloseWrite()
	})
	if _, err := io.Copy(agent, door); err != nil {
		reset(agent)
		door.Close()
	} else {
		_ = agent.CloseWrite()
	}
	wg.Wait()
}

// reset ends a connection with RST, so that a refusal does not look like an
// empty answer.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// queries answers UDP queries on pc until it is closed.
func (f *forwarder) queries(pc *net.UDPConn) error {
	slots := make(chan struct{}, maxQueries)
	for {
		buf := make([]byte, 4096)
		n, from, err := pc.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			continue // the client asks again
		}
		go func() {
			defer func() { <-slots }()
			if answer, err := f.query(buf[:n]); err == nil {
				_, _ = pc.WriteToUDPAddrPort(answer, from)
			}
		}()
	}
}

// query sends one query through the door and returns its answer.
func (f *forwarder) query(query []byte) ([]byte, error) {
	door, early, err := f.connect(DNSTarget)
	if err != nil {
		return nil, err
	}
	defer door.Close()
	if err := door.SetDeadline(time.Now().Add(queryWithin)); err != nil {
		return nil, err
	}
	if _, err := door.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	r := io.MultiReader(strings.NewReader(string(early)), door)
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err = io.ReadFull(r, answer)
	return answer, err
}

// errDirect marks a connection to a listener's own port.
var errDirect = errors.New("not redirected")

// originalTarget returns the address that the agent asked the kernel for. SB-18:
// a connection that nothing redirected is not the agent asking for somebody.
func originalTarget(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	own := c.LocalAddr().(*net.TCPAddr).AddrPort()
	own = netip.AddrPortFrom(own.Addr().Unmap(), own.Port())
	var target netip.AddrPort
	var serr error
	if err := raw.Control(func(fd uintptr) { target, serr = originalOf(int(fd), own.Addr().Is6()) }); err != nil {
		return netip.AddrPort{}, err
	}
	if serr == nil && target == own {
		serr = errDirect
	}
	return target, serr
}

func originalOf(fd int, v6 bool) (netip.AddrPort, error) {
	if v6 {
		const ip6tOriginalDst = 80 // IP6T_SO_ORIGINAL_DST
		info, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, ip6tOriginalDst)
		if err != nil {
			return netip.AddrPort{}, err
		}
		return netip.AddrPortFrom(netip.AddrFrom16(info.Addr.Addr).Unmap(), ntohs(info.Addr.Port)), nil
	}
	// The kernel fills a sockaddr_in, whose 16 bytes IPv6Mreq happens to hold.
	sa, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	b := sa.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4])), nil
}

func ntohs(v uint16) uint16 { return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v)) }

// listeners are everything that waits inside for the agent.
type listeners struct {
	tcp   []*net.TCPListener // capture, one per family, one port
	dns   []*net.TCPListener
	udp   []*net.UDPConn
	plain *net.TCPListener
}

// listen opens the listeners. The kernel redirects to the same port of either
// loopback address.
func listen(v6 bool, proxy string) (*listeners, error) {
	hosts := []string{"127.0.0.1"}
	if v6 {
		hosts = append(hosts, "::1")
	}
	var lc net.ListenConfig
	l := new(listeners)
	for _, h := range hosts {
		c, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort(h, strconv.Itoa(sandbox.CapturePort)))
		if err != nil {
			return nil, err
		}
		l.tcp = append(l.tcp, c.(*net.TCPListener))
		names := net.JoinHostPort(h, strconv.Itoa(sandbox.NamesPort))
		if c, err = lc.Listen(context.Background(), "tcp", names); err != nil {
			return nil, err
		}
		l.dns = append(l.dns, c.(*net.TCPListener))
		u, err := lc.ListenPacket(context.Background(), "udp", names)
		if err != nil {
			return nil, err
		}
		l.udp = append(l.udp, u.(*net.UDPConn))
	}
	c, err := lc.Listen(context.Background(), "tcp", proxy)
	if err != nil {
		return nil, err
	}
	l.plain = c.(*net.TCPListener)
	return l, nil
}

// run serves every listener until it fails or the process ends.
func (l *listeners) run(f *forwarder) {
	for _, t := range l.tcp {
		go f.serve(t, f.captured) //nolint:errcheck // ends with the process
	}
	for _, d := range l.dns {
		go f.serve(d, f.resolver) //nolint:errcheck // ends with the process
	}
	for _, u := range l.udp {
		go f.queries(u) //nolint:errcheck // ends with the process
	}
	go f.serve(l.plain, f.plain) //nolint:errcheck // ends with the process
}
