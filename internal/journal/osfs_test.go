package journal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

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
