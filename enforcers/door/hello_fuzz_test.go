package door

import (
	"bufio"
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"gatehouse/internal/authority"
)

// helloConn is a client that has sent what it will ever send.
type helloConn struct{ net.Conn }

func (helloConn) SetReadDeadline(time.Time) error { return nil }

// namesIn reads the server names of a ClientHello and whether it has an
// encrypted one, in as few steps as RFC 8446 and RFC 6066 need and with no code
// of crypto/tls. ok is false for what is no ClientHello.
func namesIn(b []byte) (names []string, encrypted, ok bool) {
	var message []byte
	for s := cryptobyte.String(b); ; { // records, until the message is whole
		if n := len(message); n >= 4 && n >= 4+int(message[1])<<16+int(message[2])<<8+int(message[3]) {
			break
		}
		var kind uint8
		var version uint16
		var body cryptobyte.String
		if !s.ReadUint8(&kind) || kind != recordHandshake || !s.ReadUint16(&version) || !s.ReadUint16LengthPrefixed(&body) {
			return nil, false, false
		}
		message = append(message, body...)
	}
	s := cryptobyte.String(message)
	var kind uint8
	var hello, session, suites, compression, extensions cryptobyte.String
	if !s.ReadUint8(&kind) || kind != 1 || !s.ReadUint24LengthPrefixed(&hello) || !hello.Skip(2+32) ||
		!hello.ReadUint8LengthPrefixed(&session) || !hello.ReadUint16LengthPrefixed(&suites) || !hello.ReadUint8LengthPrefixed(&compression) {
		return nil, false, false
	}
	if hello.Empty() {
		return nil, false, true
	}
	if !hello.ReadUint16LengthPrefixed(&extensions) || !hello.Empty() {
		return nil, false, false
	}
	for !extensions.Empty() {
		var id uint16
		var data, list cryptobyte.String
		if !extensions.ReadUint16(&id) || !extensions.ReadUint16LengthPrefixed(&data) {
			return nil, false, false
		}
		encrypted = encrypted || id == extensionECH
		if id != 0 {
			continue
		}
		if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() {
			return nil, false, false
		}
		for !list.Empty() {
			var kind uint8
			var name cryptobyte.String
			if !list.ReadUint8(&kind) || !list.ReadUint16LengthPrefixed(&name) {
				return nil, false, false
			}
			names = append(names, string(name))
		}
	}
	return names, encrypted, true
}

// FuzzHello is the differential for the server name (EG-10, EG-39 to EG-41): a
// ClientHello that the door would pass on unread names the tunnel's host and
// nothing else to another reader, and what is passed on is what was read.
func FuzzHello(f *testing.F) {
	to, err := authority.New(authority.HTTPS, "api.good.test", 443)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("SSH-2.0-x\r\n"))
	d := &Door{o: Options{Timeouts: Timeouts{Handshake: time.Second}}}
	for _, h := range helloSeeds() {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l := &link{d: d, nc: helloConn{}, r: bufio.NewReader(bytes.NewReader(b))}
		sent, code := l.hello(to)
		if code != "" {
			return
		}
		if !bytes.HasPrefix(b, []byte(sent)) {
			t.Fatal("what is passed on is not what was sent")
		}
		names, encrypted, ok := namesIn([]byte(sent))
		if !ok || encrypted || len(names) != 1 || !strings.EqualFold(strings.TrimSuffix(names[0], "."), to.Host()) {
			t.Fatalf("passed on, and another reader finds %q, encrypted %t, %t", names, encrypted, ok)
		}
	})
}

// helloSeeds are hellos for the host, for another, with an encrypted name and
// without any, each in one record and in two.
func helloSeeds() [][]byte {
	extension := func(id uint16, body ...byte) []byte {
		return append([]byte{byte(id >> 8), byte(id), 0, byte(len(body))}, body...)
	}
	name := func(s string) []byte {
		return extension(0, append([]byte{0, byte(len(s) + 3), 0, 0, byte(len(s))}, s...)...)
	}
	common := append(append(extension(10, 0, 2, 0, 29), extension(13, 0, 4, 4, 3, 8, 4)...), extension(43, 4, 3, 4, 3, 3)...)
	var out [][]byte
	for _, ext := range [][]byte{name("api.good.test"), name("API.good.test"), name("evil.test"), append(name("api.good.test"), extension(extensionECH)...), nil} {
		ext = append(append([]byte(nil), ext...), common...)
		body := append([]byte{3, 3}, make([]byte, 32)...)
		body = append(body, 0, 0, 4, 0xc0, 0x2b, 0x13, 0x01, 1, 0, 0, byte(len(ext)))
		message := append([]byte{1, 0, 0, byte(len(body) + len(ext))}, append(body, ext...)...)
		record := func(b []byte) []byte { return append([]byte{recordHandshake, 3, 1, 0, byte(len(b))}, b...) }
		out = append(out, record(message), append(record(message[:20]), record(message[20:])...))
	}
	return out
}

// TestHelloSeeds: the seeds reach both answers.
func TestHelloSeeds(t *testing.T) {
	to, err := authority.New(authority.HTTPS, "api.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	d := &Door{o: Options{Timeouts: Timeouts{Handshake: time.Second}}}
	passed := 0
	for _, b := range helloSeeds() {
		l := &link{d: d, nc: helloConn{}, r: bufio.NewReader(bytes.NewReader(b))}
		if _, code := l.hello(to); code == "" {
			passed++
		}
	}
	if passed != 4 { // the host in two spellings, each in one record and in two
		t.Errorf("%d of %d pass", passed, len(helloSeeds()))
	}
}
