package ingest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"gatehouse/internal/problem"
)

// Times of a body: reference section 5.6.
const (
	bodyTimeout = 5 * time.Second        // first to last byte
	bodyPause   = 2 * time.Second        // longest pause between two bytes
	stalled     = 250 * time.Millisecond // no progress for so long: may be cut for another
	patience    = time.Second            // how long a body waits for memory
	progress    = 4 << 10                // bytes that count as progress
	firstBuffer = 32 << 10
)

// Bytes that failed verification count against an endpoint: past debtLimit its
// bodies use its own reserve only, so that strangers at one address cannot take
// what the others share. The debt is forgotten at debtDecay bytes a second.
const (
	debtLimit = 32 << 20
	debtDecay = 1 << 20
)

// memory is the account of body bytes in memory. Each endpoint has a reserve of
// its own and may use what is shared; bytes are charged before they are read,
// and a body that makes no progress is cut when another needs the room. IN-07.
type memory struct {
	now func() time.Time

	mu     sync.Mutex
	shared int64 // free
	holds  map[*hold]struct{}
	queue  map[*hold]int64 // waiting -> what it would hold then
	freed  chan struct{}   // closed and replaced when something is given back
}

// pool is the reserve of one endpoint. memory.mu guards it.
type pool struct {
	reserve int64 // free
	debt    int64 // unverified bytes
	since   time.Time
}

func newMemory(shared int64, now func() time.Time) *memory {
	return &memory{now: now, shared: shared, holds: map[*hold]struct{}{}, queue: map[*hold]int64{}, freed: make(chan struct{})}
}

// hold is what one body has been charged.
type hold struct {
	m   *memory
	p   *pool
	cut func() // unblocks the reader of this body

	own, common int64     // charged to the reserve, to the shared part
	marked      int64     // bytes read at the last progress
	last        time.Time // when that was
	whole       bool      // read to its end: not to be cut
	gone        bool      // was cut
}

func (m *memory) open(p *pool, cut func()) *hold {
	h := &hold{m: m, p: p, cut: cut, last: m.now()}
	m.mu.Lock()
	m.holds[h] = struct{}{}
	m.mu.Unlock()
	return h
}

// charge takes n more bytes, waiting a moment for others to finish.
func (h *hold) charge(ctx context.Context, n int64) error {
	freed, err := h.try(n)
	if freed == nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	defer h.leave()
	for freed != nil {
		select {
		case <-freed:
		case <-timer.C:
			return errBusy
		case <-ctx.Done():
			return errBusy
		}
		freed, err = h.try(n)
	}
	return err
}

// try charges n bytes, or cuts a body that has stalled and returns what to wait
// for.
func (h *hold) try(n int64) (freed <-chan struct{}, err error) {
	m := h.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.gone {
		return nil, errBusy
	}
	own := min(n, h.p.reserve)
	rest := n - own
	if m.turn(h, h.own+h.common+n) && (rest == 0 || rest <= m.shared && !h.p.indebted(m.now())) {
		h.p.reserve -= own
		m.shared -= rest
		h.own += own
		h.common += rest
		h.last = m.now() // waiting was not its fault
		return nil, nil
	}
	m.queue[h] = h.own + h.common + n
	if v := m.victim(h); v != nil {
		v.gone = true
		v.cut()
		m.wake() // it may be waiting for memory itself
	}
	return m.freed, nil
}

// turn reports whether no smaller body is waiting: what is freed goes to the
// smallest first.
func (m *memory) turn(h *hold, size int64) bool {
	for w, other := range m.queue {
		if w != h && other < size && !w.gone {
			return false
		}
	}
	return true
}

// leave ends the waiting of h, and lets the others see that.
func (h *hold) leave() {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if _, ok := h.m.queue[h]; ok {
		delete(h.m.queue, h)
		h.m.wake()
	}
}

// victim is the largest body without progress that holds more than h and whose
// end would help h. So small deliveries get through a crowd of large ones.
func (m *memory) victim(h *hold) *hold {
	worst := h
	for v := range m.holds {
		if v.whole || v.gone || m.now().Sub(v.last) < stalled || v.p != h.p && v.common == 0 {
			continue
		}
		if v.own+v.common > worst.own+worst.common {
			worst = v
		}
	}
	if worst == h {
		return nil
	}
	return worst
}

func (m *memory) wake() {
	close(m.freed)
	m.freed = make(chan struct{})
}

func (p *pool) indebted(now time.Time) bool {
	if passed := now.Sub(p.since); passed > 0 {
		p.debt = max(0, p.debt-int64(passed.Seconds()*debtDecay))
		p.since = now
	}
	return p.debt > debtLimit
}

// unverified notes that n bytes were read for nothing.
func (m *memory) unverified(p *pool, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.indebted(m.now())
	p.debt = min(p.debt+int64(n), 2*debtLimit)
}

