package upstream

import (
	"context"
	"sync"
	"time"
)

// watchAfter is how long an exchange runs before it registers with its caller's
// context. Most are over by then, and to register costs as much as to write the
// request. A caller who leaves earlier is seen then.
const watchAfter = 100 * time.Millisecond

// course is the context of one exchange. It ends with its caller's, with the
// permission's life, and when the upstream takes too long, and the connection
// that the exchange uses ends with it.
//
// Hardly any exchange is cut, so one timer looks at what may have ended it, and
// the context proper is made for those who wait for its end. A connection that
// was opened under the same life is closed by it without our doing.
type course struct {
	caller, life context.Context
	m            *meter // says when the exchange is idle; nil = never

	mu    sync.Mutex
	timer *time.Timer
	due   time.Time   // when the timer looks next, zero = never
	late  time.Time   // by when the answer's head must be there, zero = it need not
	conn  *conn       // in use
	cause error       // why it ended, once it has by itself
	leave func() bool // stops waiting for caller, nil before that

	proper context.Context // nil until somebody asks for Done
	cancel context.CancelCauseFunc
	unbind func() bool // stops waiting for life
}

func (c *course) start(caller, life context.Context, m *meter) {
	first := watchAfter
	if m != nil {
		first = min(first, m.limits.Idle)
	}
	c.caller, c.life, c.m = caller, life, m
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = time.Now().Add(first)
	c.timer = time.AfterFunc(first, c.look)
}

// look is called by the timer.
func (c *course) look() {
	if cause := c.overdue(); cause != nil {
		c.cut(cause)
	}
}

// overdue waits for the caller from now on, and sets the timer for what is due
// next, unless that is the end.
func (c *course) overdue() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return nil
	}
	if c.leave == nil {
		c.leave = context.AfterFunc(c.caller, func() { c.cut(context.Cause(c.caller)) })
	}
	now := time.Now()
	c.due = c.late
	if !c.late.IsZero() && !c.late.After(now) {
		return errLate
	}
	if c.m != nil {
		left := c.m.left(now)
		if left <= 0 {
			return errIdle
		}
		if idle := now.Add(left); c.due.IsZero() || idle.Before(c.due) {
			c.due = idle
		}
	}
	if !c.due.IsZero() {
		c.timer.Reset(c.due.Sub(now))
	}
	return nil
}

// answerWithin ends the exchange if the answer's head is not there in time.
func (c *course) answerWithin(d time.Duration) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = now.Add(d)
	if c.cause == nil && (c.due.IsZero() || c.late.Before(c.due)) {
		c.due = c.late
		c.timer.Reset(d)
	}
}

// answered says that the answer's head is there.
func (c *course) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = time.Time{}
}

// use has k closed when the exchange ends. It fails when it has ended.
func (c *course) use(k *conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.ended(); why != nil {
		return why
	}
	c.conn = k
	if k.life != c.life && c.life.Done() != nil {
		c.make()
	}
	return nil
}

// unuse ends that and reports whether k was left alone until now.
func (c *course) unuse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = nil
	return c.cause == nil
}

// cut ends the exchange. The first cause counts.
func (c *course) cut(cause error) {
	c.mu.Lock()
	if c.cause != nil {
		c.mu.Unlock()
		return
	}
	c.cause = cause
	c.timer.Stop()
	k := c.conn
	leave, unbind, cancel := c.leave, c.unbind, c.cancel
	c.mu.Unlock()
	if leave != nil {
		leave()
	}
	if unbind != nil {
		unbind()
	}
	if cancel != nil {
		cancel(cause)
	}
	if k != nil {
		_ = k.Close()
	}
}

// stop ends a course that has come to its end.
func (c *course) stop() { c.cut(context.Canceled) }

// ended says why the exchange ended; nil while it runs. It must be called with mu
// held.
func (c *course) ended() error {
	switch {
	case c.cause != nil:
		return c.cause
	case c.caller.Err() != nil:
		return context.Cause(c.caller)
	case c.life.Err() != nil:
		return context.Cause(c.life)
	}
	return nil
}

// why is ended for who does not hold mu.
func (c *course) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended()
}

// Deadline is the caller's.
func (c *course) Deadline() (time.Time, bool) { return c.caller.Deadline() }

// Done makes the context proper.
func (c *course) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.make()
	return c.proper.Done()
}

// make makes the context proper, which ends with life too. It must be called with
// mu held.
func (c *course) make() {
	if c.proper != nil {
		return
	}
	c.proper, c.cancel = context.WithCancelCause(c.caller)
	if why := c.ended(); why != nil {
		c.cancel(why)
		return
	}
	c.unbind = context.AfterFunc(c.life, func() { c.cut(context.Cause(c.life)) })
}

// Err is not nil once the exchange has ended.
func (c *course) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proper == nil && c.ended() == nil {
		return nil
	}
	c.make() // knows the cause
	return c.proper.Err()
}

// Value is the caller's; package context finds what it makes of this one in the
// context proper.
func (c *course) Value(key any) any {
	c.mu.Lock()
	of := c.caller
	if c.proper != nil {
		of = c.proper
	}
	c.mu.Unlock()
	return of.Value(key)
}
