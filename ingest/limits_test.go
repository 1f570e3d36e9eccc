package ingest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatehouse/ingest"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/problem"
)

// raw opens a connection and writes the head of a signed request, with the
// length header as given.
func (n *node) raw(endpoint, length string, body []byte) net.Conn {
	n.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		n.t.Fatal(err)
	}
	_, err = fmt.Fprintf(c, "POST /hooks/%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-GitHub-Event: issue_comment\r\n"+
		"X-GitHub-Delivery: %s\r\nX-Hub-Signature-256: %s\r\n%s\r\n\r\n", endpoint, freshID(), sign(key1, body), length)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func (n *node) answer(c net.Conn) reply {
	n.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return reply{code: resp.StatusCode, header: resp.Header, raw: string(b)}
}

// IN-07: every way to send too much, and to say a wrong length.
func TestBodyLength(t *testing.T) {
	body := corpus(t, "github/issue_comment__created.json")
	const limit = 25 << 20
	for _, endpoint := range []string{"main", "nobody"} {
		want := 200
		if endpoint == "nobody" {
			want = 401
		}
		t.Run(endpoint+"/IN-07 declared", func(t *testing.T) {
			n := start(t, nodeOptions{})
			// No byte of the body is sent: the answer cannot wait for one.
			if a := n.answer(n.raw(endpoint, fmt.Sprintf("Content-Length: %d", limit+1), body)); a.code != 413 {
				t.Errorf("answered %d %s, want 413", a.code, a.raw)
			}
		})
		t.Run(endpoint+"/IN-07 missing", func(t *testing.T) {
			n := start(t, nodeOptions{})
			c := n.raw(endpoint, "Transfer-Encoding: chunked", body)
			go func() { // the server stops reading at the limit
				chunk := bytes.Repeat([]byte("x"), 1<<20)
				for range 40 {
					if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(chunk), chunk); err != nil {
						return
					}
				}
			}()
			if a := n.answer(c); a.code != 413 {
				t.Errorf("answered %d %s, want 413", a.code, a.raw)
			}
		})
		t.Run(endpoint+"/IN-07 missing but small", func(t *testing.T) {
			n := start(t, nodeOptions{})
			c := n.raw(endpoint, "Transfer-Encoding: chunked", body)
			fmt.Fprintf(c, "%x\r\n%s\r\n0\r\n\r\n", len(body), body)
			if a := n.answer(c); a.code != want {
				t.Errorf("answered %d %s, want %d", a.code, a.raw, want)
			}
		})
		t.Run(endpoint+"/IN-07 lies low", func(t *testing.T) {
			n := start(t, nodeOptions{})
			c := n.raw(endpoint, fmt.Sprintf("Content-Length: %d", len(body)-1), body)
			_, _ = c.Write(body)
			if a := n.answer(c); a.code != 401 {
				t.Errorf("answered %d %s, want 401: the signature is over more", a.code, a.raw)
			}
		})
		t.Run(endpoint+"/IN-07 lies high", func(t *testing.T) {
			n := start(t, nodeOptions{})
			c := n.raw(endpoint, fmt.Sprintf("Content-Length: %d", len(body)+1), body)
			_, _ = c.Write(body)
			_ = c.(*net.TCPConn).CloseWrite()
			if a := n.answer(c); a.code != 400 {
				t.Errorf("answered %d %s, want 400", a.code, a.raw)
			}
			if got := n.events(); len(got) != 0 {
				t.Errorf("stored %d events of half a body", len(got))
			}
		})
		t.Run(endpoint+"/slow", func(t *testing.T) {
			n := start(t, nodeOptions{})
			c := n.raw(endpoint, fmt.Sprintf("Content-Length: %d", len(body)), body)
			_, _ = c.Write(body[:100])
			if a := n.answer(c); a.code != 408 {
				t.Errorf("answered %d %s, want 408", a.code, a.raw)
			}
		})
	}
}

// Issue 5, Shows 4: strangers hold large bodies open on one endpoint, members
// deliver to it and to its neighbour; no healthy delivery is refused.
func TestStalledBodies(t *testing.T) {
	n := start(t, nodeOptions{memory: 8 << 20, endpoints: []ingest.Endpoint{
		{Name: "main", Source: gh(t, key1)}, {Name: "other", Source: gh(t, key1)},
	}})
	part := bytes.Repeat([]byte("x"), 300<<10)
	var strangers sync.WaitGroup
	var conns []net.Conn
	for i := range 200 {
		c := n.raw([]string{"main", "other", "nobody"}[i%3], "Content-Length: 20000000", part)
		conns = append(conns, c)
		strangers.Go(func() { _, _ = c.Write(part) })
	}
	body := corpus(t, "github/issue_comment__created.json")
	var members sync.WaitGroup
	for i := range 40 {
		r := n.request(delivery{endpoint: []string{"main", "other"}[i%2], body: bytes.Replace(body, []byte("totally"), fmt.Appendf(nil, "%d", i), 1)})
		members.Go(func() {
			resp, err := n.client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				b, _ := io.ReadAll(resp.Body)
				t.Errorf("healthy delivery %d answered %d %s", i, resp.StatusCode, b)
			}
		})
	}
	members.Wait()
	for _, c := range conns {
		_ = c.Close()
	}
	strangers.Wait()
}

