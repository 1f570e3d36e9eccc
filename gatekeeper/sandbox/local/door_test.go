//go:build linux

package local_test

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"gatehouse/gatekeeper/sandbox"
)

// tcp is a Python-free way to speak TCP inside: bash opens the socket, and cat
// reads to the end.
func tcp(host, port, say string) string {
	return `bash -c 'exec 9<>/dev/tcp/` + host + `/` + port + ` && printf "` + say + `" >&9 && head -n 2 <&9' 2>&1`
}

func TestDoorIsTheOnlyWayOut(t *testing.T) {
	cases := map[string]struct{ host, port, target string }{
		"public_v4":         {"93.184.216.34", "443", "93.184.216.34:443"},
		"private_v4":        {"10.1.2.3", "80", "10.1.2.3:80"},
		"link_local":        {"169.254.169.254", "80", "169.254.169.254:80"},
		"unspecified_class": {"240.0.0.1", "9", "240.0.0.1:9"},
		"public_v6":         {"2606:2800:220:1::1", "443", "[2606:2800:220:1::1]:443"},
		"unique_local_v6":   {"fd00::1", "22", "[fd00::1]:22"},
		"mapped_v6":         {"::ffff:93.184.216.34", "8443", "93.184.216.34:8443"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := openDoor(t, echo)
			r := run(t, sandbox.Spec{}, d, tcp(c.host, c.port, "ping\\n"))
			want := "hello from " + c.target + "\nping\n"
			if r.out != want {
				t.Errorf("inside %q, want %q", r.out, want)
			}
			if !d.saw(c.target) {
				t.Errorf("the door saw %q", d.lines())
			}
		})
	}
}

func TestDoorRefusalResets(t *testing.T) {
	d := openDoor(t, refuse)
	r := run(t, sandbox.Spec{}, d, tcp("93.184.216.34", "443", "ping\\n"))
	if !strings.Contains(r.out, "reset by peer") {
		t.Errorf("inside: %q", r.out)
	}
}

func TestNamesGoToTheDoor(t *testing.T) {
	d := openDoor(t, func(target string, c net.Conn) {
		if target != "gatehouse-dns:53" {
			refuse(target, c)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		answerDNS(c)
	})
	r := run(t, sandbox.Spec{}, d, `getent ahostsv4 shop.example | head -n 1 | cut -d " " -f 1`)
	if strings.TrimSpace(r.out) != "192.0.2.99" {
		t.Errorf("inside: %q; the door saw %q", r.out, d.lines())
	}
}

func TestDNSOverTCPAndForeignResolvers(t *testing.T) {
	cases := map[string]string{
		"SB-11_tcp_53":       tcp("8.8.8.8", "53", "x"),
		"SB-11_tcp_53_v6":    tcp("2001:4860:4860::8888", "53", "x"),
		"SB-11_own_loopback": tcp("127.0.0.1", "53", "x"),
		"SB-11_udp_53":       `perl -MIO::Socket -e '$s = IO::Socket::INET->new(Proto => "udp", PeerAddr => "1.1.1.1", PeerPort => 53); print $s "question-of-17-b."; $s->recv($b, 9)'`,
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			d := openDoor(t, func(target string, c net.Conn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				_, _ = c.Read(make([]byte, 64))
				_, _ = io.WriteString(c, "\x00\x03abc")
			})
			run(t, sandbox.Spec{}, d, script)
			if !slices.Equal(d.lines(), []string{"CONNECT gatehouse-dns:53 HTTP/1.1"}) {
				t.Errorf("the door saw %q", d.lines())
			}
		})
	}
}

// answerDNS answers every A query with 192.0.2.99, and others with nothing, in
// the framing of DNS over TCP.
func answerDNS(c net.Conn) {
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, q); err != nil || len(q) < 17 {
			return
		}
		end := 12
		for q[end] != 0 {
			end += int(q[end]) + 1
		}
		question := q[12 : end+5]
		a := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
		if question[len(question)-3] == 1 { // type A
			a[7] = 1
			a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 99)
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
			return
		}
	}
}

func TestPlainProxyIsForwardedUnread(t *testing.T) {
	d := openDoor(t, echo)
	r := run(t, sandbox.Spec{Proxy: true}, d, `env | grep -ci '^https\?_proxy=http://127.0.0.1:3128$'; `+tcp("127.0.0.1", "3128", "CONNECT shop.example:443 HTTP/1.1\\r\\n\\r\\nx\\n"))
	if !d.saw("shop.example:443") || !strings.HasPrefix(r.out, "4\nHTTP/1.1 200 OK") {
		t.Errorf("the door saw %q; inside %q", d.lines(), r.out)
	}
}

func TestOwnLoopbackServer(t *testing.T) {
	d := openDoor(t, refuse)
	r := run(t, sandbox.Spec{}, d, `LC_ALL=C perl -MIO::Socket -e '
$s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die "listen: $!";
if (!fork) { $c = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $s->sockport) or die "connect: $!"; print $c "mine\n"; exit }
$a = $s->accept; print scalar <$a>'`)
	if r.out != "mine\n" { // SB-21
		t.Errorf("inside: %q", r.out)
	}
	if len(d.lines()) != 0 {
		t.Errorf("the door saw %q", d.lines())
	}
}

func TestWithoutDoorThereIsNoRoute(t *testing.T) {
	r := run(t, sandbox.Spec{}, nil, tcp("93.184.216.34", "443", "x")+"; ls /run/gatehouse; cat /etc/resolv.conf")
	if !strings.Contains(r.out, "unreachable") || strings.Contains(r.out, "door.sock") || strings.Contains(r.out, "nameserver") {
		t.Errorf("inside: %q", r.out)
	}
}
