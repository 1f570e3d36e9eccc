//go:build linux

package probe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// patience bounds one network attempt: an answer from the door, or silence.
const patience = 3 * time.Second

var network = []attempt{
	{"SB-09", "no interface but lo", sandbox.NetworkClosed, onlyLoopback},
	{"SB-09", "raw TCP over IPv4", sandbox.DoorOnly, func(p *place) verdict { return rawTCP(p, false) }},
	{"SB-10", "raw TCP over IPv6", sandbox.DoorOnly, func(p *place) verdict { return rawTCP(p, true) }},
	{"SB-11", "UDP 53 to a foreign resolver", sandbox.DoorOnly, foreignResolver},
	{"SB-12", "UDP to any other port", sandbox.NetworkClosed, rawUDP},
	{"SB-15", "change addresses and routes", sandbox.NetworkClosed, changeNetwork},
	{"SB-16", "sockets of the host", sandbox.FilesystemPrivate, hostSockets},
	{"SB-16", "sockets and pipes in mounted folders", sandbox.FilesystemPrivate, mountedSockets},
	{"SB-17", "another session's door", sandbox.DoorOnly, otherDoors},
	{"SB-18", "the capture listener's own port", sandbox.DoorOnly, ownListener},
	{"SB-19", "the own door by other socket types", sandbox.DoorOnly, doorTypes},
	{"SB-20", "the host's loopback", sandbox.NetworkClosed, hostLoopback},
	{"SB-21", "an own server on loopback", sandbox.NetworkClosed, ownServer},
}

func onlyLoopback(*place) verdict {
	ifs, err := net.Interfaces()
	if err != nil {
		return failed("could not run: %v", err)
	}
	var names []string
	for _, i := range ifs {
		names = append(names, i.Name)
	}
	if len(ifs) != 1 || ifs[0].Flags&net.FlagLoopback == 0 {
		return failed("interfaces: %s", strings.Join(names, " "))
	}
	return passed("interfaces: %s", names[0])
}

// rawTCP connects to every target of one family. With a door each connection is
// accepted inside, and ends without a byte; without one there is no route.
func rawTCP(p *place, v6 bool) verdict {
	var targets []string
	for _, t := range p.Targets {
		ap, err := netip.ParseAddrPort(t)
		if err != nil {
			return failed("could not run: %v", err)
		}
		if ap.Addr().Is6() == v6 {
			targets = append(targets, t)
		}
	}
	if v6 && !haveIPv6() {
		return absent("this kernel has no IPv6")
	}
	results := make([]error, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() { results[i] = knock(p.Door, t) })
	}
	wg.Wait()
	for i, t := range targets {
		if results[i] != nil {
			return failed("%s: %v", t, results[i])
		}
	}
	switch {
	case len(targets) == 0:
		return failed("could not run: no target")
	case p.Door:
		return passed("captured and closed without a byte: %s", strings.Join(targets, " "))
	}
	return passed("no route: %s", strings.Join(targets, " "))
}

func haveIPv6() bool {
	return !errors.Is(socket{"", unix.AF_INET6, unix.SOCK_STREAM, 0}.make(), unix.EAFNOSUPPORT)
}

