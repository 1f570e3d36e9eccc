package remote

import (
	"io"
	"net"
	"sync"
)

// halfCloser is a connection that can say "no more from me".
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// Join carries bytes between two connections until both directions are over or
// either fails, and closes both.
func Join(a, b halfCloser) {
	var wg sync.WaitGroup
	carry := func(to, from halfCloser) {
		if _, err := io.Copy(to, from); err != nil || to.CloseWrite() != nil {
			_ = a.Close()
			_ = b.Close()
		}
	}
	wg.Go(func() { carry(a, b) })
	wg.Go(func() { carry(b, a) })
	wg.Wait()
	_ = a.Close()
	_ = b.Close()
}
