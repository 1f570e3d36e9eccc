package door

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
)

// TestReplyBrokenOff: EG-76. An answer that breaks off, as one that repeats a
// credential does, is not one that came whole.
func TestReplyBrokenOff(t *testing.T) {
	for name, c := range map[string]struct{ length, body string }{"chunks": {"", "a part of it"}, "nothing_yet": {"", ""}, "length": {"100", "a part of it"}} {
		t.Run(name, func(t *testing.T) {
			var wire bytes.Buffer
			r := newReply(bufio.NewWriter(&wire), http.MethodGet)
			if c.length != "" {
				r.Header().Set("Content-Length", c.length)
			}
			r.Header().Set("Trailer", "X-Last")
			_, _ = r.Write([]byte(c.body))
			r.Flush()
			r.abort()
			if r.finish() {
				t.Error("another request may follow")
			}
			resp, err := http.ReadResponse(bufio.NewReader(&wire), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); string(b) != c.body || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// TestReplyIsOver: a handler's goroutine that writes after its request is done
// reaches no connection: the buffer is another's by then, of another session
// perhaps.
func TestReplyIsOver(t *testing.T) {
	var own, other bytes.Buffer
	w := bufio.NewWriter(&own)
	r := newReply(w, http.MethodGet)
	r.Header().Set("Content-Type", "text/plain")
	_, _ = r.Write([]byte("mine"))
	r.Flush()
	r.finish()
	w.Reset(&other) // as the pool gives it out again
	if _, err := r.Write([]byte("of another session")); err == nil {
		t.Error("written")
	}
	r.Flush()
	r.proceed()
	if err := w.Flush(); err != nil || other.Len() > 0 {
		t.Errorf("the next connection got %q, %v", other.String(), err)
	}
}
