package upstream

import (
	"context"
	"net"
	"testing"
	"time"

	"gatehouse/internal/authority"
)

// TestPoolLetsGoOfBrokenConnections: a connection may break at the moment it is
// asked for, and then tells so from inside the asking. That must not hold the
// pool, which is every session's.
func TestPoolLetsGoOfBrokenConnections(t *testing.T) {
	to, err := authority.New(authority.HTTP, "a.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	p := &pool{keep: time.Minute}
	key := poolKey{session: "s", to: to, generation: 1}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3000 {
			ours, theirs := net.Pipe()
			c := &Client{}
			k := &conn{Conn: ours, stop: func() bool { return true }}
			cc, err := c.sharedConn(context.Background(), to, k)
			if err != nil {
				t.Error(err)
				return
			}
			p.add(key, k, cc)
			cc.Release()
			go theirs.Close()
			for range 200 {
				if got := p.reuse(key); got != nil {
					got.cc.Release()
				}
			}
			cc.Close()
		}
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute): // with -race at a load of 40 it takes 40 s
		t.Fatal("the pool is stuck")
	}
	p.close()
}
