package receipts_test

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gatehouse/receipts"
)

// everything is a small export with a frame of every kind but hidden, and how to
// read it to exit 0.
func everything(t testing.TB) ([]byte, receipts.Options) {
	t.Helper()
	w := newWorld(t)
	w.admit(sessionC, w.event(`{"id":"e","specversion":"1.0"}`))
	d := w.decide(sessionC, "c-1", receipts.Allow, true)
	first := w.checkpoint()
	w.outcome(sessionC, d, "forwarded")
	end := w.checkpoint()
	file := w.export(cut{
		sessions: []string{sessionC}, events: true, end: &end, bundles: [][]byte{bundleText},
		openings: []receipts.Opening{{Session: sessionC, Seq: 1, Label: "path", Key: receipts.CommitKey(sessionKey, "path"), Value: []byte(requestPath)}},
		marks:    []ending{first}, older: []uint64{first.index + 1},
	})
	o := w.options()
	o.Checkpoint = first.note
	return file, o
}

// wholeLog is a small export of a whole log with a hidden leaf in it.
func wholeLog(t testing.TB) ([]byte, receipts.Options) {
	t.Helper()
	w := newWorld(t)
	ev := w.event(`{"id":"e","specversion":"1.0"}`)
	w.open(sessionB, receipts.Open{State: "refused", Code: "no_match", Event: "e", EventLeaf: ev})
	w.close(sessionB, "refused", -1)
	end := w.checkpoint()
	file := w.export(cut{end: &end, hide: func(_ uint64, l leaf) bool { return l.kind == receipts.LeafEvent }})
	o := w.options()
	o.Checkpoint = end.note
	return file, o
}

// TestEveryByteCounts: no byte of an export can be changed in any way without
// the verdict of both verifiers leaving 0, and a change inside a sealed payload
// is always exit 1. One way a byte here, all 255 in the soak.
func TestEveryByteCounts(t *testing.T) {
	other := newTypeScript(t)
	for name, make := range map[string]func(testing.TB) ([]byte, receipts.Options){"session": everything, "log": wholeLog} {
		t.Run(name, func(t *testing.T) {
			file, o := make(t)
			everyByteCounts(t, other, file, o)
		})
	}
}

func everyByteCounts(t *testing.T, other *typescript, file []byte, o receipts.Options) {
	t.Helper()
	want(t, verify(file, o), 0, receipts.ClassComplete)
	list := changes(file)
	var theirs [][2]any
	if other != nil {
		theirs = other.flips(t, file, o, list)
	}
	payload := payloadBytes(t, file)
	changed := bytes.Clone(file)
	for n, f := range list {
		i := f[0]
		changed[i] = file[i] ^ byte(f[1])
		r := verify(changed, o)
		if r.Exit == 0 {
			t.Fatalf("byte %d %q -> %q: exit 0", i, file[i], changed[i])
		}
		if payload[i] && r.Exit != receipts.ExitTampered {
			t.Fatalf("payload byte %d %q -> %q: exit %d %s", i, file[i], changed[i], r.Exit, r.Class)
		}
		if other != nil && (theirs[n][0] != float64(r.Exit) || theirs[n][1] != string(r.Class)) {
			t.Fatalf("byte %d %q -> %q: exit %d %s, the other verifier says %v", i, file[i], changed[i], r.Exit, r.Class, theirs[n])
		}
		changed[i] = file[i]
	}
}

// changes lists the single-byte changes to try: one bit, the case bit, the top
// bit, a line end, a word end and a carriage return, which Go's base64 ignores,
// in turn; a carriage return also in place of every A, the digit zero.
func changes(file []byte) (list []flip) {
	for i, c := range file {
		if os.Getenv("GATEHOUSE_SOAK") != "" {
			for by := 1; by < 256; by++ {
				list = append(list, flip{i, by})
			}
			continue
		}
		if testing.Short() && i%5 != 0 {
			continue
		}
		by := [...]byte{0x01, 0x20, 0x80, c ^ '\n', c ^ ' ', c ^ '\r'}[i%7%6]
		if by == 0 {
			by = 0x10
		}
		list = append(list, flip{i, int(by)})
		if c == 'A' {
			list = append(list, flip{i, 'A' ^ '\r'})
		}
	}
	return list
}

