package door

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// deadlines counts those that are set.
type deadlines struct {
	net.Conn
	n int
}

func (d *deadlines) SetReadDeadline(time.Time) error {
	d.n++
	return nil
}

// TestBodyReadLate: who still reads a request's body when the request is over
// touches neither its connection, which may serve the next one, nor its answer.
func TestBodyReadLate(t *testing.T) {
	for name, expect := range map[string]bool{"plain": false, "expected": true} {
		t.Run(name, func(t *testing.T) {
			nc := &deadlines{}
			var wire strings.Builder
			l := &link{d: new(Door), nc: nc, r: bufio.NewReader(strings.NewReader("of the next request"))}
			w := newReply(bufio.NewWriter(&wire), http.MethodPost)
			var b body
			b.begin(l, w, &head{length: 4, expect: expect})
			b.finished()
			before := nc.n
			if n, err := b.Read(make([]byte, 4)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("%d bytes, %v", n, err)
			}
			if nc.n != before || wire.Len() != 0 || b.expect != expect {
				t.Errorf("%d deadlines set, %q written, waits %v", nc.n-before, wire.String(), b.expect)
			}
		})
	}
}
