//go:build linux

package remote

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// TestGate: the key that a connection shows decides which door it reaches, and
// nothing else does (SB-17).
func TestGate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, err := openGate(l)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	session := func(name string) (*DoorKey, func()) {
		door, err := sandbox.ListenDoor(filepath.Join(t.TempDir(), "door.sock"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { door.Close() })
		go func() {
			for {
				c, err := door.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.WriteString(c, "door of "+name)
					_, _ = io.Copy(io.Discard, c)
				}()
			}
		}()
		key, leave, err := g.admit(name, door.Addr().String(), l.Addr().String(), "canary-"+name)
		if err != nil {
			t.Fatal(err)
		}
		return key, leave
	}
	// dial returns what the gate lets the holder of a key read, "" for nothing.
	dial := func(change func(*tls.Config), key *DoorKey) (string, net.Conn) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(key.CA)
		own, err := tls.X509KeyPair(key.Certificate, key.Key)
		if err != nil {
			t.Fatal(err)
		}
		config := &tls.Config{RootCAs: roots, ServerName: key.Name, Certificates: []tls.Certificate{own}}
		if change != nil {
			change(config)
		}
		c, err := tls.Dial("tcp", key.Address, config)
		if err != nil {
			return "", nil
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 64)
		n, _ := c.Read(b)
		return string(b[:n]), c
	}
	a, leaveA := session("a")
	b, leaveB := session("b")
	defer leaveB()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := openGate(other)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.close()
	foreign, leaveF, err := stranger.admit("a", "/nowhere", l.Addr().String(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer leaveF()

	if block, _ := pem.Decode(a.Key); block == nil || block.Headers[canaryHeader] != "canary-a" {
		t.Error("the key carries no canary")
	}
	cases := map[string]struct {
		key    *DoorKey
		change func(*tls.Config)
		want   string
	}{
		"own_key":              {a, nil, "door of a"},
		"own_key_of_b":         {b, nil, "door of b"},
		"name_of_another":      {a, func(c *tls.Config) { c.ServerName = "b"; c.InsecureSkipVerify = true }, "door of a"},
		"no_key":               {a, func(c *tls.Config) { c.Certificates = nil }, ""},
		"key_of_another_node":  {foreign, func(c *tls.Config) { c.InsecureSkipVerify = true }, ""},
		"an_older_tls":         {a, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, ""},
		"the_gate_is_verified": {foreign, nil, ""},
		"the_authority_as_key": {a, func(c *tls.Config) {
			c.Certificates[0].Certificate = [][]byte{g.ca.Raw}
			c.Certificates[0].PrivateKey = g.key
		}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, conn := dial(c.change, c.key)
			if conn != nil {
				conn.Close()
			}
			if got != c.want {
				t.Errorf("reached %q, want %q", got, c.want)
			}
		})
	}
	t.Run("revoked", func(t *testing.T) {
		got, held := dial(nil, a)
		if got != "door of a" {
			t.Fatalf("reached %q", got)
		}
		defer held.Close()
		leaveA()
		_ = held.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := held.Read(make([]byte, 1)); err == nil || n != 0 || isTimeout(err) {
			t.Errorf("a connection outlives its session: %d %v", n, err)
		}
		if got, c := dial(nil, a); got != "" {
			c.Close()
			t.Errorf("a dead key reaches %q", got)
		}
		if got, c := dial(nil, b); got != "door of b" {
			t.Errorf("the other session reaches %q", got)
		} else {
			c.Close()
		}
	})
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
