package upstream

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/enforcers"
)

// noted is a connection that notes when it was closed.
type noted struct {
	net.Conn
	closed time.Time
}

func (n *noted) Close() error {
	n.closed = time.Now()
	return nil
}

// TestCourse: what ends an exchange, and when its connection ends with it.
func TestCourse(t *testing.T) {
	revoked, left := errors.New("revoked"), errors.New("left")
	type ends struct{ caller, life context.CancelCauseFunc }
	for name, tc := range map[string]struct {
		idle    time.Duration // 0 = no limit
		waited  bool          // somebody asks for Done before it ends
		other   bool          // the connection was opened under another life
		do      func(c *course, e ends)
		cause   error
		closed  time.Duration // since the beginning
		unmoved bool          // the connection is not closed by the course
	}{
		"EG-70_other_life":    {other: true, do: func(_ *course, e ends) { e.life(revoked) }, cause: revoked},
		"EG-70_same_life":     {do: func(_ *course, e ends) { e.life(revoked) }, cause: revoked, unmoved: true}, // it closes by itself
		"EG-70_waited":        {waited: true, do: func(_ *course, e ends) { e.life(revoked) }, cause: revoked},
		"caller_early":        {do: func(_ *course, e ends) { e.caller(left) }, cause: left, closed: watchAfter},
		"caller_early_waited": {waited: true, do: func(_ *course, e ends) { e.caller(left) }, cause: left, closed: watchAfter},
		"caller_later": {do: func(_ *course, e ends) {
			time.Sleep(time.Second)
			e.caller(left)
		}, cause: left, closed: time.Second},
		"idle":       {idle: 10 * time.Second, do: func(*course, ends) {}, cause: errIdle, closed: 10 * time.Second},
		"short_idle": {idle: 10 * time.Millisecond, do: func(*course, ends) {}, cause: errIdle, closed: 10 * time.Millisecond},
		"moved": {idle: 10 * time.Second, do: func(c *course, _ ends) {
			time.Sleep(9 * time.Second)
			_ = c.m.add(0, 1)
		}, cause: errIdle, closed: 19 * time.Second},
		"late":       {do: func(c *course, _ ends) { c.answerWithin(time.Minute) }, cause: errLate, closed: time.Minute},
		"soon_late":  {do: func(c *course, _ ends) { c.answerWithin(time.Millisecond) }, cause: errLate, closed: time.Millisecond},
		"idle_first": {idle: 10 * time.Second, do: func(c *course, _ ends) { c.answerWithin(time.Minute) }, cause: errIdle, closed: 10 * time.Second},
		"late_first": {idle: time.Hour, do: func(c *course, _ ends) {
			time.Sleep(time.Second)
			c.answerWithin(time.Minute)
		}, cause: errLate, closed: 61 * time.Second},
		"answered": {idle: time.Hour, do: func(c *course, _ ends) {
			c.answerWithin(time.Minute)
			c.answered()
		}, cause: errIdle, closed: time.Hour},
		"given_back": {do: func(c *course, e ends) {
			if !c.unuse() {
				t.Error("nobody cut it")
			}
			e.caller(left)
			time.Sleep(time.Second)
			if c.unuse() {
				t.Error("it was cut")
			}
		}, cause: left, unmoved: true},
		"over": {waited: true, do: func(c *course, e ends) {
			c.unuse()
			c.stop()
			e.life(revoked)
		}, cause: context.Canceled, unmoved: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, endCaller := context.WithCancelCause(context.Background())
				life, endLife := context.WithCancelCause(context.Background())
				defer endCaller(nil)
				defer endLife(nil)
				n, began := &noted{}, time.Now()
				k := &conn{Conn: n, life: life, stop: func() bool { return true }}
				if tc.other {
					k.life = context.Background()
				}
				c := &course{}
				defer c.stop()
				var m *meter
				if tc.idle > 0 {
					m = &meter{limits: enforcers.Limits{Idle: tc.idle}.Or(), began: began, at: began}
				}
				c.start(caller, life, m)
				if err := c.use(k); err != nil || c.Err() != nil || c.why() != nil {
					t.Fatal(err)
				}
				if tc.waited {
					c.Done()
				}
				tc.do(c, ends{endCaller, endLife})
				if tc.cause == errIdle || tc.cause == errLate {
					<-c.Done()
				}
				time.Sleep(2 * watchAfter)
				synctest.Wait()
				if c.why() != tc.cause || c.Err() == nil || c.use(k) == nil { //nolint:errorlint // as it was given
					t.Errorf("ended by %v, %v", c.why(), c.Err())
				}
				if tc.unmoved != n.closed.IsZero() || !tc.unmoved && n.closed.Sub(began) != tc.closed {
					t.Errorf("closed after %s", n.closed.Sub(began))
				}
			})
		})
	}
}

// TestCourseIsAContext: what is derived from a course ends with it and knows why.
func TestCourseIsAContext(t *testing.T) {
	cause := errors.New("cause")
	for name, end := range map[string]func(c *course, caller, life context.CancelCauseFunc){
		"caller": func(_ *course, caller, _ context.CancelCauseFunc) { caller(cause) },
		"life":   func(_ *course, _, life context.CancelCauseFunc) { life(cause) },
		"itself": func(c *course, _, _ context.CancelCauseFunc) { c.cut(cause) },
	} {
		for _, before := range []bool{false, true} {
			t.Run(name+map[bool]string{true: "_before"}[before], func(t *testing.T) {
				type key struct{}
				caller, endCaller := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
				life, endLife := context.WithCancelCause(t.Context())
				defer endCaller(nil)
				defer endLife(nil)
				c := &course{}
				c.start(caller, life, nil)
				defer c.stop()
				if before {
					end(c, endCaller, endLife)
					if !errors.Is(context.Cause(c), cause) {
						t.Errorf("%v", context.Cause(c))
					}
				}
				derived, cancel := context.WithCancel(c)
				defer cancel()
				if !before {
					if c.Err() != nil || derived.Err() != nil {
						t.Fatal("it has ended")
					}
					end(c, endCaller, endLife)
				}
				<-derived.Done()
				<-c.Done()
				if !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(derived), cause) || !errors.Is(context.Cause(c), cause) || derived.Value(key{}) != 1 {
					t.Errorf("%v, %v, %v", c.Err(), context.Cause(derived), context.Cause(c))
				}
			})
		}
	}
}
