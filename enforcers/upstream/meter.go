package upstream

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"gatehouse/enforcers"
)

// A progress receipt is due after this much traffic or time: DESIGN.md
// section 8.
const (
	progressBytes = 1 << 20
	progressEvery = 10 * time.Second
)

// meter counts one exchange, holds it to its limits and reports its progress.
// It counts what HTTP carries: heads and bodies, not framing or TLS records.
type meter struct {
	permit   *enforcers.Permit
	declared bool // the body's length was counted against the Permit before its first byte
	limits   enforcers.Limits
	ctx      context.Context
	began    time.Time
	moved    atomic.Int64 // when something last did, counted from began
	idle     *time.Timer  // looks whether that is too long ago; nil under a course

	mu               sync.Mutex
	up, down         uint64 // bodies: what the limits are about
	headUp, headDown uint64
	status           int
	address          string
	reported         uint64 // up+down at the last progress receipt
	at               time.Time
}

// watch has ended called once nothing has moved for the idle limit. What moves
// only notes when: to set a timer at each read cost more than to count.
func (m *meter) watch(ended func()) {
	m.began = time.Now()
	m.idle = time.AfterFunc(time.Hour, func() {
		if left := m.left(time.Now()); left > 0 {
			m.idle.Reset(left)
			return
		}
		ended()
	})
	m.idle.Reset(m.limits.Idle) // not before the callback can see m.idle
}

// left is how much of the idle limit is left if nothing moves.
func (m *meter) left(now time.Time) time.Duration {
	return m.limits.Idle - (now.Sub(m.began) - time.Duration(m.moved.Load()))
}

// pin notes the address the exchange uses.
func (m *meter) pin(a string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.address = a
}

// head notes what is known once a head has passed.
func (m *meter) head(status int, up, down uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status = status
	if up > 0 {
		m.headUp = up
	}
	m.headDown = down
}

// add counts bytes that were moved and reports whether more may move. In hard
// mode it returns after the progress receipt is durable, so that the next
// window waits for it.
func (m *meter) add(up, down int) error {
	now := time.Now()
	m.moved.Store(int64(now.Sub(m.began)))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.up += uint64(up)
	m.down += uint64(down)
	switch {
	case m.up > uint64(m.limits.Up):
		return fail(enforcers.CodeUpCap, "more bytes sent than the rule allows", nil) // EG-93
	case m.down > uint64(m.limits.Down):
		return fail(enforcers.CodeDownCap, "more bytes received than the rule allows", nil)
	}
	if m.permit == nil {
		return nil
	}
	if !m.declared && !m.permit.Sent(int64(up)) {
		return unlisted()
	}
	if m.up+m.down-m.reported < progressBytes && now.Sub(m.at) < progressEvery {
		return nil
	}
	o := m.outcome(enforcers.Forwarded, "")
	if err := m.permit.Progress(m.ctx, o); err != nil {
		return fail(enforcers.CodeReceiptUnavailable, "the progress receipt could not be written", err)
	}
	m.reported, m.at = m.up+m.down, time.Now()
	return nil
}

// freeHead is the size of an ordinary head; what is longer carries something.
const freeHead = 1 << 10

// unlisted refuses what a would-block would send beyond its session's share.
func unlisted() error {
	return fail(enforcers.CodeUpCap, "the session has sent as much to this host as it may to one that no rule lists", nil) // EG-93
}

// outcome must be called with mu held.
func (m *meter) outcome(effect, code string) enforcers.Outcome {
	return enforcers.Outcome{
		Effect: effect, Code: code, Address: m.address, Status: m.status,
		Up: m.up + m.headUp, Down: m.down + m.headDown,
	}
}

// upload is a request body on its way out.
type upload struct {
	io.ReadCloser
	m *meter
}

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.ReadCloser.Read(b)
	if n > 0 {
		if limit := u.m.add(n, 0); limit != nil {
			return 0, limit
		}
	}
	return n, err
}
