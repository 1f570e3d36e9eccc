package blob_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"gatehouse/internal/blob"
	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/problem"
)

func open(t *testing.T, dir string, o ...blob.Option) *blob.Store {
	t.Helper()
	s, err := blob.Open(dir, o...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func put(t *testing.T, s *blob.Store, b []byte) string {
	t.Helper()
	name, n, err := s.Put(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if name != digest(b) || n != int64(len(b)) {
		t.Fatalf("put %d bytes as %s, want %d as %s", n, name, len(b), digest(b))
	}
	return name
}

func get(s *blob.Store, name string) ([]byte, error) {
	r, err := s.Get(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func TestPutAndGet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "blobs")
	s := open(t, dir)
	for name, b := range map[string][]byte{"empty": nil, "small": []byte("hello"), "large": bytes.Repeat([]byte("x"), 3<<20)} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // putting again is fine
				got, err := get(s, put(t, s, b))
				if err != nil || !bytes.Equal(got, b) {
					t.Fatalf("got %d bytes, %v; put %d", len(got), err, len(b))
				}
			}
		})
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v %v: want three blobs and nothing else", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestDamagedBlob(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	body := bytes.Repeat([]byte("b"), 100<<10)
	name := put(t, s, body)
	flipped := bytes.Clone(body)
	flipped[len(flipped)-1] ^= 1
	for what, b := range map[string][]byte{"last bit flipped": flipped, "cut": body[:len(body)-1], "empty": nil, "longer": append(bytes.Clone(body), 0)} {
		t.Run(what, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(name); problem.CodeOf(err) != problem.BlobDamaged {
				t.Fatalf("Get of a damaged blob: %v", err)
			}
		})
	}
	put(t, s, body)
	if got, err := get(s, name); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("putting it again does not repair it: %v", err)
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	outside := filepath.Join(dir, "..", "outside")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "../outside", ".tmp-x", strings.ToUpper(digest([]byte("x"))), digest(nil)[:62], digest(nil) + "00", "/etc/passwd", strings.Repeat("g", 64)} {
		if _, err := s.Get(name); problem.CodeOf(err) != problem.BlobNameInvalid {
			t.Errorf("Get(%q): %v, want %s", name, err, problem.BlobNameInvalid)
		}
	}
	if _, err := s.Get(digest([]byte("absent"))); problem.CodeOf(err) != problem.NotFound || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of an absent blob: %v", err)
	}
	// A link in the folder leads nowhere, even to the right bytes.
	if err := os.Symlink(outside, filepath.Join(dir, digest([]byte("x")))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(digest([]byte("x"))); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("Get through a symbolic link: %v", err)
	}
}

func TestLimitAndLeftovers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".tmp-old"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, blob.MaxBytes(10))
	put(t, s, []byte("0123456789"))
	if _, _, err := s.Put(strings.NewReader("0123456789x")); problem.CodeOf(err) != problem.BlobTooLarge {
		t.Fatalf("over the limit: %v", err)
	}
	if _, _, err := s.Put(iotest.ErrReader(errors.New("client is gone"))); err == nil {
		t.Fatal("a broken reader was stored")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Fatalf("%v %v: want the one blob and no temporary file", entries, err)
	}
}

func TestConcurrentPuts(t *testing.T) {
	s := open(t, t.TempDir())
	var g sync.WaitGroup
	for i := range 32 {
		g.Go(func() {
			b := []byte(fmt.Sprint(i % 4))
			name, _, err := s.Put(bytes.NewReader(b))
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := get(s, name); err != nil || !bytes.Equal(got, b) {
				t.Errorf("%q %v", got, err)
			}
		})
	}
	g.Wait()
}

// faulty puts blobs on the faulty disk of the journal's tests.
type faulty struct{ *faultfs.FS }

type faultyFile struct {
	f   journal.File
	off int64
}

func (d faulty) Create(name string) (blob.File, error) {
	f, err := d.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	return &faultyFile{f: f}, err
}