// give returns n bytes, the shared part first.
func (h *hold) give(n int64) {
	m := h.m
	m.mu.Lock()
	defer m.mu.Unlock()
	common := min(n, h.common)
	h.common -= common
	h.own -= n - common
	m.shared += common
	h.p.reserve += n - common
	m.wake()
}

func (h *hold) read(total int64, whole bool) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	h.whole = whole
	if total-h.marked >= progress {
		h.marked, h.last = total, h.m.now()
	}
}

func (h *hold) wasCut() bool {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	return h.gone
}

// arm sets a deadline of this body, unless it was cut: a cut is a deadline too.
func (h *hold) arm(set func() error) error {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if h.gone {
		return nil
	}
	return set()
}

// close gives everything back.
func (h *hold) close() {
	h.give(h.own + h.common)
	h.m.mu.Lock()
	delete(h.m.holds, h)
	h.m.mu.Unlock()
}

// reader reads the body of one request under the limits.
type reader struct {
	r     *http.Request
	rc    *http.ResponseController
	limit int64
	until time.Time
	hold  *hold // nil when nothing is kept
}

var (
	errTooLarge = problem.New(problem.BodyTooLarge, "body is larger than the endpoint takes", "")
	errSlow     = problem.New(problem.BodySlow, "body arrived too slowly", "")
	errBusy     = problem.New(problem.Busy, "no memory for the body", "")
	errShort    = problem.New(problem.BodyShort, "connection ended inside the body", "")
)

// check refuses a declared length over the limit before a byte is read (IN-07).
func (b *reader) check() error {
	if b.r.ContentLength > b.limit {
		return errTooLarge
	}
	return nil
}

// next reads into p under the time limits. io.EOF means that the body is whole.
func (b *reader) next(p []byte) (int, error) {
	pause := time.Now().Add(bodyPause)
	if pause.After(b.until) {
		pause = b.until
	}
	if err := b.deadline(pause); err != nil {
		return 0, errShort
	}
	n, err := b.r.Body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF: //nolint:errorlint // io.Reader's contract is the bare value
		// The server watches the connection from here on: a deadline left behind
		// would end the request while it waits for the disk.
		if b.deadline(time.Time{}) != nil {
			return n, errShort
		}
		return n, io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errSlow
	}
	return n, errShort
}

func (b *reader) deadline(t time.Time) error {
	set := func() error { return b.rc.SetReadDeadline(t) }
	if b.hold == nil {
		return set()
	}
	return b.hold.arm(set)
}

// all reads the body into memory charged to the hold.
func (b *reader) all(ctx context.Context) ([]byte, error) {
	h := b.hold
	if err := b.check(); err != nil {
		return nil, err
	}
	buf := []byte{}
	for {
		if len(buf) == cap(buf) {
			grown, err := b.grow(ctx, buf)
			if err != nil {
				return nil, err
			}
			buf = grown
		}
		n, err := b.next(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		h.read(int64(len(buf)), err == io.EOF) //nolint:errorlint // see next
		switch {
		case err == io.EOF: //nolint:errorlint // see next
			if int64(len(buf)) > b.limit {
				return nil, errTooLarge
			}
			return buf, nil
		case err != nil && h.wasCut():
			return nil, errBusy
		case err != nil:
			return nil, err
		case int64(len(buf)) > b.limit:
			return nil, errTooLarge
		}
	}
}

// grow doubles the buffer, up to the declared length or one byte beyond the
// limit. The old buffer stays charged while it is copied.
func (b *reader) grow(ctx context.Context, buf []byte) ([]byte, error) {
	old := int64(cap(buf))
	size := max(2*old, firstBuffer)
	if declared := b.r.ContentLength; declared >= 0 && (size >= declared || 2*size > declared && old > 0) {
		size = declared + 1 // one more, so that the end is seen without growing
	}
	size = min(size, b.limit+1)
	if size <= old {
		size = old + 1
	}
	if err := b.hold.charge(ctx, size); err != nil {
		return nil, err
	}
	grown := make([]byte, len(buf), size)
	copy(grown, buf)
	if old > 0 {
		b.hold.give(old)
	}
	return grown, nil
}

// pass reads the body through the MAC of a key nobody has, and keeps nothing:
// the work of an unknown endpoint (IN-08).
func (b *reader) pass(mac hash.Hash) error {
	if err := b.check(); err != nil {
		return err
	}
	buf := buffers.Get().(*[firstBuffer]byte)
	defer buffers.Put(buf)
	for total := int64(0); ; {
		n, err := b.next(buf[:])
		mac.Write(buf[:n])
		total += int64(n)
		switch {
		case total > b.limit:
			return errTooLarge
		case err == io.EOF: //nolint:errorlint // see next
			mac.Sum(nil)
			return nil
		case err != nil:
			return err
		}
	}
}

var buffers = sync.Pool{New: func() any { return new([firstBuffer]byte) }}

func dummyMAC(key []byte) hash.Hash { return hmac.New(sha256.New, key) }
