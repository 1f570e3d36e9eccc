package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
)

// Reserved is the host that names the door itself. It is answered by a Route
// and never judged, resolved or dialed.
const Reserved = "gatehouse.internal"

// Bounds of one door. When one is reached the accept loop stops; nothing is
// queued inside Gatehouse.
const (
	maxConns      = 256
	maxHandshakes = 64
)

// Options configure a Door.
type Options struct {
	Up       *upstream.Client // required
	CA       *CA              // the session's, required
	Routes   []Route          // asked in order; what none takes is forwarded plainly
	Room     *Room            // shared by the node's doors; nil = this door is alone
	Timeouts Timeouts
	Clock    func() time.Time // nil = time.Now
	Log      *slog.Logger     // for faults of the door itself; nil = discarded
}

// Timeouts bound what a slow client can hold. Zero fields take the defaults.
type Timeouts struct {
	First     time.Duration // the first head on the door's socket, 0 = 2 s
	Head      time.Duration // a head, from its first byte, 0 = 10 s
	Handshake time.Duration // a tunnel's first byte and TLS handshake, 0 = 10 s
	Idle      time.Duration // between requests, 0 = 2 min
	Body      time.Duration // between two reads of a body, 0 = 30 s
	Close     time.Duration // for everything under way to end in Close, 0 = 1 s
}

func (t Timeouts) or() Timeouts {
	for _, f := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&t.First, 2 * time.Second}, {&t.Head, 10 * time.Second}, {&t.Handshake, 10 * time.Second},
		{&t.Idle, 2 * time.Minute}, {&t.Body, 30 * time.Second}, {&t.Close, time.Second},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	return t
}

// Door serves one session's listener.
type Door struct {
	o     Options
	gate  *enforcers.Gate
	names names

	placeholders placeholders
	urls         doorURLs
	met          targets
	announced    atomic.Pointer[[]string] // targets of the probe
	listener     net.Listener
	ctx          context.Context // ends with the door
	cancel       context.CancelFunc
	conns        chan struct{}
	own          chan struct{} // places of this door alone, in the Room
	leave        func()        // the Room
	handshakes   chan struct{}
	h2           *h2
	wg           sync.WaitGroup
	closing      sync.Once
}

// Open serves l for g's session until Close or ctx's end. Whoever can connect
// to l is that session; nothing a peer says changes it.
func Open(ctx context.Context, l net.Listener, g *enforcers.Gate, o Options) (*Door, error) {
	if o.Up == nil || o.CA == nil {
		return nil, errors.New("a door needs an upstream client and a CA")
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Timeouts = o.Timeouts.or()
	leave, err := o.Room.join()
	if err != nil {
		return nil, err
	}
	d := &Door{
		o: o, gate: g, listener: l, names: names{clock: o.Clock},
		conns: make(chan struct{}, maxConns), handshakes: make(chan struct{}, maxHandshakes),
		own: make(chan struct{}, ownConns), leave: leave,
	}
	d.placeholders.issue(g.Grants())
	d.ctx, d.cancel = context.WithCancel(ctx)
	context.AfterFunc(d.ctx, func() { _ = l.Close() })
	d.h2 = d.newH2()
	d.wg.Go(d.h2.run)
	d.wg.Go(d.accept)
	return d, nil
}

// Trust returns the PEM certificate that clients inside must trust.
func (d *Door) Trust() []byte { return d.o.CA.Trust() }

// Saw reports whether a peer has asked for target, "address:port" or
// "name:port", by CONNECT. Only the newest 1,024 targets are kept.
func (d *Door) Saw(target string) bool { return d.met.has(target) }

// Close ends the session's exit: the gate is revoked with code, every
// connection cut, and every Permit that is still out gets its outcome. It
// returns when no goroutine of the door is left.
func (d *Door) Close(code string) {
	d.closing.Do(func() {
		d.gate.Revoke(code)
		d.cancel()
		ctx, cancel := context.WithTimeout(context.Background(), d.o.Timeouts.Close)
		defer cancel()
		d.gate.Settle(ctx)
	})
	d.wg.Wait()
	d.leave()
}

// accept takes one connection at a time and only while there is room for it.
func (d *Door) accept() {
	for {
		select {
		case d.conns <- struct{}{}:
		case <-d.ctx.Done():
			return
		}
		leave := d.o.Room.enter(d.ctx, d.own)
		if leave == nil {
			return
		}
		c, err := d.listener.Accept()
		if err != nil {
			leave()
			<-d.conns
			if d.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			d.o.Log.WarnContext(d.ctx, "door.accept", slog.Any("error", err))
			select {
			case <-time.After(10 * time.Millisecond): // descriptors ran out: wait for some to come back
			case <-d.ctx.Done():
				return
			}
			continue
		}
		d.wg.Go(func() {
			defer func() { leave(); <-d.conns }()
			defer d.guard()
			d.serve(c)
		})
	}
}

// guard keeps a fault in one connection from ending the node. The connection
// is gone; what it had in hand is settled when the door closes.
func (d *Door) guard() {
	if v := recover(); v != nil && v != http.ErrAbortHandler {
		d.o.Log.ErrorContext(d.ctx, "door.panic", slog.String("value", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
	}
}

// targets remembers the newest CONNECT targets.
type targets struct {
	mu   sync.Mutex
	ring [1024]string
	next int
	set  map[string]int // target -> how often it stands in ring
}

func (t *targets) add(target string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.set == nil {
		t.set = make(map[string]int)
	}
	if old := t.ring[t.next]; old != "" {
		if t.set[old]--; t.set[old] == 0 {
			delete(t.set, old)
		}
	}
	t.ring[t.next] = target
	t.set[target]++
	t.next = (t.next + 1) % len(t.ring)
}

func (t *targets) has(target string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.set[target] > 0
}
