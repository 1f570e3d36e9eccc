package journal

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"gatehouse/internal/problem"
)

const (
	segmentSuffix = ".seg"
	indexEvery    = 1 << 20 // bytes between index marks
)

func segmentName(first uint64) string { return fmt.Sprintf("%016x%s", first, segmentSuffix) }

func parseSegmentName(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(hex) != 16 {
		return 0, false
	}
	first, err := strconv.ParseUint(hex, 16, 64)
	return first, err == nil && segmentName(first) == name
}

// segment is what is durable of one segment file.
type segment struct {
	path  string
	first uint64 // position of its first record
	size  int64  // bytes of whole, durable frames, header included
	index []mark // where to start reading, one mark a MiB
}

// note adds a group to the index if it is far enough from the last mark.
func (s *segment) note(pos uint64, off int64) {
	if n := len(s.index); n == 0 || off-s.index[n-1].off >= indexEvery {
		s.index = append(s.index, mark{pos, off})
	}
}

// damaged is the error for bytes that are not what was written.
func damaged(path string, pos uint64, off int64, err error) error {
	return problem.Wrap(fmt.Errorf("%s at byte %d: %w", filepath.Base(path), off, err), problem.JournalDamaged,
		fmt.Sprintf("the journal is damaged at position %d", pos),
		"Keep the files; restore the journal folder from a backup, which starts a new shard.")
}

// scanner reads frames from a segment through a window.
type scanner struct {
	f    File
	id   id
	off  int64 // next frame
	end  int64 // nothing is read at or after end
	next uint64
	link uint32
	// anyLink accepts the first frame's link: reading starts in the middle.
	anyLink bool

	win    []byte
	winOff int64
}

const window = 256 << 10

// peek returns up to n bytes at off, fewer only where the file or end stops.
// The bytes are valid until the next peek.
func (s *scanner) peek(off, n int64) ([]byte, error) {
	n = min(n, s.end-off)
	if n <= 0 {
		return nil, nil
	}
	if off < s.winOff || off+n > s.winOff+int64(len(s.win)) {
		want := min(max(n, window), s.end-off)
		if int64(cap(s.win)) < want {
			s.win = make([]byte, want)
		}
		s.win = s.win[:want]
		got, err := s.f.ReadAt(s.win, off)
		if err != nil && !errors.Is(err, io.EOF) {
			s.win = s.win[:0]
			return nil, err
		}
		s.win, s.winOff = s.win[:got], off
	}
	b := s.win[off-s.winOff:]
	return b[:min(n, int64(len(b)))], nil
}

// frame returns the frame at s.off and steps over it. It returns io.EOF at end,
// errFrameHeader or errFrameBody for bad bytes (s.off then stays), or a read
// error. The body is valid until the next call.
func (s *scanner) frame() (frameHeader, []byte, error) {
	if s.off >= s.end {
		return frameHeader{}, nil, io.EOF
	}
	b, err := s.peek(s.off, frameHeaderSize)
	if err != nil {
		return frameHeader{}, nil, err
	}
	h, err := decodeFrameHeader(s.id, b)
	if err != nil {
		return h, nil, err
	}
	if h.first != s.next || (!s.anyLink && h.link != s.link) {
		return h, nil, errFrameHeader
	}
	if b, err = s.peek(s.off, h.size()); err != nil {
		return h, nil, err
	}
	if int64(len(b)) < h.size() {
		return h, nil, errFrameBody
	}
	body, err := checkFrameBody(s.id, h, b[frameHeaderSize:])
	if err != nil {
		return h, nil, err
	}
	s.off += h.size()
	s.next += uint64(h.count)
	s.link, s.anyLink = h.sum, false
	return h, body, nil
}