// knock returns nil when target is as unreachable as it should be.
func knock(door bool, target string) error {
	conn, err := net.DialTimeout("tcp", target, patience)
	if !door {
		if errors.Is(err, unix.ENETUNREACH) {
			return nil
		}
		if err == nil {
			conn.Close()
		}
		return fmt.Errorf("expected no route, got %s", name(err))
	}
	if errors.Is(err, unix.ECONNRESET) {
		return nil // captured, and refused before the dialer looked
	} else if err != nil {
		return fmt.Errorf("not captured: %s", name(err))
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	n, err := io.ReadFull(conn, make([]byte, 1))
	switch {
	case n > 0:
		return errors.New("somebody answered")
	case errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// foreignResolver asks a resolver that does not exist for a name that does not
// exist. Whoever answers is the door.
func foreignResolver(p *place) verdict {
	conn, err := net.DialTimeout("udp", "203.0.113.53:53", patience)
	if !p.Door {
		if errors.Is(err, unix.ENETUNREACH) {
			return passed("no route")
		}
		if err == nil {
			conn.Close()
		}
		return failed("expected no route, got %s", name(err))
	}
	if err != nil {
		return failed("could not run: %v", err)
	}
	defer conn.Close()
	if _, err := conn.Write(query(p.Name)); err != nil {
		return failed("could not run: %v", err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience / 10))
	answer := make([]byte, 1500)
	n, err := conn.Read(answer)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return passed("no answer")
	case errors.Is(err, unix.ECONNREFUSED):
		return failed("port 53 is not captured")
	case err != nil:
		return failed("could not run: %v", err)
	case n < 12:
		return failed("the answer is no DNS message")
	}
	return passed("answered by the door: rcode %d, %d records", answer[3]&15, binary.BigEndian.Uint16(answer[6:]))
}

// query is a DNS question for the A record of name.
func query(name string) []byte {
	q := []byte{0x47, 0x48, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	return append(q, 0, 0, 1, 0, 1)
}

// rawUDP sends datagrams to every target, and to the port of QUIC. Control: a
// datagram to an own socket arrives.
func rawUDP(p *place) verdict {
	var s several
	for _, t := range append(slices.Clone(p.Targets), "203.0.113.9:443", "[2001:db8::9]:443") {
		ap, err := netip.ParseAddrPort(t)
		if err != nil {
			return failed("could not run: %v", err)
		}
		if ap.Addr().Is6() && !haveIPv6() {
			continue
		}
		err = datagram(t)
		s.note(t, err, errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, os.ErrDeadlineExceeded))
	}
	s.must("UDP on loopback", ownUDP())
	return s.verdict()
}

func datagram(target string) error {
	conn, err := net.Dial("udp", target)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("gatehouse")); err != nil {
		return err
	}
	// The refusal of an address of lo arrives at once; silence is fine too.
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err = conn.Read(make([]byte, 1500))
	return err
}

func ownUDP() error {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := net.Dial("udp", l.LocalAddr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("own")); err != nil {
		return err
	}
	_ = l.SetReadDeadline(time.Now().Add(patience))
	_, _, err = l.ReadFrom(make([]byte, 8))
	return err
}

// changeNetwork asks for changes by route netlink. Control: listing works.
func changeNetwork(*place) verdict {
	c, err := rtnetlink.Dial(nil)
	if err != nil {
		return failed("could not run: %v", err)
	}
	defer c.Close()
	var s several
	links, err := c.Link.List()
	if err != nil || len(links) == 0 {
		return failed("control: list links: %v", err)
	}
	index := links[0].Index
	route := &rtnetlink.RouteMessage{
		Family: unix.AF_INET, Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_STATIC, Scope: unix.RT_SCOPE_LINK, Type: unix.RTN_UNICAST,
		Attributes: rtnetlink.RouteAttributes{OutIface: index},
	}
	local := &rtnetlink.RouteMessage{
		Family: unix.AF_INET, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST, Type: unix.RTN_LOCAL,
		Attributes: rtnetlink.RouteAttributes{OutIface: index},
	}
	ip := net.IPv4(192, 0, 2, 200).To4()
	address := &rtnetlink.AddressMessage{
		Family: unix.AF_INET, PrefixLength: 32, Index: index, Attributes: &rtnetlink.AddressAttributes{Address: ip, Local: ip},
	}
	s.refused("add route", c.Route.Add(route))
	s.refused("delete route", c.Route.Delete(local))
	s.refused("add address", c.Address.New(address))
	s.refused("lo down", c.Link.Set(&rtnetlink.LinkMessage{Family: unix.AF_UNSPEC, Index: index, Change: unix.IFF_UP}))
	s.refused("new link", c.Link.New(&rtnetlink.LinkMessage{Family: unix.AF_UNSPEC, Attributes: &rtnetlink.LinkAttributes{
		Name: "probe0", Info: &rtnetlink.LinkInfo{Kind: "dummy"},
	}}))
	return s.verdict()
}

// hostSockets looks for sockets by the paths services use, and for abstract
// ones. Control: an own abstract socket is listed.
func hostSockets(*place) verdict {
	var s several
	for _, path := range []string{
		"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock",
		"/run/dbus/system_bus_socket", "/run/user", "/run/systemd", "/run/udev", "/run/snapd.socket", "/run/pcscd/pcscd.comm",
		"/tmp/.X11-unix", "/run/wayland-0", "/run/pulse", "/run/gnupg", "/root/.gnupg",
	} {
		_, err := os.Lstat(path)
		s.refused(path, err)
	}
	l, err := net.Listen("unix", "@gatehouse-probe")
	if err != nil {
		return failed("control: own abstract socket: %v", err)
	}
	defer l.Close()
	names, err := abstractSockets()
	if err != nil {
		return failed("could not run: %v", err)
	}
	own := false
	for _, n := range names {
		if n == "@gatehouse-probe" {
			own = true
		} else {
			s.bad = append(s.bad, "abstract socket "+n)
		}
	}
	if !own {
		s.bad = append(s.bad, "control: own abstract socket is not listed")
	}
	return s.verdict()
}

// abstractSockets lists the abstract socket names of this network namespace.
func abstractSockets() ([]string, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) >= 8 && strings.HasPrefix(fields[7], "@") {
			names = append(names, fields[7])
		}
	}
	return names, nil
}