// payloadBytes marks the bytes of sealed payloads.
func payloadBytes(t *testing.T, file []byte) []bool {
	t.Helper()
	out := make([]bool, len(file))
	at := 0
	for _, f := range split(t, file) {
		n := len(join([]rawFrame{f}))
		if w := f.word(); w == "receipt" || w == "event" {
			for i := at + n - 1 - len(f.body); i < at+n-1; i++ {
				out[i] = true
			}
		}
		at += n
	}
	return out
}

// TestEveryCutCounts: no prefix of an export is exit 0, and a prefix is never
// called tampered.
func TestEveryCutCounts(t *testing.T) {
	file, o := everything(t)
	o.Checkpoint = nil
	step := 1
	if testing.Short() {
		step = 11
	}
	for n := 0; n < len(file); n += step {
		r := verify(file[:n], o)
		ok := r.Exit == receipts.ExitUnproven || n > 0 && n <= bytes.IndexByte(file, '\n') && r.Exit == receipts.ExitUsage
		if !ok {
			t.Fatalf("%d bytes: exit %d %s %+v", n, r.Exit, r.Class, r.Findings)
		}
	}
}

// TestFramesMoved: frames may be removed, repeated and moved in any way; the
// verdict is 0 only for the file as it was.
func TestFramesMoved(t *testing.T) {
	file, o := everything(t)
	frames := split(t, file)
	other := newTypeScript(t)
	rapid.Check(t, func(t *rapid.T) {
		var out []rawFrame
		n := rapid.IntRange(1, 4).Draw(t, "edits")
		out = append(out, frames...)
		for range n {
			i := rapid.IntRange(0, len(out)-1).Draw(t, "from")
			j := rapid.IntRange(0, len(out)-1).Draw(t, "to")
			switch rapid.IntRange(0, 2).Draw(t, "edit") {
			case 0:
				out[i], out[j] = out[j], out[i]
			case 1:
				if len(out) > 1 {
					out = append(out[:i:i], out[i+1:]...)
				}
			case 2:
				out = append(out[:i:i], append([]rawFrame{out[j]}, out[i:]...)...)
			}
		}
		// An attacker counts again.
		if last := &out[len(out)-1]; last.word() == "end" {
			out = recount(out)
		}
		got := join(out)
		r := verify(got, o)
		other.agrees(t, r, got, o)
		if bytes.Equal(got, file) {
			if r.Exit != 0 {
				t.Fatalf("untouched: %d %s", r.Exit, r.Class)
			}
			return
		}
		if r.Exit == 0 && !harmless(frames, out) {
			t.Fatalf("exit 0 for\n%s", got)
		}
	})
}

// harmless reports whether the frames differ only by optional ones left out, or by
// an opening that stands twice: a reader who never sees a bundle text, an opening,
// a mark or an older tree is told less, and one who sees an opening again is told
// the same; nothing is false.
func harmless(was, is []rawFrame) bool {
	var once []rawFrame
	for _, f := range is {
		again := f.word() == "opening" && slices.ContainsFunc(once, func(o rawFrame) bool { return o.line == f.line && bytes.Equal(o.body, f.body) })
		if !again {
			once = append(once, f)
		}
	}
	is = once
	optional := map[string]bool{"bundle": true, "opening": true, "event": true, "mark": true, "consistency": true}
	i := 0
	for _, f := range was {
		if i < len(is) && is[i].line == f.line && bytes.Equal(is[i].body, f.body) {
			i++
			continue
		}
		if !optional[f.word()] && f.word() != "end" {
			return false
		}
	}
	return i == len(is)
}