// torn judges the bad frame at s.off: true when it is what a crash leaves of
// the last group, false when it is damage. See doc.go.
func (s *scanner) torn() (bool, error) {
	head, err := s.peek(s.off, frameHeaderSize)
	if err != nil {
		return false, err
	}
	if len(head) < frameHeaderSize {
		return true, nil // the file ends inside the header
	}
	if h, err := decodeFrameHeader(s.id, head); err == nil {
		if h.first != s.next || h.link != s.link {
			return false, nil // a whole header of something else
		}
		stop := s.off + h.size()
		if stop > s.end {
			return true, nil // the file ends inside the group
		}
		// Anything after it was written when this group was durable.
		if empty, err := s.zeros(stop, s.end); err != nil || !empty {
			return false, err
		}
		return s.lostSector(s.off, stop)
	}
	if lost, err := s.lostSector(s.off, s.off+frameHeaderSize); err != nil || !lost {
		return false, err
	}
	// The length is lost with the header. What follows may be the rest of the
	// group, but no whole frame may, and nothing farther than a group reaches.
	if empty, err := s.zeros(s.off+maxFrame, s.end); err != nil || !empty {
		return false, err
	}
	for off := s.off + 8; off < s.end; off += 8 {
		b, err := s.peek(off, frameHeaderSize)
		if err != nil {
			return false, err
		}
		if len(b) >= 4 && string(b[:4]) == frameMagic {
			if _, err := decodeFrameHeader(s.id, b); err == nil {
				return false, nil
			}
		}
	}
	return true, nil
}

// zeros reports whether [from, to) reads as zeros.
func (s *scanner) zeros(from, to int64) (bool, error) {
	for from < to {
		b, err := s.peek(from, min(window, to-from))
		if err != nil {
			return false, err
		}
		if len(b) == 0 {
			return true, nil
		}
		if !zeros(b) {
			return false, nil
		}
		from += int64(len(b))
	}
	return true, nil
}

// lostSector reports whether a sector's part of [from, to), or its last byte,
// reads as zero: a page was lost, or the write stopped short. A header and a
// frame end with a byte that no single flip makes zero, and are cut into sectors
// at multiples of eight, so no part of a written frame looks like that, save for
// 512 zeros inside a record's data.
func (s *scanner) lostSector(from, to int64) (bool, error) {
	if stopped, err := s.zeros(to-1, to); err != nil || stopped {
		return stopped, err
	}
	for from < to {
		stop := min(to, (from/sectorSize+1)*sectorSize)
		b, err := s.peek(from, stop-from)
		if err != nil {
			return false, err
		}
		if int64(len(b)) < stop-from || zeros(b) {
			return true, nil
		}
		from = stop
	}
	return false, nil
}

// openSegment opens a segment for reading and checks its header.
func openSegment(fsys FS, path string, first uint64, flag int) (File, segmentHeader, error) {
	f, err := fsys.OpenFile(path, flag, 0)
	if err != nil {
		return nil, segmentHeader{}, err
	}
	b := make([]byte, segmentHeaderSize)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		_ = f.Close()
		return nil, segmentHeader{}, err
	}
	h, err := decodeSegmentHeader(b[:n])
	if err == nil && h.first != first {
		err = errSegmentHeader
	}
	if err != nil {
		_ = f.Close()
		return nil, h, damaged(path, first, 0, err)
	}
	return f, h, nil
}

// readFooter reads the footer of a full segment from its end, without reading
// what lies before it.
func readFooter(f File, i id, size int64) (frameHeader, footer, error) {
	var none footer
	tail := make([]byte, frameTrailerSize)
	if size < segmentHeaderSize+frameHeaderSize+frameTrailerSize {
		return frameHeader{}, none, errFrameBody
	}
	if _, err := f.ReadAt(tail, size-frameTrailerSize); err != nil && !errors.Is(err, io.EOF) {
		return frameHeader{}, none, err
	}
	length := int64(uint32(tail[0]) | uint32(tail[1])<<8 | uint32(tail[2])<<16 | uint32(tail[3])<<24)
	if length < frameHeaderSize+frameTrailerSize || length > size-segmentHeaderSize || length > maxFrame {
		return frameHeader{}, none, errFrameBody
	}
	b := make([]byte, length)
	if _, err := f.ReadAt(b, size-length); err != nil && !errors.Is(err, io.EOF) {
		return frameHeader{}, none, err
	}
	h, err := decodeFrameHeader(i, b)
	if err != nil {
		return h, none, err
	}
	if !h.footer() {
		return h, none, errFrameBody
	}
	body, err := checkFrameBody(i, h, b[frameHeaderSize:])
	if err != nil {
		return h, none, err
	}
	ft, err := decodeFooter(h, body)
	return h, ft, err
}

// unbounded stands for a file whose space cannot be allocated ahead.
const unbounded = math.MaxInt64
