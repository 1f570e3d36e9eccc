package door_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/receipts"
)

// TestBench prints one JSON line a comparison when GATEHOUSE_BENCH=1. Rounds of
// ours and the base alternate; medians are printed. Client, door and the
// outside share one process and the loopback.
func TestBench(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	o := newOutside(t)
	source := o.source(t, netip.AddrPortFrom(goodAddr, 5432))
	o.handle(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(kibibyte) })
	in := open(t, o, setup{mode: receipts.Shadow, policy: strings.Replace(matrixPolicy, `"blind":"tcp",`, `"blind":"tcp","down":1099511627776,`, 1)})
	relay := plainRelay(t, source)

	compare(t, "door.blind_tunnel/plain_relay", "MiB/s", func() float64 {
		c, r, re := in.tunnel("blind.good.test:5432")
		if re.status != 200 {
			t.Fatal(re)
		}
		defer c.Close()
		return throughput(t, r)
	}, func() float64 {
		c, err := net.Dial("unix", relay)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return throughput(t, c)
	})

	inner, reader, _ := in.secure(good+":443", good)
	direct := dialTLS(t, o)
	directReader := bufio.NewReader(direct)
	compare(t, "door.mitm_keep_alive/direct_tls", "1/s", func() float64 {
		return rate(t, inner, reader, get(good, "/v1/x"), 200)
	}, func() float64 {
		return rate(t, direct, directReader, get(good, "/v1/x"), 200)
	})
	compare(t, "door.denial/mitm_keep_alive", "1/s", func() float64 {
		return tunnels(t, in, "evil.test:22", 403)
	}, func() float64 {
		return rate(t, inner, reader, get(good, "/v1/x"), 200)
	})
	compare(t, "door.new_tunnel/direct_tls", "1/s", func() float64 {
		return perSecond(func() {
			if re := in.fetch(good, "/v1/x"); re.status != 200 {
				t.Fatal(re)
			}
		})
	}, func() float64 {
		return perSecond(func() {
			c := dialTLS(t, o)
			if re := ask(c, get(good, "/v1/x")); re.status != 200 {
				t.Fatal(re)
			}
			_ = c.Close()
		})
	})
}

var kibibyte = []byte(strings.Repeat("x", 1<<10))

const benchFor = 500 * time.Millisecond

func compare(t *testing.T, name, unit string, ours, base func() float64) {
	t.Helper()
	var o, b []float64
	for range 5 {
		o, b = append(o, ours()), append(b, base())
	}
	slices.Sort(o)
	slices.Sort(b)
	line, err := json.Marshal(map[string]any{"name": name, "ours": o[2], "base": b[2], "ratio": o[2] / b[2], "unit": unit})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}

func perSecond(f func()) float64 {
	start, n := time.Now(), 0
	for time.Since(start) < benchFor {
		f()
		n++
	}
	return float64(n) / time.Since(start).Seconds()
}

// rate counts keep-alive requests a second.
func rate(t testing.TB, c net.Conn, r *bufio.Reader, text string, status int) float64 {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return perSecond(func() {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if re := read(r, "GET"); re.status != status {
			t.Fatal(re)
		}
	})
}

// tunnels counts CONNECTs a second.
func tunnels(t testing.TB, in *inside, target string, status int) float64 {
	return perSecond(func() {
		if re := rawConnect(target)(in); re.status != status {
			t.Fatal(re)
		}
	})
}

// throughput reads for a while.
func throughput(t testing.TB, r io.Reader) float64 {
	buf := make([]byte, 64<<10)
	start, n := time.Now(), 0
	for time.Since(start) < benchFor {
		m, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	return float64(n) / (1 << 20) / time.Since(start).Seconds()
}

// source is a server that never stops sending.
func (o *outside) source(t testing.TB, public netip.AddrPort) net.Addr {
	l := o.listen(t, public)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 64<<10)
				for {
					if _, err := c.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr()
}

// plainRelay is what a tunnel costs without a door: a unix socket copied to TCP.
func plainRelay(t testing.TB, to net.Addr) string {
	path := filepath.Join(t.TempDir(), "relay.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				up, err := net.Dial(to.Network(), to.String())
				if err != nil {
					return
				}
				defer up.Close()
				_, _ = io.Copy(c, up)
			}()
		}
	}()
	return path
}

func dialTLS(t testing.TB, o *outside) net.Conn {
	raw, err := net.Dial("tcp", o.sites[netip.AddrPortFrom(goodAddr, 443)].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return tls.Client(raw, &tls.Config{ServerName: good, RootCAs: o.roots})
}

// BenchmarkKeepAlive is one request on a MITM keep-alive connection, with its
// allocations.
func BenchmarkKeepAlive(b *testing.B) {
	o := newOutside(b)
	in := open(b, o, setup{mode: receipts.Shadow})
	c, r, _ := in.secure(good+":443", good)
	_ = c.SetDeadline(time.Time{})
	text := get(good, "/v1/x")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(c, text); err != nil {
			b.Fatal(err)
		}
		if re := read(r, "GET"); re.status != 200 {
			b.Fatal(re)
		}
	}
}
