package model

import "bytes"

// maxEvent bounds the data of one server-sent event that is read for usage. A
// longer one still passes; what it says of usage is lost.
const maxEvent = 8 << 20

// events splits a stream into events as its bytes come by, whatever the line
// ends and wherever reads cut them.
type events struct {
	each func(data []byte)

	line, data []byte
	over       bool // the event or line is too long to be read
	skip       bool // the last byte was a CR: a LF behind it is no second line end
	some       bool // the event has data
}

func (s *events) feed(b []byte) {
	for len(b) > 0 {
		if s.skip {
			s.skip = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		i := bytes.IndexAny(b, "\r\n")
		if i < 0 {
			s.keep(b)
			return
		}
		s.keep(b[:i])
		s.skip = b[i] == '\r'
		b = b[i+1:]
		s.end()
	}
}

func (s *events) keep(b []byte) {
	if len(s.line)+len(b) > maxEvent {
		s.over = true
		return
	}
	s.line = append(s.line, b...)
}

// end takes one complete line.
func (s *events) end() {
	line := s.line
	s.line = s.line[:0]
	if len(line) == 0 && !s.over {
		if s.some {
			s.each(s.data)
		}
		s.data, s.some = s.data[:0], false
		return
	}
	if len(line) == 0 { // the end of an event that was too long
		s.data, s.some, s.over = s.data[:0], false, false
		return
	}
	value, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok || s.over {
		return
	}
	value = bytes.TrimPrefix(value, []byte(" "))
	if len(s.data)+len(value) > maxEvent {
		s.over = true
		return
	}
	if s.some {
		s.data = append(s.data, '\n')
	}
	s.data, s.some = append(s.data, value...), true
}

// finish reads what a stream ended with, though no empty line follows it.
func (s *events) finish() {
	if len(s.line) > 0 {
		s.end()
	}
	s.end()
}

// sieve keeps back one event at a time and lets through those that keep wants.
type sieve struct {
	keep  func(data []byte) bool
	raw   []byte
	drop  bool
	split events
}

func newSieve(keep func(data []byte) bool) *sieve {
	s := &sieve{keep: keep}
	s.split.each = func(data []byte) { s.drop = !keep(data) }
	return s
}

// feed returns what may go on now.
func (s *sieve) feed(b []byte) []byte {
	var out []byte
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		n := len(b)
		if i >= 0 {
			n = i + 1
		}
		s.raw = append(s.raw, b[:n]...)
		s.split.feed(b[:n])
		b = b[n:]
		ended := i >= 0 && (bytes.HasSuffix(s.raw, []byte("\n\n")) || bytes.HasSuffix(s.raw, []byte("\n\r\n")))
		if !ended && len(s.raw) <= maxEvent {
			continue
		}
		if !s.drop {
			out = append(out, s.raw...)
		}
		s.raw, s.drop = s.raw[:0], false
	}
	return out
}

// rest returns what the stream ended with.
func (s *sieve) rest() []byte {
	s.split.finish()
	if s.drop {
		return nil
	}
	return s.raw
}
