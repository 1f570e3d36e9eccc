package door_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"gatehouse/receipts"
)

// TestStarvation: one session that takes all it can get costs another nothing
// but time. The full count runs with GATEHOUSE_SOAK=1.
func TestStarvation(t *testing.T) {
	count := 2500
	if os.Getenv("GATEHOUSE_SOAK") != "" {
		count = 50_000
	}
	if testing.Short() {
		count = 600
	}
	o := newOutside(t)
	greedy, other := open(t, o, setup{mode: receipts.Shadow}), open(t, o, setup{})
	if re := greedy.fetch(good, "/v1/x"); re.status != http.StatusOK { // a name it may use up its new ones without
		t.Fatal(re)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var opened atomic.Int64
	half := hello{names: []string{good}}.bytes()[:20]
	// A connection that is held open in one of the ways that cost something.
	hold := func(i int) net.Conn {
		c, err := net.DialTimeout("unix", greedy.path, 50*time.Millisecond)
		if err != nil {
			return nil // the door has stopped accepting
		}
		switch i % 4 {
		case 0: // nothing at all
		case 1:
			_, _ = io.WriteString(c, "CONNECT api.go")
		case 2:
			fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n%s", good, good, half)
		case 3:
			_, _ = io.WriteString(c, "POST http://plain.good.test/ HTTP/1.1\r\nHost: plain.good.test\r\nContent-Length: 100\r\n\r\nx")
		}
		opened.Add(1)
		return c
	}
	var held sync.Map
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < count; i += 8 {
				select {
				case <-stop:
					return
				default:
				}
				if c := hold(i); c != nil {
					held.Store(c, true)
				}
			}
		})
	}
	wg.Go(func() { // names, more than a minute admits
		for i := range 200 {
			c, err := net.DialTimeout("unix", greedy.path, 50*time.Millisecond)
			if err != nil {
				return
			}
			held.Store(c, true)
			fmt.Fprintf(c, "CONNECT gatehouse-dns:53 HTTP/1.1\r\nHost: gatehouse-dns:53\r\n\r\n")
			m := new(dns.Msg)
			m.SetQuestion(fmt.Sprintf("n%d.evil.test.", i), dns.TypeA)
			if b, err := m.Pack(); err == nil {
				_, _ = c.Write(append([]byte{byte(len(b) >> 8), byte(len(b))}, b...))
			}
		}
	})
	for range 40 {
		if re := other.fetch(good, "/v1/x"); re.status != http.StatusOK {
			t.Errorf("the other session saw %d %v", re.status, re.err)
		}
	}
	close(stop)
	wg.Wait()
	held.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
	if opened.Load() < 300 {
		t.Errorf("only %d connections were opened", opened.Load())
	}
	// And the greedy one is served again once it lets go.
	if re := greedy.fetch(good, "/v1/x"); re.status != http.StatusOK {
		t.Errorf("the greedy session saw %d %v", re.status, re.err)
	}
}
