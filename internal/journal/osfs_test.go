package journal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A file system that is not known to write in place is not filled: a tmpfs is one.
func TestFillsInPlaceOnly(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "gatehouse-fill-")
	if err != nil {
		t.Skip("no tmpfs:", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f, err := OS().OpenFile(filepath.Join(dir, "f"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // of no interest here
	if f.(*osFile).fills {
		t.Error("a tmpfs would be filled")
	}
}

// Fill writes zeros where it was asked to and not a byte beside, and elsewhere
// than on the file systems that it is for it writes nothing.
func TestFill(t *testing.T) {
	for name, fills := range map[string]bool{"in_place": true, "elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			f, err := OS().OpenFile(filepath.Join(t.TempDir(), "f"), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close() //nolint:errcheck // of no interest here
			f.(*osFile).fills = fills
			const from, n = 1000, 300_001
			want := bytes.Repeat([]byte("x"), 1<<20)
			if err := writeAll(f, want, 0); err != nil {
				t.Fatal(err)
			}
			if err := f.Fill(from, n); err != nil {
				t.Fatal(err)
			}
			if fills {
				clear(want[from : from+n])
			}
			got := make([]byte, len(want))
			if _, err := f.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			if size, err := f.Size(); err != nil || size != int64(len(want)) || !bytes.Equal(got, want) {
				t.Errorf("the file has %d bytes, %v, and reads otherwise", size, err)
			}
		})
	}
}
