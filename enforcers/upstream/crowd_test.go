package upstream

import "testing"

// TestCrowd: one session cannot take the node's descriptors, and all of them
// together leave another one its own.
func TestCrowd(t *testing.T) {
	c := crowd{limit: func() uint64 { return 4 * 600 }}
	fill := func(session string) (n int, first func()) {
		for ; ; n++ {
			leave, ok := c.enter(session)
			if !ok {
				return n, first
			}
			if first == nil {
				first = leave
			}
		}
	}
	n, first := fill("a")
	if n != maxPerSession {
		t.Errorf("a session has %d", n)
	}
	taken := n - ownPerSession
	for _, s := range []string{"b", "c"} {
		n, _ := fill(s)
		taken += n - ownPerSession
	}
	if taken != 600 {
		t.Errorf("all sessions together have %d beyond their own", taken)
	}
	if n, _ := fill("d"); n != ownPerSession {
		t.Errorf("a late session has %d", n)
	}
	first()
	first()
	if n, _ := fill("d"); n != 1 {
		t.Errorf("a place given back is %d for another session", n)
	}
	if n, _ := fill("a"); n != 0 {
		t.Error("a place was given back twice")
	}
}

// TestCrowdOfFew: with few descriptors one session does not get half of them.
func TestCrowdOfFew(t *testing.T) {
	c := crowd{limit: func() uint64 { return 256 }}
	n := 0
	for ok := true; ok; n++ {
		_, ok = c.enter("a")
	}
	if n-1 != 32 {
		t.Errorf("one session has %d of 64", n-1)
	}
}
