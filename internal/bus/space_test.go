//go:build linux

package bus_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
)

// TestLittleSpace is RC-43 for the embedded store: while its disk is full the
// bus says by name what it waits for, and a little space is enough to go on,
// less than the store itself takes.
func TestLittleSpace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a disk that is full needs a mount of its own, and a mount needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("gatehouse-test", dir, "tmpfs", unix.MS_NODEV, "size=96m,mode=0700"); err != nil {
		t.Skip("SKIPPED: couldn't mount: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	j := openJournal(t, t.TempDir())
	b := open(t, bus.Options{Dir: filepath.Join(dir, "nats"), AckTimeout: time.Second})
	stop := pumping(t, b, j)
	large := func(id string) journal.Record { return event(id, strings.Repeat("x", 1<<20)) }
	for i := range 40 { // the store is far larger than the space it gets back
		add(t, j, large(fmt.Sprint("before ", i)))
	}
	stored(t, b, j)

	ballast := filepath.Join(dir, "ballast")
	size := fillDisk(t, ballast)
	for i := range 4 {
		add(t, j, large(fmt.Sprint("full ", i)))
	}
	until(t, func() bool { return problem.CodeOf(b.Status().Waits) == problem.StreamsFull })
	if s := b.Status(); s.Err != nil || s.Phase != bus.Reconciling {
		t.Errorf("%+v", s)
	}

	if err := os.Truncate(ballast, size-12<<20); err != nil {
		t.Fatal(err)
	}
	stored(t, b, j)
	if s := b.Status(); s.Waits != nil {
		t.Errorf("still waits: %v", s.Waits)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// fillDisk takes all the space that is left on the disk of a file and returns the
// file's size.
func fillDisk(t *testing.T, path string) (size int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); ; {
		n, err := f.Write(chunk)
		size += int64(n)
		switch {
		case errors.Is(err, syscall.ENOSPC) && len(chunk) > 4096:
			chunk = chunk[:4096] // the last pages too
		case errors.Is(err, syscall.ENOSPC):
			return size
		case err != nil:
			t.Fatal(err)
		}
	}
}
