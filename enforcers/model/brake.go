package model

import (
	"crypto/sha256"
	"sync"
	"time"
)

// A client that calls in a loop spends its budget on nothing. Two brakes are
// there besides the budget: a bound on calls in a minute, and an end for the
// request that was paid for again and again and never answered.

// rate bounds what begins within any minute.
type rate struct {
	most int // 0 = no bound

	mu    sync.Mutex
	began []time.Time // within the last minute, oldest first; at most as many as may be
}

// begin counts a call. It returns how long to wait when there were too many; a
// call that has to wait does not count.
func (r *rate) begin(now time.Time) (wait time.Duration) {
	if r.most == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := 0
	for old < len(r.began) && now.Sub(r.began[old]) >= time.Minute {
		old++
	}
	r.began = r.began[old:]
	if len(r.began) >= r.most {
		return time.Minute - now.Sub(r.began[0])
	}
	r.began = append(r.began, now)
	return 0
}

// Bounds of the brake on repetition.
const (
	maxStrikes   = 3                // paid attempts without an answer
	strikeWindow = 10 * time.Minute // after which they are forgotten
	maxStruck    = 256              // requests that are remembered
)

// fingerprint tells one request from another: its path and its body as they
// came.
type fingerprint [32]byte

func fingerprintOf(path string, body []byte) fingerprint {
	h := sha256.New()
	h.Write([]byte(path))
	h.Write([]byte{0})
	h.Write(body)
	return fingerprint(h.Sum(nil))
}

// strike is how often a request was paid for in full and not answered.
type strike struct {
	n  int
	at time.Time // of the last one
}

// struck reports whether a request has had its attempts.
func (m *Mediator) struck(f fingerprint, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.strikes[f]
	if ok && now.Sub(s.at) >= strikeWindow {
		delete(m.strikes, f)
		return false
	}
	return s.n >= maxStrikes
}

// strike notes how an attempt of a request ended.
func (m *Mediator) strike(f fingerprint, answered bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if answered {
		delete(m.strikes, f)
		return
	}
	s := m.strikes[f]
	if now.Sub(s.at) >= strikeWindow {
		s.n = 0
	}
	m.strikes[f] = strike{s.n + 1, now}
	for len(m.strikes) > maxStruck {
		oldest, at := f, now
		for k, s := range m.strikes {
			if s.at.Before(at) {
				oldest, at = k, s.at
			}
		}
		delete(m.strikes, oldest)
	}
}
