package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// A pkt-line is four hexadecimal digits that count themselves and what follows.
// 0000 to 0002 stand for themselves: gitprotocol-common(5), gitprotocol-v2(5).
const (
	pktFlush    = 0
	pktDelim    = 1
	pktResponse = 2
	pktMax      = 65520 // with its four digits
)

var errPkt = errors.New("malformed pkt-line")

// packet is one pkt-line: its payload, or one of the special ones.
type packet struct {
	special int // pktFlush, pktDelim or pktResponse when data is nil
	data    []byte
}

func (p packet) flush() bool { return p.data == nil && p.special == pktFlush }

// text returns the payload without its newline.
func (p packet) text() string { return string(bytes.TrimSuffix(p.data, []byte("\n"))) }

// packets reads pkt-lines. left bounds how many bytes of them are read in all.
type packets struct {
	r    io.Reader
	left int64
}

// next returns the next pkt-line, and io.EOF at an end between two of them.
func (p *packets) next() (packet, error) {
	var head [4]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return packet{}, errPkt
		}
		return packet{}, err
	}
	n := 0
	for _, c := range head {
		d, ok := hexDigit(c)
		if !ok {
			return packet{}, errPkt
		}
		n = n<<4 | d
	}
	if p.left -= int64(max(n, len(head))); p.left < 0 {
		return packet{}, fmt.Errorf("%w: more of them than are read", errPkt)
	}
	switch {
	case n <= pktResponse:
		return packet{special: n}, nil
	case n < len(head) || n > pktMax:
		return packet{}, errPkt
	}
	data := make([]byte, n-len(head))
	if _, err := io.ReadFull(p.r, data); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return packet{}, errPkt
		}
		return packet{}, err
	}
	return packet{data: data}, nil
}

// hexDigit takes both cases: git writes lower, and reads both.
func hexDigit(c byte) (int, bool) {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0'), true
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10, true
	}
	return 0, false
}

// appendPkt appends one pkt-line. A payload is never longer than fits.
func appendPkt(b []byte, payload string) []byte {
	return append(fmt.Appendf(b, "%04x", len(payload)+4), payload...)
}

func appendFlush(b []byte) []byte { return append(b, "0000"...) }

// appendBand appends data on a side band, in as many pkt-lines as it needs.
func appendBand(b []byte, band byte, data []byte) []byte {
	for len(data) > 0 {
		n := min(len(data), 65515)
		b = append(fmt.Appendf(b, "%04x", n+5), band)
		b = append(b, data[:n]...)
		data = data[n:]
	}
	return b
}
