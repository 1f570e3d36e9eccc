package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The layout is described in doc.go.
const (
	segmentMagic = "GHJRNL01"
	segmentEnd   = "GHSH"
	frameMagic   = "GHFR"
	headerEnd    = "GHFH"
	frameEnd     = "GHFE"

	segmentHeaderSize = 48
	frameHeaderSize   = 40
	frameTrailerSize  = 8
	recordHeaderSize  = 8
	sectorSize        = 512

	flagFooter = 1

	maxSubject = 1 << 10  // bytes of a subject
	maxData    = 16 << 20 // bytes of a record's data
	maxBatch   = 24 << 20 // bytes of the records of one group as appended
	// maxFrame bounds what a reader allocates: a full group, what sealing adds
	// to private records, and the Seal hook's records.
	maxFrame = 48 << 20
	// maxGroupLimit is the largest Options.MaxGroup.
	maxGroupLimit = 4096
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// id is a journal's random identity. Every checksum starts from it, so that
// bytes of another journal, or a frame that an outsider put inside a record,
// never check out.
type id [16]byte

func (i id) sum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(i[:], castagnoli), castagnoli, b)
}

// segmentHeader starts a segment file.
type segmentHeader struct {
	id    id
	first uint64 // position of the first record
	link  uint32 // header checksum of the frame before it, 0 for the first of all
}

func (h segmentHeader) encode() []byte {
	b := make([]byte, 0, segmentHeaderSize)
	b = append(b, segmentMagic...)
	b = append(b, h.id[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.first)
	b = binary.LittleEndian.AppendUint32(b, h.link)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint32(b, h.id.sum(b))
	return append(b, segmentEnd...)
}

var errSegmentHeader = errors.New("segment header is wrong")

func decodeSegmentHeader(b []byte) (segmentHeader, error) {
	var h segmentHeader
	if len(b) < segmentHeaderSize || string(b[:8]) != segmentMagic || string(b[44:48]) != segmentEnd {
		return h, errSegmentHeader
	}
	copy(h.id[:], b[8:24])
	h.first = binary.LittleEndian.Uint64(b[24:])
	h.link = binary.LittleEndian.Uint32(b[32:])
	if binary.LittleEndian.Uint32(b[36:]) != 0 || h.first == 0 || binary.LittleEndian.Uint32(b[40:]) != h.id.sum(b[:40]) {
		return h, errSegmentHeader
	}
	return h, nil
}

// frameHeader starts a frame: a group of records, or a segment's footer.
type frameHeader struct {
	count   uint32
	first   uint64 // position of the first record; of the next one in a footer
	length  uint32 // body bytes, without padding
	flags   uint32
	bodySum uint32
	link    uint32
	sum     uint32 // checksum of the header itself: the next frame's link
}

// size is the number of bytes of the whole frame in the file.
func (h frameHeader) size() int64 {
	return frameHeaderSize + padded(int64(h.length)) + frameTrailerSize
}

func (h frameHeader) footer() bool { return h.flags&flagFooter != 0 }

func padded(n int64) int64 { return (n + 7) &^ 7 }

// beginFrame returns dst, emptied, with room for the header of a frame whose body is
// to be appended.
func beginFrame(dst []byte) []byte {
	return append(dst[:0], make([]byte, frameHeaderSize)...)
}

// endFrame makes the frame that beginFrame began whole: header, padding, trailer.
func endFrame(dst []byte, i id, h frameHeader) ([]byte, frameHeader) {
	body := dst[frameHeaderSize:]
	h.length = uint32(len(body))
	h.bodySum = i.sum(body)
	for len(dst)%8 != 0 {
		dst = append(dst, 0)
	}
	b := append(dst[:0], frameMagic...)
	b = binary.LittleEndian.AppendUint32(b, h.count)
	b = binary.LittleEndian.AppendUint64(b, h.first)
	b = binary.LittleEndian.AppendUint32(b, h.length)
	b = binary.LittleEndian.AppendUint32(b, h.flags)
	b = binary.LittleEndian.AppendUint32(b, h.bodySum)
	b = binary.LittleEndian.AppendUint32(b, h.link)
	h.sum = i.sum(b)
	b = binary.LittleEndian.AppendUint32(b, h.sum)
	_ = append(b, headerEnd...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.size()))
	return append(dst, frameEnd...), h
}

var (
	errFrameHeader = errors.New("frame header is wrong")
	errFrameBody   = errors.New("frame body is wrong")
	errContent     = errors.New("frame content is wrong") // under a right checksum
)

// decodeFrameHeader checks the first frameHeaderSize bytes of a frame.
func decodeFrameHeader(i id, b []byte) (frameHeader, error) {
	var h frameHeader
	if len(b) < frameHeaderSize || string(b[:4]) != frameMagic || string(b[36:40]) != headerEnd {
		return h, errFrameHeader
	}
	h.count = binary.LittleEndian.Uint32(b[4:])
	h.first = binary.LittleEndian.Uint64(b[8:])
	h.length = binary.LittleEndian.Uint32(b[16:])
	h.flags = binary.LittleEndian.Uint32(b[20:])
	h.bodySum = binary.LittleEndian.Uint32(b[24:])
	h.link = binary.LittleEndian.Uint32(b[28:])
	h.sum = binary.LittleEndian.Uint32(b[32:])
	if h.sum != i.sum(b[:32]) || h.length > maxFrame || h.flags&^flagFooter != 0 ||
		h.first == 0 || (h.count == 0) != h.footer() {
		return h, errFrameHeader
	}
	return h, nil
}

