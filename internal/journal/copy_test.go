package journal_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"gatehouse/internal/journal"
)

// TestCopyUnderLoad: a copy taken while records are written opens whole, and
// holds what was durable when it was asked for.
func TestCopyUnderLoad(t *testing.T) {
	dir := t.TempDir()
	key := make([]byte, 32)
	o := journal.Options{SegmentBytes: 16 << 10, PrivateKey: key, ReserveBytes: -1}
	j, err := journal.Open(filepath.Join(dir, "j"), o)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_, err := j.Append(journal.Record{Kind: journal.KindEvent, Subject: "s", Data: fmt.Appendf(nil, "record %d", i)},
				journal.Record{Kind: journal.KindPrivate, Subject: "p", Data: fmt.Appendf(nil, "secret %d", i)}).Wait(t.Context())
			if err != nil {
				return
			}
		}
	}()
	for n := range 5 {
		if _, err := j.Append(journal.Record{Kind: journal.KindEvent, Subject: "mine", Data: fmt.Append(nil, n)}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := j.Next() - 1
		to := filepath.Join(dir, fmt.Sprint("copy", n))
		last, size, err := j.Copy(t.Context(), to)
		if err != nil || last < before || size == 0 {
			t.Fatalf("position %d of %d, %d bytes, %v", last, before, size, err)
		}
		c, err := journal.Open(to, o)
		if err != nil {
			t.Fatal(err)
		}
		var have []journal.Record
		for g, err := range c.Groups(0) {
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, g...)
		}
		if uint64(len(have)) != last || c.Next() != last+1 {
			t.Errorf("%d records and next %d, want up to %d", len(have), c.Next(), last)
		}
		i := 0
		for g, err := range j.Groups(0) {
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range g {
				if i < len(have) && (have[i].Subject != r.Subject || string(have[i].Data) != string(r.Data)) {
					t.Fatalf("record %d is %q, want %q", i, have[i].Data, r.Data)
				}
				i++
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-done
	if _, _, err := j.Copy(t.Context(), filepath.Join(dir, "copy0")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a copy over another: %v", err)
	}
}
