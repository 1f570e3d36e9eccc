package door

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"pgregory.net/rapid"
)

// TestScanner: however the bytes are cut, the frames found are those that the
// library's own reader finds.
func TestScanner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		fr := http2.NewFramer(&b, nil)
		var want []frame
		for range rapid.IntRange(1, 8).Draw(t, "frames") {
			id := uint32(rapid.IntRange(1, 99).Draw(t, "stream"))
			body := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body")
			end := rapid.Bool().Draw(t, "end")
			flags := byte(0)
			if end {
				flags = flagEndStream
			}
			var err error
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				err = fr.WriteData(id, end, body)
				want = append(want, frame{frameData, flags, id, 0})
			case 1:
				err = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: body, EndStream: end, EndHeaders: true})
				want = append(want, frame{frameHeaders, flags | 0x4, id, 0})
			case 2:
				err = fr.WriteRSTStream(id, http2.ErrCodeCancel)
				want = append(want, frame{frameReset, 0, id, 0})
			case 3:
				err = fr.WriteGoAway(id, http2.ErrCodeProtocol, body)
				want = append(want, frame{frameGoAway, 0, 0, uint32(http2.ErrCodeProtocol)})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var s scanner
		var mu sync.Mutex
		var got []frame
		for all := b.Bytes(); len(all) > 0; {
			n := min(len(all), rapid.IntRange(1, 20).Draw(t, "cut"))
			s.scan(all[:n], func(f frame) { got = append(got, f) }, &mu)
			all = all[n:]
		}
		if len(got) != len(want) {
			t.Fatalf("found %+v, want %+v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("frame %d is %+v, want %+v", i, got[i], want[i])
			}
		}
	})
}

// FuzzScanner: hostile bytes are never found to be something else when they come
// cut in two.
func FuzzScanner(f *testing.F) {
	f.Add([]byte("\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03"), 5)
	f.Add([]byte("\xff\xff\xff\x07\xff\xff\xff\xff\xff\xff"), 9)
	f.Add([]byte("\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00\x01\x05\x00\x00\x00\x01"), 3)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		var mu sync.Mutex
		find := func(parts ...[]byte) (found []frame) {
			var s scanner
			for _, p := range parts {
				s.scan(p, func(f frame) { found = append(found, f) }, &mu)
			}
			return found
		}
		at = max(0, min(at, len(b)))
		if whole, cut := find(b), find(b[:at], b[at:]); !slices.Equal(whole, cut) {
			t.Errorf("whole %+v, cut at %d %+v", whole, at, cut)
		}
	})
}