// checkFrameBody checks what follows a frame's header: body, padding, trailer.
func checkFrameBody(i id, h frameHeader, rest []byte) ([]byte, error) {
	if int64(len(rest)) != h.size()-frameHeaderSize {
		return nil, errFrameBody
	}
	body, pad, trailer := rest[:h.length], rest[h.length:len(rest)-frameTrailerSize], rest[len(rest)-frameTrailerSize:]
	if i.sum(body) != h.bodySum || !zeros(pad) ||
		int64(binary.LittleEndian.Uint32(trailer)) != h.size() || string(trailer[4:]) != frameEnd {
		return nil, errFrameBody
	}
	return body, nil
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// appendRecord appends a record. A private one stands in the clear, with room
// around it for what hide adds.
func appendRecord(dst []byte, r *Record) []byte {
	size := len(r.Data)
	if r.Kind == KindPrivate {
		size += nonceSize + tagSize
	}
	dst = append(dst, byte(r.Kind), 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(r.Subject)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(size))
	dst = append(dst, r.Subject...)
	if r.Kind != KindPrivate {
		return append(dst, r.Data...)
	}
	dst = append(dst, make([]byte, nonceSize)...)
	dst = append(dst, r.Data...)
	return append(dst, make([]byte, tagSize)...)
}

// firstData returns the data of the first record of a body and what follows it.
func firstData(body []byte) (data, rest []byte) {
	subject := int(binary.LittleEndian.Uint16(body[2:]))
	end := recordHeaderSize + subject + int(binary.LittleEndian.Uint32(body[4:]))
	return body[recordHeaderSize+subject : end : end], body[end:]
}

// decodeRecords splits a group's body. Data aliases body.
func decodeRecords(h frameHeader, body []byte) ([]Record, error) {
	// A record takes at least its header, so a hostile count allocates no more
	// than the body it came with.
	if int64(h.count) > int64(len(body))/recordHeaderSize {
		return nil, errContent
	}
	recs := make([]Record, 0, h.count)
	for n := range uint64(h.count) {
		if len(body) < recordHeaderSize || body[1] != 0 {
			return nil, errContent
		}
		kind := Kind(body[0])
		subject := int(binary.LittleEndian.Uint16(body[2:]))
		data := int64(binary.LittleEndian.Uint32(body[4:]))
		body = body[recordHeaderSize:]
		if kind == 0 || kind > kindLast || int64(len(body)) < int64(subject)+data {
			return nil, errContent
		}
		recs = append(recs, Record{
			Pos:     h.first + n,
			Kind:    kind,
			Subject: string(body[:subject]),
			Data:    body[subject : int64(subject)+data : int64(subject)+data],
		})
		body = body[int64(subject)+data:]
	}
	if len(body) != 0 {
		return nil, errContent
	}
	return recs, nil
}

// footer is the last frame of a full segment.
type footer struct {
	next      uint64            // position of the first record of the next segment
	snapshots map[string]uint64 // newest snapshot of each subject in the whole journal
	index     []mark
}

// mark says where the group that starts at pos lies in its segment.
type mark struct {
	pos uint64
	off int64
}

func (f footer) append(dst []byte, subjects []string) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(subjects)))
	for _, s := range subjects {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
		dst = append(dst, s...)
		dst = binary.LittleEndian.AppendUint64(dst, f.snapshots[s])
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.index)))
	for _, m := range f.index {
		dst = binary.LittleEndian.AppendUint64(dst, m.pos)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(m.off))
	}
	return dst
}

func decodeFooter(h frameHeader, body []byte) (footer, error) {
	f := footer{next: h.first, snapshots: map[string]uint64{}}
	bad := fmt.Errorf("%w: footer", errContent)
	take := func(n int) ([]byte, bool) {
		if len(body) < n {
			return nil, false
		}
		b := body[:n]
		body = body[n:]
		return b, true
	}
	b, ok := take(4)
	if !ok {
		return f, bad
	}
	for range binary.LittleEndian.Uint32(b) {
		if b, ok = take(2); !ok {
			return f, bad
		}
		name, ok := take(int(binary.LittleEndian.Uint16(b)))
		if !ok {
			return f, bad
		}
		if b, ok = take(8); !ok {
			return f, bad
		}
		f.snapshots[string(name)] = binary.LittleEndian.Uint64(b)
	}
	if b, ok = take(4); !ok {
		return f, bad
	}
	for range binary.LittleEndian.Uint32(b) {
		if b, ok = take(16); !ok {
			return f, bad
		}
		off := binary.LittleEndian.Uint64(b[8:])
		if off > 1<<62 {
			return f, bad
		}
		f.index = append(f.index, mark{binary.LittleEndian.Uint64(b), int64(off)})
	}
	if len(body) != 0 {
		return f, bad
	}
	return f, nil
}