func (d faulty) Open(name string) (blob.File, error) {
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	return &faultyFile{f: f}, err
}

func (d faulty) Written(name string) (time.Time, error) {
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return time.Time{}, err
	}
	written, err := f.Written()
	return written, errors.Join(err, f.Close())
}

func (f *faultyFile) Read(p []byte) (int, error) {
	n, err := f.f.ReadAt(p, f.off)
	f.off += int64(n)
	return n, err
}

func (f *faultyFile) Write(p []byte) (int, error) {
	n, err := f.f.WriteAt(p, f.off)
	f.off += int64(n)
	return n, err
}

func (f *faultyFile) Seek(int64, int) (int64, error) { f.off = 0; return 0, nil }
func (f *faultyFile) Sync() error                    { return f.f.Sync() }
func (f *faultyFile) Close() error                   { return f.f.Close() }

// RC-41: whatever a power cut takes, a blob that Put reported is there and
// whole, and any other is whole, damaged and refused, or absent.
func TestPowerCut(t *testing.T) {
	t.Run("RC-41_power_cut", func(t *testing.T) {
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 0))
			disk := &faultfs.FS{}
			s := open(t, "blobs", blob.Files(faulty{disk}))
			stored := map[string]bool{}
			for i := range 4 {
				b := bytes.Repeat([]byte{byte(i)}, r.IntN(3000))
				fails := []faultfs.Op{"", faultfs.Write, faultfs.Sync, faultfs.Rename, faultfs.SyncDir, faultfs.Create}[r.IntN(6)]
				if fails != "" {
					disk.Inject(faultfs.Fault{Op: fails, Err: syscall.EIO, Short: r.IntN(600)})
				}
				name, _, err := s.Put(bytes.NewReader(b))
				if err == nil {
					stored[name] = true
				}
				if reached := fails == faultfs.Write && len(b) == 0; fails != "" && err == nil && !reached {
					t.Fatalf("seed %d: Put succeeded although %s failed", seed, fails)
				}
				disk.Heal()
			}
			after := open(t, "blobs", blob.Files(faulty{disk.Crash(r)}))
			for name := range stored {
				if b, err := get(after, name); err != nil || digest(b) != name {
					t.Fatalf("seed %d: stored blob %s after the crash: %v", seed, name, err)
				}
			}
		}
	})
}

func TestFullDisk(t *testing.T) {
	disk := &faultfs.FS{}
	s := open(t, "blobs", blob.Files(faulty{disk}))
	first := put(t, s, []byte("first"))
	disk.SetCapacity(100)
	if _, _, err := s.Put(bytes.NewReader(make([]byte, 200))); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("put on a full disk: %v", err)
	}
	disk.SetCapacity(0)
	put(t, s, make([]byte, 200))
	if _, err := get(s, first); err != nil {
		t.Fatal(err)
	}
	if names := disk.Names(""); len(names) != 2 {
		t.Fatalf("files left: %v", names)
	}
}

// TestRemove: a blob that is put again is young again, whoever wants it gone.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	old, again, young := put(t, s, []byte("old")), put(t, s, []byte("again")), put(t, s, []byte("young"))
	limit := time.Now().Add(-time.Hour)
	for _, name := range []string{old, again} {
		at := limit.Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	names, err := s.Old(limit)
	if err != nil || len(names) != 2 || !slices.Contains(names, old) || !slices.Contains(names, again) {
		t.Fatalf("old ones: %v, %v", names, err)
	}
	put(t, s, []byte("again"))
	for name, want := range map[string]bool{old: true, again: false, young: false} {
		gone, err := s.Remove(name, limit)
		if err != nil || gone != want {
			t.Errorf("%s: removed %v, %v", name, gone, err)
		}
		if _, err := get(s, name); (err == nil) == want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "../" + young, strings.ToUpper(young), young[1:]} {
		if _, err := s.Remove(name, limit); problem.CodeOf(err) != problem.BlobNameInvalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
