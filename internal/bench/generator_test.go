package bench

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// sent numbers the deliveries of the whole run, so that none is a repetition.
var sent atomic.Int64

// generator sends signed GitHub deliveries over connections that stay open. It
// shares the machine with what it measures, so it is lean: a head with places to
// fill in, a body of which only the end differs, a signature that goes on from
// the state after the rest, no allocation a delivery.
type generator struct {
	addr string
	head []byte
	id   int // places in head
	mac  int
	body []byte // without the number and what follows it
	sum  hash.Cloner
}

const (
	idDigits = 9 // of a delivery; a JSON number has no leading zero
	bodyEnd  = `"}`
)

// newGenerator takes a JSON object, of which each delivery is a copy with a
// member "sent" of its own.
func newGenerator(t *testing.T, target string, base []byte) *generator {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	g := &generator{addr: u.Host}
	g.body = append(bytes.TrimSuffix(bytes.TrimSpace(base), []byte("}")), `,"sent":"`...)
	mac := hmac.New(sha256.New, []byte(hookKey))
	mac.Write(g.body)
	clone, ok := mac.(hash.Cloner)
	if !ok {
		t.Fatal("the MAC cannot be continued")
	}
	g.sum = clone
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-GitHub-Event: workflow_job\r\nX-GitHub-Delivery: ",
		u.Path, u.Host, len(g.body)+idDigits+len(bodyEnd))
	g.id = b.Len()
	b.Write(bytes.Repeat([]byte("0"), idDigits))
	b.WriteString("\r\nX-Hub-Signature-256: sha256=")
	g.mac = b.Len()
	b.Write(bytes.Repeat([]byte("0"), 2*sha256.Size))
	b.WriteString("\r\n\r\n")
	g.head = b.Bytes()
	return g
}

// sender is one client.
type sender struct {
	*generator
	conn *net.TCPConn
	r    *bufio.Reader
	buf  []byte // head and body of its own
}

func (g *generator) dial() (*sender, error) {
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		return nil, err
	}
	return &sender{g, c.(*net.TCPConn), bufio.NewReader(c), slices.Concat(g.head, g.body, make([]byte, idDigits), []byte(bodyEnd))}, nil
}

// send makes one delivery and waits for 200.
func (s *sender) send() error {
	var room [sha256.Size]byte
	number := strconv.AppendInt(room[:0], 200_000_000+sent.Add(1), 10)
	end := len(s.buf) - idDigits - len(bodyEnd)
	copy(s.buf[s.id:], number)
	copy(s.buf[end:], number)
	sum, err := s.sum.Clone()
	if err != nil {
		return err
	}
	sum.Write(s.buf[end:])
	hex.Encode(s.buf[s.mac:], sum.Sum(room[:0]))
	if _, err := s.conn.Write(s.buf); err != nil {
		return err
	}
	return s.answer()
}

// answer reads one answer: a status, the length of what follows, and that.
func (s *sender) answer() error {
	line, err := s.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("answered %q", line)
	}
	length := -1
	for {
		if line, err = s.r.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return fmt.Errorf("an answer without a length")
	}
	body, err := s.r.Peek(length)
	if err != nil {
		return err
	}
	// Benthos answers 200 without a word.
	if length > 0 && !bytes.Contains(body, []byte(`"accepted"`)) {
		return fmt.Errorf("answered %s", body)
	}
	_, err = io.CopyN(io.Discard, s.r, int64(length))
	return err
}

// load has clients deliver for a round.
func (g *generator) load(t *testing.T, clients int) measure {
	t.Helper()
	senders := make([]*sender, clients)
	for i := range senders {
		s, err := g.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer s.conn.Close() //nolint:errcheck // a benchmark
		senders[i] = s
	}
	var mu sync.Mutex
	var m measure
	used, began := processor(t), time.Now()
	var wg sync.WaitGroup
	for _, s := range senders {
		wg.Go(func() {
			mine := make([]time.Duration, 0, 1<<14)
			for start := time.Now(); start.Sub(began) < roundFor; {
				if err := s.send(); err != nil {
					t.Error(err)
					return
				}
				now := time.Now()
				mine = append(mine, now.Sub(start))
				start = now
			}
			mu.Lock()
			defer mu.Unlock()
			m.took = append(m.took, mine...)
		})
	}
	wg.Wait()
	m.seconds, m.used = time.Since(began).Seconds(), processor(t)-used
	if len(m.took) == 0 {
		t.Fatal("nothing was answered")
	}
	slices.Sort(m.took)
	return m
}

// processor is the processor time of this process so far: both sides and the
// generator.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
