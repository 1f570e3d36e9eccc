package api

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"gatehouse/internal/problem"
)

// Bounds of the answers that are kept for a repeated request.
const (
	keepRepeats  = 24 * time.Hour
	maxRepeats   = 1024
	maxRepeat    = 64 << 10 // bytes of one answer
	maxRepeatKey = 200
)

// repeats keeps the answers of requests that carried an Idempotency-Key, in
// memory: a node that restarts has forgotten them, and says so in no other way
// than by doing the thing again.
type repeats struct {
	clock func() time.Time

	mu   sync.Mutex
	kept map[[32]byte]*repeat
}

type repeat struct {
	body    [32]byte
	at      time.Time
	done    bool
	status  int
	header  http.Header
	content []byte
}

func newRepeats(clock func() time.Time) *repeats {
	return &repeats{clock: clock, kept: map[[32]byte]*repeat{}}
}

// once answers a post that carries the Idempotency-Key of an earlier one of the
// same caller with that one's answer, and does nothing a second time.
func (a *API) once(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if r.Method != http.MethodPost || key == "" || !strings.HasPrefix(r.URL.Path, "/v1/") || r.URL.Path == "/v1/tokens" { // a token is shown once
			next.ServeHTTP(w, r)
			return
		}
		if len(key) > maxRepeatKey {
			refuse(w, problemOf(problem.Usage, "the Idempotency-Key is too long", "Use a UUID."))
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			refuse(w, problemOf(problem.Usage, "the body is too large", ""))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		who := callerOf(r.Context())
		id := sha256.Sum256([]byte(who.Name + "\x00" + who.Token + "\x00" + r.URL.RequestURI() + "\x00" + key))
		x, mine := a.repeats.take(id, sha256.Sum256(body))
		switch {
		case x == nil:
			next.ServeHTTP(w, r) // too many are kept: this one is not
		case mine:
			out := &recording{ResponseWriter: w, status: http.StatusOK}
			finished := false
			defer func() {
				if !finished { // a panic cut the answer: nothing is known of it
					a.repeats.forget(id)
				}
			}()
			next.ServeHTTP(out, r)
			finished = true
			a.repeats.finish(id, out)
		case x.body != sha256.Sum256(body):
			refuse(w, problemOf(problem.Conflict, "this Idempotency-Key was used for another request", "Use a new one."))
		case !x.done:
			refuse(w, problemOf(problem.Conflict, "the first request with this Idempotency-Key is not answered yet", "Wait and ask again."))
		default:
			for k, v := range x.header {
				w.Header()[k] = v
			}
			w.Header().Set("Idempotency-Replayed", "true")
			w.WriteHeader(x.status)
			_, _ = w.Write(x.content)
		}
	})
}

// take returns what is kept under an id and whether the caller is the first, nil
// when nothing more can be kept.
func (s *repeats) take(id, body [32]byte) (x *repeat, first bool) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.kept[id]; x != nil && now.Sub(x.at) < keepRepeats {
		c := *x
		return &c, false
	}
	if len(s.kept) >= maxRepeats {
		for k, x := range s.kept {
			if now.Sub(x.at) >= keepRepeats {
				delete(s.kept, k)
			}
		}
		if len(s.kept) >= maxRepeats {
			return nil, false
		}
	}
	s.kept[id] = &repeat{body: body, at: now}
	return s.kept[id], true
}

// finish keeps an answer. One that failed inside, or is too large, is not kept: the
// request may be tried again.
func (s *repeats) finish(id [32]byte, out *recording) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.kept[id]
	if x == nil || out.status >= 500 || out.status == http.StatusTooManyRequests || out.large {
		delete(s.kept, id)
		return
	}
	x.done, x.status, x.header, x.content = true, out.status, http.Header{}, out.content
	for _, k := range []string{"Content-Type", "Etag"} {
		if v := out.Header().Get(k); v != "" {
			x.header.Set(k, v)
		}
	}
}

func (s *repeats) forget(id [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, id)
}

// recording remembers an answer while it is sent.
type recording struct {
	http.ResponseWriter
	status  int
	content []byte
	large   bool
}

// WriteHeader notes the status.
func (w *recording) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Write notes the bytes.
func (w *recording) Write(b []byte) (int, error) {
	if len(w.content)+len(b) > maxRepeat {
		w.large = true
	} else {
		w.content = append(w.content, b...)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the writer behind.
func (w *recording) Unwrap() http.ResponseWriter { return w.ResponseWriter }
