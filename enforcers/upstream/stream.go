package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
)

// Dial opens a blind connection to where p leads: whatever passes is counted
// and capped but not read, and no credential is ever added. It uses p up; the
// outcome is written when the connection is closed. The connection's
// CloseWrite ends one direction.
func (c *Client) Dial(ctx context.Context, p *enforcers.Permit) (net.Conn, error) {
	if err := p.Use(); err != nil {
		p.Void(string(problem.CodeOf(err)))
		return nil, err
	}
	l := leaveOf(p)
	l.to = l.to.WithScheme(authority.TCP)
	k, err := c.open(ctx, l)
	if err != nil {
		err = classify(err, p.Context(), context.Cause(ctx))
		code := string(problem.CodeOf(err))
		o := enforcers.Outcome{Effect: enforcers.NotForwarded, Code: code}
		if code == enforcers.CodeAddressNotPublic {
			o.Address = code
		}
		p.Done(o)
		return nil, err
	}
	m := &meter{permit: p, limits: p.Grant().Limits.Or(), ctx: p.Context(), at: time.Now()}
	m.pin(k.at)
	s := &Stream{conn: k, m: m}
	m.watch(func() { s.end(enforcers.CodeTimeout) })
	return s, nil
}

// Stream is a blind connection under a Permit.
type Stream struct {
	*conn
	m    *meter
	once sync.Once
}

// Read reads from the upstream.
func (s *Stream) Read(b []byte) (int, error) {
	n, err := s.conn.Read(b)
	return n, s.moved(0, n, err)
}

// Write sends to the upstream.
func (s *Stream) Write(b []byte) (int, error) {
	if err := s.moved(len(b), 0, nil); err != nil {
		return 0, err
	}
	n, err := s.conn.Write(b)
	return n, s.moved(0, 0, err)
}

// Readable waits until something can be read from c, or until nothing ever
// will, without a buffer to read it into. A connection that cannot tell is
// readable.
func Readable(c net.Conn) error {
	if s, ok := c.(*Stream); ok {
		c = s.conn.Conn
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
}

func (s *Stream) moved(up, down int, err error) error {
	if up+down > 0 {
		if limit := s.m.add(up, down); limit != nil {
			s.end(string(problem.CodeOf(limit)))
			return limit
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && s.m.permit.Context().Err() != nil {
		s.end("")
	}
	return err
}

// CloseWrite ends the upward direction.
func (s *Stream) CloseWrite() error {
	if tcp, ok := s.conn.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close ends the connection and writes the outcome.
func (s *Stream) Close() error {
	s.end("")
	return nil
}

func (s *Stream) end(code string) {
	s.once.Do(func() {
		s.m.idle.Stop()
		_ = s.conn.Close()
		if life := s.m.permit.Context(); life.Err() != nil {
			code = string(problem.CodeOf(context.Cause(life)))
		}
		s.m.mu.Lock()
		o := s.m.outcome(enforcers.Forwarded, code)
		s.m.mu.Unlock()
		s.m.permit.Done(o)
	})
}
