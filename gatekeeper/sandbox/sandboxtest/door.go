//go:build linux

package sandboxtest

import (
	"bufio"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// door is a door that refuses everything and remembers what it was asked for.
type door struct {
	net.Listener
	wg   sync.WaitGroup
	mu   sync.Mutex
	seen map[string]int
}

func openDoor(dir, session string) (*door, error) {
	l, err := sandbox.ListenDoor(filepath.Join(dir, session+".sock"))
	if err != nil {
		return nil, err
	}
	d := &door{Listener: l, seen: make(map[string]int)}
	d.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.wg.Go(func() { d.refuse(c) })
		}
	})
	return d, nil
}

func (d *door) refuse(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	r := bufio.NewReader(io.LimitReader(c, 8<<10))
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "CONNECT" {
		d.mu.Lock()
		d.seen[fields[1]]++
		d.mu.Unlock()
	}
	for strings.TrimSpace(line) != "" {
		if line, err = r.ReadString('\n'); err != nil {
			return
		}
	}
	_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n")
}

// Expect has nothing to do: everything is refused.
func (d *door) Expect([]string) {}

// Saw reports whether target was asked for.
func (d *door) Saw(target string) bool { return d.times(target) > 0 }

func (d *door) times(target string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[target]
}

func (d *door) close() {
	_ = d.Listener.Close()
	d.wg.Wait()
}
