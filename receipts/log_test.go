package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"gatehouse/receipts"
)

func TestLogProof(t *testing.T) {
	w, end := story(t)
	payload := w.groups[2].leaves[0].data
	index := w.groups[2].seal.First
	p, err := w.tree.Proof(index, end.index+1)
	if err != nil {
		t.Fatal(err)
	}
	file := (&receipts.LogProof{Proof: p, Checkpoint: end.note}).Encode()
	if !bytes.HasPrefix(file, fmt.Appendf(nil, "c2sp.org/tlog-proof@v1\nindex %d\n", index)) {
		t.Errorf("%s", file)
	}
	got, err := receipts.ParseLogProof(file)
	if err != nil || !bytes.Equal(got.Encode(), file) {
		t.Fatalf("%v %s", err, got.Encode())
	}
	if cp, err := got.Verify(payload, w.ks); err != nil || cp.Size != end.index+1 {
		t.Error(err)
	}
	if _, err := got.Verify(w.groups[0].leaves[0].data, w.ks); err == nil {
		t.Error("another leaf accepted")
	}
	other := *w.ks
	other.Keys = w.ks.Keys[:1]
	if _, err := got.Verify(payload, &other); !errors.Is(err, receipts.ErrKey) {
		t.Errorf("without the checkpoint key: %v", err)
	}
	for name, bad := range map[string]string{
		"nothing": "", "other version": strings.Replace(string(file), "@v1", "@v2", 1), "extra line": strings.Replace(string(file), "index", "extra AAAA\nindex", 1),
		"no index": strings.Replace(string(file), "index ", "", 1), "index with zero": strings.Replace(string(file), "index ", "index 0", 1),
		"short hash": strings.Replace(string(file), "=\n", "\n", 1), "endless": string(file[:len(file)-len(end.note)-1]) + strings.Repeat("AAAA\n", 100) + "\n",
	} {
		if _, err := receipts.ParseLogProof([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzParseLogProof(f *testing.F) {
	w, end := story(f)
	p, err := w.tree.Proof(3, end.index+1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add((&receipts.LogProof{Proof: p, Checkpoint: end.note}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := receipts.ParseLogProof(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.Encode(), b) {
			t.Fatalf("%q encodes to %q", b, p.Encode())
		}
		_, _ = p.Verify([]byte("x"), w.ks)
	})
}

func TestTiles(t *testing.T) {
	w := newWorld(t)
	folder := fstest.MapFS{}
	put := func(path string, data []byte) error {
		folder[path] = &fstest.MapFile{Data: data}
		return nil
	}
	var old uint64
	const total = 600
	for old < total {
		for range 150 {
			w.event(fmt.Sprintf(`{"n":%d}`, w.tree.Size()+uint64(len(w.pending))))
		}
		w.flush()
		if err := receipts.WriteTiles(old, w.tree.Size(), &w.tree, put); err != nil {
			t.Fatal(err)
		}
		old = w.tree.Size()
	}
	for _, path := range []string{"tile/0/000", "tile/0/001", "tile/0/002.p/88", "tile/1/000.p/2"} {
		if folder[path] == nil {
			t.Errorf("no %s", path)
		}
	}
	cp, err := receipts.ParseCheckpoint(w.checkpointAt(total), w.ks)
	if err != nil {
		t.Fatal(err)
	}
	tiles := receipts.OpenTiles(folder, cp)
	for _, i := range []uint64{0, 1, 255, 256, 511, 512, 599} {
		p, err := tiles.Proof(i)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(total, cp.Root, receipts.Leaf(fmt.Appendf(nil, `{"n":%d}`, i))); err != nil {
			t.Error(err)
		}
		path, err := tiles.Consistency(i + 1)
		if err != nil {
			t.Fatal(err)
		}
		root, _ := w.tree.Root(i + 1)
		if err := receipts.CheckConsistency(path, total, cp.Root, i+1, root); err != nil {
			t.Error(err)
		}
	}
	if _, err := tiles.Proof(total); err == nil {
		t.Error("proof beyond the end")
	}
	t.Run("changed tile", func(t *testing.T) {
		folder["tile/0/001"].Data[40] ^= 1
		if _, err := receipts.OpenTiles(folder, cp).Proof(300); err == nil {
			t.Error("a changed tile was believed")
		}
	})
}

func TestWatcher(t *testing.T) {
	w, first := story(t)
	w.decide(sessionC, "c-2", receipts.Allow, true)
	w.now = w.now.Add(time.Second)
	second := w.checkpoint()
	other, _ := receipts.SignCheckpoint(w.cp, receipts.Checkpoint{Origin: origin, Size: first.index + 1, Root: digest("x"), Time: w.now})
	longer, _ := receipts.SignCheckpoint(w.cp, receipts.Checkpoint{Origin: origin, Size: second.index + 9, Root: digest("x"), Time: w.now})
	stranger := *w
	stranger.cp = key("stranger")
	for name, tc := range map[string]struct {
		see   [][]byte
		after time.Duration
		want  receipts.Class
	}{
		"grows":                   {[][]byte{first.note, second.note}, 0, ""},
		"stands still":            {[][]byte{first.note, first.note}, 0, ""},
		"first sight":             {[][]byte{second.note}, 0, ""},
		"silent":                  {[][]byte{first.note}, time.Hour, receipts.ClassTime},
		"RC-16 shrinks":           {[][]byte{second.note, first.note}, 0, receipts.ClassRollback},
		"RC-14 two of one size":   {[][]byte{first.note, other}, 0, receipts.ClassFork},
		"RC-17 proves no growth":  {[][]byte{first.note, longer}, 0, receipts.ClassRollback},
		"RC-10 a stranger's note": {[][]byte{first.note, stranger.checkpointAt(second.index + 1)}, 0, receipts.ClassKey},
		"not a note":              {[][]byte{[]byte("x")}, 0, receipts.ClassSeal},
	} {
		t.Run(name, func(t *testing.T) {
			watch := receipts.Watcher{Keyset: w.ks, Prove: w.tree.Consistency}
			var got receipts.Class
			for _, note := range tc.see {
				if f := watch.See(note, w.now.Add(tc.after)); f != nil {
					got = f.Class
				}
			}
			if got != tc.want {
				t.Errorf("class %q, want %q", got, tc.want)
			}
			if tc.want == receipts.ClassRollback && watch.Last.Size == 0 {
				t.Error("the last good checkpoint was given up")
			}
		})
	}
}

func TestKeysetFollows(t *testing.T) {
	fresh := receipts.Key{Purpose: receipts.SealKey, Name: origin + "/seal", Public: public(key("seal 2")), From: 10}
	for name, tc := range map[string]struct {
		change func(*receipts.Keyset)
		ok     bool
	}{
		"rotated": {func(ks *receipts.Keyset) {
			ks.Keys[0].Until = 10
			ks.Keys = append(ks.Keys, fresh)
		}, true},
		"revoked":               {func(ks *receipts.Keyset) { ks.Keys[0].Until, ks.Keys[0].Revoked = 10, true }, true},
		"unchanged":             {func(*receipts.Keyset) {}, true},
		"key removed":           {func(ks *receipts.Keyset) { ks.Keys = ks.Keys[:1] }, false},
		"key replaced":          {func(ks *receipts.Keyset) { ks.Keys[0].Public = fresh.Public }, false},
		"interval begins later": {func(ks *receipts.Keyset) { ks.Keys[0].From = 3 }, false},
		"serial skipped":        {func(ks *receipts.Keyset) { ks.Serial++ }, false},
		"other history":         {func(ks *receipts.Keyset) { ks.Was[0] = digest("x") }, false},
		"other origin":          {func(ks *receipts.Keyset) { ks.Origin = "other" }, false},
		"other root":            {func(ks *receipts.Keyset) { ks.Root.Public = fresh.Public }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			next := w.ks.Next()
			tc.change(next)
			if err := next.Follows(w.ks); (err == nil) != tc.ok {
				t.Error(err)
			}
		})
	}
	t.Run("RC-11 taken back", func(t *testing.T) {
		w := newWorld(t)
		retired := w.ks.Next()
		retired.Keys[0].Until = 10
		for name, change := range map[string]func(*receipts.Key){
			"open again": func(k *receipts.Key) { k.Until = 0 }, "longer": func(k *receipts.Key) { k.Until = 11 },
			"shorter without revocation": func(k *receipts.Key) { k.Until = 9 }, "revoked but longer": func(k *receipts.Key) { k.Until, k.Revoked = 11, true },
		} {
			back := retired.Next()
			change(&back.Keys[0])
			if back.Follows(retired) == nil {
				t.Errorf("%s: accepted", name)
			}
		}
		revoked := retired.Next()
		revoked.Keys[0].Until, revoked.Keys[0].Revoked = 7, true
		if err := revoked.Follows(retired); err != nil {
			t.Errorf("revoking back to an earlier index: %v", err)
		}
		pardoned := revoked.Next()
		pardoned.Keys[0].Revoked = false
		if pardoned.Follows(revoked) == nil {
			t.Error("revocation taken back")
		}
	})
}

func TestPeriod(t *testing.T) {
	w := newWorld(t)
	var marks []ending
	var times []time.Time
	ids := []string{}
	for i := range 4 { // a session an hour, each followed by a checkpoint
		id := fmt.Sprintf("01JCP00000000000000000000%d", i)
		ids = append(ids, id)
		w.open(id, receipts.Open{State: "refused", Code: "no_match"})
		w.close(id, "refused", -1)
		marks = append(marks, w.checkpoint())
		times = append(times, w.now)
		w.now = w.now.Add(time.Hour)
	}
	end := marks[3]
	for name, tc := range map[string]struct {
		sessions       []string
		since, until   time.Time
		opened, inFile uint64
	}{
		"everything":      {ids, time.Time{}, w.now, 4, 4},
		"since the first": {ids, times[0], time.Time{}, 3, 3},
		"the middle":      {ids, times[0], times[2], 2, 2},
		"one left out":    {[]string{ids[0], ids[1], ids[3]}, times[0], times[2], 2, 1},
		"between marks":   {ids, times[1].Add(time.Minute), times[2].Add(-time.Minute), 1, 1},
		"before the log":  {ids, times[0].Add(-time.Hour), times[0], 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := w.options()
			o.Since, o.Until = tc.since, tc.until
			r := verify(w.export(cut{sessions: tc.sessions, end: &end, marks: marks[:3]}), o)
			want(t, r, 0, receipts.ClassComplete)
			if p := r.Period; p == nil || p.Opened != tc.opened || p.InFile != tc.inFile {
				t.Errorf("period %+v, want %d opened, %d in the file", p, tc.opened, tc.inFile)
			}
			if line := r.Lines()[2]; !strings.Contains(line, fmt.Sprintf("in the period asked for %d session", tc.opened)) {
				t.Error(line)
			}
		})
	}
}
