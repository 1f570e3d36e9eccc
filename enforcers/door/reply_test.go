package door

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"
)

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
