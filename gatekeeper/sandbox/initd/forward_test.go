//go:build linux

package initd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReadAnswer(t *testing.T) {
	cases := map[string]struct {
		answer string
		early  string
		ok     bool
	}{
		"ok":                   {"HTTP/1.1 200 OK\r\n\r\n", "", true},
		"ok_without_reason":    {"HTTP/1.1 200\r\n\r\n", "", true},
		"ok_with_fields":       {"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nSSH-2.0\r\n", "SSH-2.0\r\n", true},
		"early_looks_like_one": {"HTTP/1.1 200 OK\r\n\r\n\r\nHTTP/1.1 403\r\n", "\r\nHTTP/1.1 403\r\n", true},
		"refused":              {"HTTP/1.1 403 Forbidden\r\n\r\n", "", false},
		"misdirected":          {"HTTP/1.1 421 Misdirected\r\n\r\n", "", false},
		"other_version":        {"HTTP/1.0 200 OK\r\n\r\n", "", false},
		"longer_status":        {"HTTP/1.1 2000 OK\r\n\r\n", "", false},
		"interim":              {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "", false},
		"no_end":               {"HTTP/1.1 200 OK\r\nA: b\r\n", "", false},
		"nothing":              {"", "", false},
		"too_long":             {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", maxHead) + "\r\n\r\n", "", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			early, err := readAnswer(strings.NewReader(c.answer))
			if (err == nil) != c.ok || string(early) != c.early {
				t.Errorf("got %q, %v", early, err)
			}
		})
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\nx"))
	f.Add([]byte("HTTP/1.1 403 Forbidden\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		early, err := readAnswer(bytes.NewReader(b))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, []byte("HTTP/1.1 200")) {
			t.Errorf("%q opens a tunnel", b)
		}
		if len(b) <= maxHead && !bytes.HasSuffix(b, early) {
			t.Errorf("early bytes %q are not the end of %q", early, b)
		}
	})
}

// world is a forwarder with a door that tests script.
type world struct {
	f    *forwarder
	door *net.UnixListener
}

func newWorld(t *testing.T, tunnels int) world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "door.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return world{newForwarder(path, tunnels), l}
}

// serve opens a listener whose connections go to handle.
func (w world) serve(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.f.serve(l, handle)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

func (w world) accept(t *testing.T) *net.UnixConn {
	t.Helper()
	_ = w.door.SetDeadline(time.Now().Add(20 * time.Second))
	c, err := w.door.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func TestTunnelSpeaksFirstAndPassesHalfCloses(t *testing.T) {
	w := newWorld(t, 4)
	addr := w.serve(t, func(c *net.TCPConn) { w.f.tunnel(c, "[2001:db8::7]:443") })
	agent := dial(t, addr)
	door := w.accept(t)
	expect(t, door, "CONNECT [2001:db8::7]:443 HTTP/1.1\r\nHost: [2001:db8::7]:443\r\n\r\n")
	_, _ = io.WriteString(door, "HTTP/1.1 200 OK\r\n\r\nbanner")
	expect(t, agent, "banner")
	_, _ = io.WriteString(agent, "question")
	_ = agent.CloseWrite()
	if got, err := io.ReadAll(door); err != nil || string(got) != "question" {
		t.Fatalf("the door read %q, %v", got, err)
	}
	_, _ = io.WriteString(door, "late answer") // after the agent's half-close
	door.Close()
	if got, err := io.ReadAll(agent); err != nil || string(got) != "late answer" {
		t.Fatalf("the agent read %q, %v", got, err)
	}
}

func TestRefusalAndDeathOfTheDoorReset(t *testing.T) {
	cases := map[string]func(*net.UnixConn){
		"refused":     func(c *net.UnixConn) { _, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n"); c.Close() },
		"no_answer":   func(c *net.UnixConn) { c.Close() },
		"half_answer": func(c *net.UnixConn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"); c.Close() },
	}
	for name, answer := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4)
			addr := w.serve(t, func(c *net.TCPConn) { w.f.tunnel(c, "192.0.2.7:443") })
			agent := dial(t, addr)
			door := w.accept(t)
			expect(t, door, "CONNECT 192.0.2.7:443 HTTP/1.1\r\nHost: 192.0.2.7:443\r\n\r\n")
			answer(door)
			if _, err := agent.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the agent read %v", err)
			}
		})
	}
	t.Run("SB-50_door_gone", func(t *testing.T) {
		w := newWorld(t, 4)
		addr := w.serve(t, func(c *net.TCPConn) { w.f.tunnel(c, "192.0.2.7:443") })
		w.door.Close()
		isReset(t, addr)
	})
}

// isReset checks that a connection is reset, whether the dialer or the reader
// is first to notice.
func isReset(t *testing.T, addr string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 20*time.Second)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

func TestAcceptLoopStopsWhenFull(t *testing.T) {
	const tunnels = 3
	w := newWorld(t, tunnels)
	started, release := make(chan struct{}, 100), make(chan struct{})
	addr := w.serve(t, func(c *net.TCPConn) {
		started <- struct{}{}
		<-release
		c.Close()
	})
	for range tunnels + 2 {
		dial(t, addr)
	}
	for range tunnels {
		<-started
	}
	select {
	case <-started:
		t.Error("more connections at once than slots") // SB-19
	default:
	}
	close(release)
	for range 2 {
		<-started
	}
}

func TestDirectConnectionIsRefused(t *testing.T) {
	w := newWorld(t, 4)
	addr := w.serve(t, w.f.captured) // nothing redirects here, as when an agent dials the port itself
	isReset(t, addr)                 // SB-18
	_ = w.door.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if c, err := w.door.Accept(); err == nil {
		c.Close()
		t.Error("the door heard of it")
	}
}

func TestQueriesTravelOneByOne(t *testing.T) {
	w := newWorld(t, 4)
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = w.f.queries(pc) }()
	t.Cleanup(func() { pc.Close(); <-done })
	client, err := net.Dial("udp", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = client.Write([]byte("question"))
	door := w.accept(t)
	expect(t, door, "CONNECT "+DNSTarget+" HTTP/1.1\r\nHost: "+DNSTarget+"\r\n\r\n")
	_, _ = io.WriteString(door, "HTTP/1.1 200 OK\r\n\r\n")
	expect(t, door, "\x00\x08question")
	_, _ = door.Write(append(binary.BigEndian.AppendUint16(nil, 6), "answer"...))
	got := make([]byte, 64)
	if n, err := client.Read(got); err != nil || string(got[:n]) != "answer" {
		t.Errorf("read %q, %v", got[:n], err)
	}
}
