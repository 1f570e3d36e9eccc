package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gatehouse/internal/blob"
	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
)

// TestBlobRetention: whatever a journal holds, a blob goes when nothing in it
// names it and it is old, and no other blob ever does.
func TestBlobRetention(t *testing.T) {
	forms := map[string]func(raw []byte) []byte{
		"hex": func(raw []byte) []byte { return []byte(`{"raw":"blob:` + hex.EncodeToString(raw) + `"}`) },
		"receipt": func(raw []byte) []byte {
			return []byte(`{"digest":"` + base64.RawURLEncoding.EncodeToString(raw) + `"}`)
		},
		"json": func(raw []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(raw)) },
		"bare": func(raw []byte) []byte { return raw },
		"carried": func(raw []byte) []byte {
			var b bytes.Buffer
			if err := gob.NewEncoder(&b).Encode([]journal.Record{{Kind: journal.KindReceipt, Data: []byte(hex.EncodeToString(raw))}}); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		},
	}
	kinds := []journal.Kind{journal.KindEvent, journal.KindReceipt, journal.KindPrivate, journal.KindSnapshot}
	old := time.Now().Add(-retainWeek)
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(tempDir(t), "")
		if err != nil {
			r.Fatal(err)
		}
		blobs, err := blob.Open(dir)
		if err != nil {
			r.Fatal(err)
		}
		j, err := journal.Open("journal", journal.Options{FS: &faultfs.FS{}, PrivateKey: make([]byte, 32), ReserveBytes: -1, SegmentBytes: 4 << 10})
		if err != nil {
			r.Fatal(err)
		}
		defer j.Close()
		add := func(data []byte) {
			rec := journal.Record{Kind: rapid.SampledFrom(kinds).Draw(r, "kind"), Subject: "s", Data: data}
			if _, err := j.Append(rec).Wait(t.Context()); err != nil {
				r.Fatal(err)
			}
		}
		stays := map[string]bool{}
		for i := range rapid.IntRange(1, 8).Draw(r, "blobs") {
			content := fmt.Appendf(nil, "blob %d", i)
			sum := sha256.Sum256(content)
			raw, name := sum[:], hex.EncodeToString(sum[:])
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil { // Put waits for the disk
				r.Fatal(err)
			}
			young := rapid.Bool().Draw(r, "young")
			stays[name] = young
			if !young {
				at := old.Add(-time.Hour)
				if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
					r.Fatal(err)
				}
			}
			for range rapid.IntRange(0, 2).Draw(r, "mentions") {
				form := rapid.SampledFrom([]string{"hex", "receipt", "json", "bare", "carried"}).Draw(r, "form")
				noise := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(r, "before")
				add(append(noise, forms[form](raw)...))
				stays[name] = true
			}
		}
		add([]byte("nothing"))
		// The first half of a name is no name.
		for name := range stays {
			add([]byte(name[:40]))
		}
		removed, err := (&retention{journal: j, blobs: blobs}).sweep(t.Context(), old)
		if err != nil {
			r.Fatal(err)
		}
		for name, stay := range stays {
			f, err := blobs.Get(name)
			if err == nil {
				_, err = io.Copy(io.Discard, f)
				_ = f.Close()
			} else {
				removed--
			}
			if (err == nil) != stay {
				r.Errorf("%s: want it there: %v; %v", name, stay, err)
			}
		}
		if removed != 0 {
			r.Errorf("%d more removed than were there", removed)
		}
	})
}