// otherDoors looks at what lies beside the door.
func otherDoors(p *place) verdict {
	entries, err := os.ReadDir("/run/gatehouse")
	if err != nil {
		return failed("could not run: %v", err)
	}
	var names []string
	for _, e := range entries {
		if name := "/run/gatehouse/" + e.Name(); name == sandbox.CallPath && answersNobody(name) {
			continue
		}
		names = append(names, e.Name())
	}
	want := []string{"init"}
	if p.Door {
		want = []string{"door.sock", "init"}
	}
	if !slices.Equal(names, want) {
		return failed("/run/gatehouse holds %s", strings.Join(names, " "))
	}
	entries, err = os.ReadDir("/run")
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == ".containerenv" && isEmpty("/run/.containerenv") })
	if err != nil || len(entries) != 1 {
		return failed("/run holds %d entries: %v", len(entries), err)
	}
	return passed("/run/gatehouse holds %s alone", strings.Join(names, " and "))
}

// ownListener connects to the listeners of PID 1 without being redirected.
// The door must not hear of it.
func ownListener(p *place) verdict {
	if !p.Door {
		return absent("no door, no listener")
	}
	ports, err := listening()
	if err != nil {
		return failed("could not run: %v", err)
	}
	var s several
	proxy := netip.MustParseAddrPort(sandbox.ProxyAddr).Port()
	for _, port := range ports {
		if port == proxy {
			continue // takes any words; the door judges them
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))), patience)
		if err != nil {
			s.note("port "+strconv.Itoa(int(port)), err, errors.Is(err, unix.ECONNRESET))
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		n, err := conn.Read(make([]byte, 1))
		conn.Close()
		ok := n == 0 && (errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF))
		s.note("port "+strconv.Itoa(int(port)), err, ok || errors.Is(err, os.ErrDeadlineExceeded))
	}
	return s.verdict()
}

// listening returns the TCP ports that PID 1 waits on over IPv4.
func listening() ([]uint16, error) {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var ports []uint16
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 4 || fields[3] != "0A" { // LISTEN
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			return nil, err
		}
		ports = append(ports, uint16(port))
	}
	return ports, nil
}

// doorTypes connects to the door as what it is not. Control: as what it is.
func doorTypes(p *place) verdict {
	if !p.Door {
		return absent("no door")
	}
	var s several
	for what, kind := range map[string]int{"SOCK_SEQPACKET": unix.SOCK_SEQPACKET, "SOCK_DGRAM": unix.SOCK_DGRAM} {
		err := connectUnix(kind)
		s.note(what, err, errors.Is(err, unix.EPROTOTYPE))
	}
	s.must("SOCK_STREAM", connectUnix(unix.SOCK_STREAM))
	return s.verdict()
}

func connectUnix(kind int) error {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: sandbox.DoorPath})
}

// hostLoopback tries ports that the provider opened on the host's loopback.
func hostLoopback(p *place) verdict {
	if len(p.Ports) == 0 {
		return failed("could not run: no port to try")
	}
	var s several
	for _, port := range p.Ports {
		for _, host := range []string{"127.0.0.1", "::1", "0.0.0.0", "localhost"} {
			err := dialOnce(net.JoinHostPort(host, strconv.Itoa(int(port))))
			for range 2 { // a starved machine is no answer
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					break
				}
				err = dialOnce(net.JoinHostPort(host, strconv.Itoa(int(port))))
			}
			s.note(host, err, errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL))
		}
	}
	return s.verdict()
}

// dialOnce returns how a connection attempt ended, nil when somebody took it.
func dialOnce(target string) error {
	conn, err := net.DialTimeout("tcp", target, patience)
	if err == nil {
		conn.Close()
	}
	return err
}

// ownServer is the control of every network case: a connection inside works.
func ownServer(*place) verdict {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return failed("listen: %v", err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("own"))
			c.Close()
		}
	}()
	conn, err := net.DialTimeout("tcp", l.Addr().String(), patience)
	if err != nil {
		return failed("connect: %v", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(conn)
	if err != nil || string(b) != "own" {
		return failed("read %q: %v", b, err)
	}
	return passed("a server of the sandbox's own answers on 127.0.0.1")
}

// answersNobody reports whether a unix socket is dead.
func answersNobody(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), unix.ECONNREFUSED)
}

// isEmpty reports whether a file, such as the mark of podman's containers, says
// nothing.
func isEmpty(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Size() == 0
}
