package journal

import (
	"bytes"
	"testing"
	"time"
)

// FuzzRecords reads a group's body that passed its checksum and still may hold
// anything.
func FuzzRecords(f *testing.F) {
	body := appendRecord(nil, &Record{Kind: KindEvent, Subject: "subject", Data: []byte("data")})
	f.Add(uint32(1), body)
	f.Add(uint32(2), append(body, appendRecord(nil, &Record{Kind: KindSeal})...))
	f.Add(uint32(1<<31), body)
	f.Add(uint32(1), body[:9])
	f.Fuzz(func(t *testing.T, count uint32, body []byte) {
		recs, err := decodeRecords(frameHeader{count: count, first: 7}, body)
		if err != nil {
			return
		}
		var again []byte
		for i, r := range recs {
			if r.Pos != 7+uint64(i) {
				t.Fatalf("position %d of record %d", r.Pos, i)
			}
			at, kind := len(again), r.Kind
			r.Kind = KindEvent // what stands in a private one is not read in the clear
			again = appendRecord(again, &r)
			again[at] = byte(kind)
		}
		if !bytes.Equal(again, body) {
			t.Fatalf("records encode to %x, read from %x", again, body)
		}
	})
}

func FuzzFooter(f *testing.F) {
	ft := footer{next: 9, snapshots: map[string]uint64{"a": 3, "b": 4}, index: []mark{{1, 48}, {5, 4096}}}
	f.Add(ft.append(nil, []string{"a", "b"}))
	f.Add(footer{}.append(nil, nil))
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, body []byte) {
		ft, err := decodeFooter(frameHeader{first: 9}, body)
		if err != nil {
			return
		}
		for _, m := range ft.index {
			if m.off < 0 {
				t.Fatalf("offset %d", m.off)
			}
		}
	})
}

// FuzzSegment scans and judges any bytes as a segment. The checksums are made
// right first, so that the bytes reach the code behind them.
func FuzzSegment(f *testing.F) {
	var i id
	body := appendRecord(beginFrame(nil), &Record{Kind: KindEvent, Subject: "s", Data: []byte("some data")})
	one, h := endFrame(bytes.Clone(body), i, frameHeader{count: 1, first: 1})
	second, _ := endFrame(body, i, frameHeader{count: 1, first: 2, link: h.sum})
	two := append(bytes.Clone(one), second...)
	f.Add(one)
	f.Add(two)
	f.Add(append(bytes.Clone(one), make([]byte, 600)...))
	f.Add(two[:len(two)-9])
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		if len(b) >= frameHeaderSize {
			fixChecksum(i, b)
		}
		s := &scanner{f: memFile(b), id: i, end: int64(len(b)), next: 1}
		last, _, err := s.groups(&segment{}, func(Record) {})
		if err == nil && s.off > s.end || last.off > s.off {
			t.Fatalf("scanned to %d of %d, last frame at %d", s.off, s.end, last.off)
		}
		if err != nil {
			if _, err := s.torn(); err != nil {
				t.Fatalf("judging bytes in memory: %v", err)
			}
		}
	})
}

// A private record opens in its own place only.
func TestPrivateBinding(t *testing.T) {
	aead, err := newAEAD(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	j := &Journal{aead: aead, id: id{1}}
	r := Record{Pos: 7, Kind: KindPrivate, Subject: "tokens", Data: []byte("secret")}
	hide := func(r Record) []byte {
		data, _ := firstData(appendRecord(nil, &r))
		j.hide(&r, data)
		return data
	}
	r.Data = hide(r)
	if data, err := j.reveal(r); err != nil || string(data) != "secret" {
		t.Fatalf("%q %v", data, err)
	}
	pos, subject, other := r, r, &Journal{aead: aead, id: id{2}}
	pos.Pos, subject.Subject = 8, "token"
	flipped := r
	flipped.Data = bytes.Clone(r.Data)
	flipped.Data[len(flipped.Data)-1] ^= 1
	short := r
	short.Data = r.Data[:5]
	for name, err := range map[string]error{
		"position": second(j.reveal(pos)), "subject": second(j.reveal(subject)), "journal": second(other.reveal(r)),
		"bit": second(j.reveal(flipped)), "length": second(j.reveal(short)),
	} {
		if err == nil {
			t.Errorf("a private record opens with another %s", name)
		}
	}
	if bytes.Equal(hide(r), hide(r)) {
		t.Error("two encryptions are equal: the nonce repeats")
	}
}

func second(_ []byte, err error) error { return err }

// fixChecksum makes the first frame's checksums right.
func fixChecksum(i id, b []byte) {
	n := int(b[16]) | int(b[17])<<8
	if frameHeaderSize+n <= len(b) {
		put32(b[24:], i.sum(b[frameHeaderSize:frameHeaderSize+n]))
	}
	put32(b[32:], i.sum(b[:32]))
}

func put32(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}

// memFile is a File of bytes.
type memFile []byte

func (m memFile) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(m).ReadAt(p, off) }
func (m memFile) WriteAt([]byte, int64) (int, error)      { panic("read only") }
func (m memFile) Close() error                            { return nil }
func (m memFile) Sync() error                             { return nil }
func (m memFile) Truncate(int64) error                    { panic("read only") }
func (m memFile) Written() (time.Time, error)             { return time.Time{}, nil }
func (m memFile) Size() (int64, error)                    { return int64(len(m)), nil }
func (m memFile) Allocate(int64, int64) error             { panic("read only") }
func (m memFile) Fill(int64, int64) error                 { panic("read only") }
