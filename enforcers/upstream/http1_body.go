package upstream

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// continueAfter is how long a body waits for an answer to its expectation:
	// many servers give none.
	continueAfter = time.Second
	// sentWithin is how long after an answer's end its request's body may still be
	// on its way without the connection being given up for it.
	sentWithin = 50 * time.Millisecond
)

// sending is a request with a body on its way out, on a goroutine of its own.
type sending struct {
	x    *turn
	r    *http.Request
	src  io.ReadCloser
	goOn chan struct{} // nil without an expectation; closed by a 100 or an answer
	held bool          // the body still waits for goOn
	done chan struct{}

	mu     sync.Mutex
	begun  bool  // the answer's head is there: its time is not measured any more
	asked  bool  // goOn is closed
	broke  error // of the body, not of the connection
	failed error
}

func newSending(x *turn) *sending {
	s := &sending{x: x, src: x.r.Body, done: make(chan struct{})}
	if strings.EqualFold(x.r.Header.Get("Expect"), "100-continue") {
		s.goOn, s.held = make(chan struct{}), true
	}
	out := *x.r
	out.Body = s
	s.r = &out
	return s
}

func (s *sending) run() {
	defer close(s.done)
	err := s.x.c.put(s.r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	var line net.Error
	if err != nil && s.broke == nil && !s.begun && !errors.As(err, &line) {
		s.broke = err // the body is not as long as was said: nobody answers half a request
	}
	switch {
	case s.broke != nil:
		// What was sent is not the request that was asked for: the server must not
		// take it for one.
		_ = s.x.c.k.Close()
	case !s.begun:
		// A server that takes no more may have answered already.
		s.x.course.answerWithin(s.x.c.wait)
	}
}

// Read reads the body for the connection.
func (s *sending) Read(p []byte) (int, error) {
	if s.held {
		s.held = false
		late := time.NewTimer(continueAfter)
		select {
		case <-s.goOn:
		case <-late.C:
		case <-s.r.Context().Done():
		}
		late.Stop()
		s.mu.Lock()
		begun := s.begun
		s.mu.Unlock()
		if begun {
			return 0, errRefused // the answer is there: nobody wants the body
		}
	}
	n, err := s.src.Read(p)
	if err != nil && err != io.EOF {
		s.mu.Lock()
		s.broke = err
		s.mu.Unlock()
	}
	return n, err
}

var errRefused = errors.New("the body was not asked for")

// Close is for net/http; the body is its owner's.
func (s *sending) Close() error { return s.src.Close() }

// proceed lets a body go that waits for a 100.
func (s *sending) proceed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake()
}

func (s *sending) wake() {
	if s.goOn != nil && !s.asked {
		s.asked = true
		close(s.goOn)
	}
}

// answered is told that the answer's head is there, or will never be.
func (s *sending) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	s.wake()
}

// broken is the reason for which the body could not be read.
func (s *sending) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broke
}

// over reports whether the request went out whole.
func (s *sending) over() bool {
	select {
	case <-s.done:
	default:
		t := time.NewTimer(sentWithin)
		defer t.Stop()
		select {
		case <-s.done:
		case <-t.C:
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed == nil
}
