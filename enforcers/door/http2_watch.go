package door

import (
	"net"
	"sync"

	"gatehouse/internal/authority"
)

// Frame types and flags of RFC 9113 that tell where a stream begins and ends.
const (
	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3
	frameGoAway  = 0x7

	flagEndStream = 0x1
	frameHead     = 9
	preface       = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
)

// watched is an HTTP/2 connection that counts its streams. net/http refuses some
// of them by itself, malformed ones, before any handler sees them, and says so to
// nobody; but every stream begins with a frame that was read here and ends with
// one that was written here, and those that ended without a handler were refused.
type watched struct {
	net.Conn
	to      authority.Authority
	refused func(n int) // called for each refusal, soon

	in, out scanner

	mu       sync.Mutex
	open     map[uint32]struct{}
	newest   uint32
	ended    int // streams
	handled  int // streams that reached the handler
	told     int // of those that ended, how many were reported as refused
	violated bool
}

func watch(c net.Conn, to authority.Authority, refused func(n int)) *watched {
	w := &watched{Conn: c, to: to, refused: refused, open: make(map[uint32]struct{})}
	w.in.skip = preface
	return w
}

// handle notes that a stream has reached the handler.
func (w *watched) handle() {
	w.mu.Lock()
	w.handled++
	w.mu.Unlock()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.in.scan(b[:n], func(f frame) {
		switch {
		case f.kind == frameHeaders && f.stream%2 == 1 && f.stream > w.newest:
			w.newest = f.stream
			w.open[f.stream] = struct{}{}
		case f.kind == frameReset:
			w.end(f.stream)
		}
	}, &w.mu)
	w.report()
	return n, err
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.out.scan(b[:n], func(f frame) {
		switch {
		case f.kind == frameReset, (f.kind == frameData || f.kind == frameHeaders) && f.flags&flagEndStream != 0:
			w.end(f.stream)
		case f.kind == frameGoAway && f.code != 0 && !w.violated:
			// The connection ends for what the client did to all of it.
			w.violated = true
			w.ended++
		}
	}, &w.mu)
	w.report()
	return n, err
}

// end must be called with mu held.
func (w *watched) end(stream uint32) {
	if _, ok := w.open[stream]; ok {
		delete(w.open, stream)
		w.ended++
	}
}

// report tells of refusals that are certain: more streams have ended than ever
// reached the handler. Those that are still handled hide as many; they come out
// when the last one ends.
func (w *watched) report() {
	w.mu.Lock()
	n := w.ended - w.handled - w.told
	w.told += max(n, 0)
	w.mu.Unlock()
	if n > 0 {
		w.refused(n)
	}
}

// frame is the head of an HTTP/2 frame. code is the error of a GOAWAY.
type frame struct {
	kind, flags byte
	stream      uint32
	code        uint32
}

// scanner finds frame heads in a stream of bytes, however it is cut.
type scanner struct {
	skip int // bytes until the next frame's head
	head []byte
	want int // 0 = a frame's head
}

// scan calls found for every frame whose head is complete, with mu held.
func (s *scanner) scan(b []byte, found func(frame), mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
	for len(b) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(b))
			s.skip, b = s.skip-n, b[n:]
			continue
		}
		if s.want == 0 {
			s.want = frameHead
		}
		n := min(s.want-len(s.head), len(b))
		s.head, b = append(s.head, b[:n]...), b[n:]
		if len(s.head) < s.want {
			return
		}
		h := s.head
		length := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		// A GOAWAY has its error after the last stream's number.
		const goAway = frameHead + 8
		if h[3] == frameGoAway && length >= 8 && len(h) < goAway {
			s.want = goAway
			continue
		}
		f := frame{kind: h[3], flags: h[4], stream: word(h[5:]) &^ (1 << 31)}
		if len(h) == goAway {
			f.code = word(h[frameHead+4:])
		}
		s.skip = length - (len(h) - frameHead)
		s.head, s.want = s.head[:0], 0
		found(f)
	}
}

func word(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
