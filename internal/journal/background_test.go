package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBackgroundSync has the kernel sync in the background, refuse to, and be
// asked as where there is no AIO.
func TestBackgroundSync(t *testing.T) {
	open := func(t *testing.T) *osFile {
		f, err := OS().OpenFile(filepath.Join(t.TempDir(), "f"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f.(*osFile)
	}
	write := func(t *testing.T, f *osFile) {
		for i := range 20 {
			if _, err := f.WriteAt([]byte("data"), int64(i*4)); err != nil {
				t.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("in the background", func(t *testing.T) {
		f := open(t)
		write(t, f)
		if f.self {
			t.Skip("this kernel does not sync in the background")
		}
		if err := f.sync.sync(-1); err != errNoAIO {
			t.Errorf("a request that the kernel does not take: %v", err)
		}
	})
	t.Run("without AIO", func(t *testing.T) {
		f := open(t)
		f.self = true
		write(t, f)
		if f.sync != nil {
			t.Error("AIO was set up")
		}
	})
	t.Run("AIO ends", func(t *testing.T) {
		f := open(t)
		write(t, f)
		if f.sync == nil {
			t.Skip("this kernel does not sync in the background")
		}
		ctx := f.sync.ctx
		f.sync.close()
		f.sync.ctx = ctx // of nobody now: the kernel refuses what comes next
		write(t, f)
		if !f.self {
			t.Error("a refused request was taken for a sync")
		}
	})
	t.Run("fails", func(t *testing.T) {
		f := open(t)
		write(t, f)
		_ = f.f.Close()
		if f.Sync() == nil {
			t.Error("a file that is closed was synced")
		}
	})
	t.Run("leaves nothing open", func(t *testing.T) {
		open := func() int {
			entries, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(entries)
		}
		before := open()
		for range 50 {
			f, err := OS().OpenFile(filepath.Join(t.TempDir(), "f"), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if now := open(); now > before+5 {
			t.Errorf("%d descriptors open, %d before", now, before)
		}
	})
}
