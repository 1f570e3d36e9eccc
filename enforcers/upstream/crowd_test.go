package upstream

import "testing"

// TestCrowd: one session cannot take the node's descriptors.
func TestCrowd(t *testing.T) {
	c := crowd{limit: func() uint64 { return 4 * 300 }}
	var first func()
	for i := range maxPerSession {
		leave, ok := c.enter("a")
		if !ok {
			t.Fatalf("connection %d was refused", i)
		}
		if first == nil {
			first = leave
		}
	}
	if _, ok := c.enter("a"); ok {
		t.Error("a session has more than its own")
	}
	for range 300 - maxPerSession {
		if _, ok := c.enter("b"); !ok {
			t.Fatal("another session has nothing")
		}
	}
	if _, ok := c.enter("c"); ok {
		t.Error("all sessions together have more than the node gives")
	}
	first()
	first()
	if _, ok := c.enter("a"); !ok {
		t.Error("a place was not given back")
	}
	if _, ok := c.enter("c"); ok {
		t.Error("a place was given back twice")
	}
}