// IN-09: the rate of an endpoint is spent by verified deliveries only.
func TestRateAfterAuthentication(t *testing.T) {
	t.Run("IN-09_strangers_cannot_use_up_the_rate", func(t *testing.T) {
		n := start(t, nodeOptions{endpoints: []ingest.Endpoint{{Name: "main", Source: gh(t, key1), Rate: 0.001, Burst: 1}}})
		body := corpus(t, "github/issue_comment__created.json")
		for range 20 {
			if a := n.send(delivery{body: body, key: "another secret, which nobody set"}); a.code != 401 {
				t.Fatalf("IN-09: stranger answered %d", a.code)
			}
		}
		if a := n.send(delivery{body: body}); a.code != 200 {
			t.Errorf("IN-09: first verified delivery answered %d %s", a.code, a.raw)
		}
		a := n.send(delivery{body: corpus(t, "github/ping__default.json"), kind: "ping"})
		if a.code != 429 || a.header.Get("Retry-After") == "" {
			t.Errorf("second verified delivery answered %d, Retry-After %q", a.code, a.header.Get("Retry-After"))
		}
	})
}

// IN-04: nothing durable, no 200.
func TestJournalFails(t *testing.T) {
	body := corpus(t, "github/issue_comment__created.json")
	t.Run("IN-04 sync fails", func(t *testing.T) {
		fs := &faultfs.FS{}
		n := start(t, nodeOptions{fs: fs})
		fs.Inject(faultfs.Fault{Op: faultfs.Sync, Err: syscall.EIO})
		for range 2 {
			a := n.send(delivery{body: body})
			if a.code != 503 || a.header.Get("Retry-After") == "" {
				t.Errorf("answered %d %s, Retry-After %q", a.code, a.raw, a.header.Get("Retry-After"))
			}
		}
	})
	t.Run("IN-04 disk full, then space", func(t *testing.T) {
		fs := &faultfs.FS{}
		n := start(t, nodeOptions{fs: fs, segment: 1 << 20, endpoints: []ingest.Endpoint{{Name: "main", Source: gh(t, key1), Rate: 1e6, Burst: 1e6}}})
		fs.SetCapacity(fs.Used())
		refused := 0
		for i := range 4000 {
			a := n.send(delivery{id: fmt.Sprint("full-", i), body: bytes.Replace(body, []byte("totally"), fmt.Appendf(nil, "%d", i), 1)})
			if a.code == 503 {
				refused = i
				break
			}
			if a.code != 200 || i == 3999 {
				t.Fatal("the disk never filled up")
			}
		}
		stored := len(n.events())
		fs.SetCapacity(0)
		deadline := time.Now().Add(20 * time.Second)
		for {
			a := n.send(delivery{id: fmt.Sprint("full-", refused), body: bytes.Replace(body, []byte("totally"), fmt.Appendf(nil, "%d", refused), 1)})
			if a.code == 200 {
				if a.Status != "accepted" {
					t.Errorf("retry answered %s: the claim outlived its event", a.raw)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("still answered %d %s", a.code, a.raw)
			}
		}
		if got := len(n.events()); got != stored+1 {
			t.Errorf("stored %d events, want %d", got, stored+1)
		}
	})
}

// IN-33: what is in flight finishes, what is new is refused.
func TestDrain(t *testing.T) {
	t.Run("IN-33_drain", func(t *testing.T) {
		n := start(t, nodeOptions{})
		body := corpus(t, "github/issue_comment__created.json")
		c := n.raw("main", fmt.Sprintf("Content-Length: %d", len(body)), body)
		if _, err := c.Write(body[:100]); err != nil {
			t.Fatal(err)
		}
		// A second request that is answered proves nothing of the first; the body
		// account does: wait until the first is being read.
		waitFor(t, func() bool { return n.in.InFlight() == 1 })
		drained := make(chan error, 1)
		go func() { drained <- n.in.Drain(context.Background()) }()
		waitFor(t, func() bool { return n.send(delivery{body: body}).code == 503 })
		select {
		case err := <-drained:
			t.Fatalf("IN-33: drained with a request in flight: %v", err)
		default:
		}
		if _, err := c.Write(body[100:]); err != nil {
			t.Fatal(err)
		}
		if a := n.answer(c); a.code != 200 {
			t.Errorf("IN-33: in-flight request answered %d %s", a.code, a.raw)
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

// A bound on what waits behind the journal: what is new is refused, what is
// known is answered.
func TestRoom(t *testing.T) {
	var full atomic.Bool
	n := start(t, nodeOptions{room: func() error {
		if full.Load() {
			return problem.New(problem.StreamsBehind, "behind", "")
		}
		return nil
	}})
	body := corpus(t, "github/issue_comment__created.json")
	first := delivery{body: body, id: freshID()}
	if a := n.send(first); a.code != 200 {
		t.Fatalf("answered %d %s", a.code, a.raw)
	}
	full.Store(true)
	at := n.j.Next()
	other := func(text string) delivery {
		return delivery{body: bytes.Replace(body, []byte("totally"), []byte(text), 1), id: freshID()}
	}
	if a := n.send(other("second")); a.code != 503 || !strings.Contains(a.raw, "streams_behind") || a.header.Get("Retry-After") == "" {
		t.Errorf("a new delivery is answered %d %s", a.code, a.raw)
	}
	if a := n.send(first); a.code != 200 || !strings.Contains(a.raw, "duplicate") {
		t.Errorf("a repeat is answered %d %s", a.code, a.raw)
	}
	if n.j.Next() != at {
		t.Error("a refused delivery is in the journal")
	}
	full.Store(false)
	if a := n.send(other("third")); a.code != 200 {
		t.Errorf("with room again: %d %s", a.code, a.raw)
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("condition never held")
		}
		time.Sleep(time.Millisecond)
	}
}
