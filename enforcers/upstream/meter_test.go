package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/enforcers"
)

// TestIdle: an exchange ends as long after its last byte as the limit says, not
// after its first, and not later.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		m := &meter{limits: enforcers.Limits{Idle: 10 * time.Second}.Or(), at: time.Now()}
		m.watch(func() { ended <- time.Now() })
		for _, pause := range []time.Duration{9 * time.Second, 4 * time.Second, 9900 * time.Millisecond} {
			time.Sleep(pause)
			if err := m.add(0, 1); err != nil || len(ended) > 0 {
				t.Fatalf("%v, ended %t", err, len(ended) > 0)
			}
		}
		last := time.Now()
		if got := (<-ended).Sub(last); got != 10*time.Second {
			t.Errorf("ended %s after the last byte", got)
		}
	})
}
