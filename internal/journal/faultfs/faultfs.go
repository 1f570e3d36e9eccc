package faultfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gatehouse/internal/journal"
)

// Page is the unit in which a crash loses what was not synced. It is the sector
// and not the page size, which makes the crash model the harder one.
const Page = 512

// Op is an operation that can fail.
type Op string

// The operations.
const (
	Write    Op = "write"
	Sync     Op = "sync"
	Create   Op = "create"
	Rename   Op = "rename"
	SyncDir  Op = "syncdir"
	Truncate Op = "truncate"
	Allocate Op = "allocate"
	Fill     Op = "fill"
	Read     Op = "read"
)

// Fault makes operations fail.
type Fault struct {
	Op    Op
	Name  string // suffix of the file's name, "" for all
	After int    // operations that still succeed
	Times int    // operations that fail then, 0 for all
	Err   error  // nil with Short: a short write that reports no error
	Short int    // bytes that a failing write still writes
}

// FS is a journal.FS in memory. Its zero value is an empty disk without limits.
type FS struct {
	mu       sync.Mutex
	live     map[string]*inode // what programs see
	stable   map[string]*inode // the names that are on the disk
	log      []change          // changes of names since the last SyncDir, oldest first
	locked   map[string]bool
	faults   []*Fault
	capacity int64 // bytes, 0 = no limit
	readOnly bool
	syncs    int
}

// inode is one file: what the page cache holds and what the disk holds.
type inode struct {
	cache []byte
	disk  []byte
	dirty map[int64]bool // pages that differ, or may
}

// change is one change of the names.
type change struct {
	name string
	node *inode // nil: removed
	from string // of a rename
}

func (f *FS) init() {
	if f.live == nil {
		f.live, f.stable, f.locked = map[string]*inode{}, map[string]*inode{}, map[string]bool{}
	}
}

// Inject adds a fault.
func (f *FS) Inject(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &fault)
}

// Heal removes all faults.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// SetCapacity limits the bytes that all files take together; more is ENOSPC.
func (f *FS) SetCapacity(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = n
}

// SetReadOnly makes every change EROFS.
func (f *FS) SetReadOnly(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readOnly = on
}

// Used returns the bytes that all files take.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used()
}

func (f *FS) used() (n int64) {
	for _, node := range f.live {
		n += int64(len(node.cache))
	}
	return n
}

// Syncs counts the file syncs that succeeded.
func (f *FS) Syncs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.syncs
}

// Clone returns a copy without faults and locks, as after an orderly reboot.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &FS{}
	c.init()
	for name, node := range f.live {
		n := &inode{cache: slices.Clone(node.cache), disk: slices.Clone(node.cache), dirty: map[int64]bool{}}
		c.live[name], c.stable[name] = n, n
	}
	return c
}

// Crash returns what a power cut leaves: of the names, what was synced and a
// random beginning of the later changes; of each file, what was synced and a
// random choice of the other pages, with the old size or the new one.
func (f *FS) Crash(r *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.init()
	names := maps.Clone(f.stable)
	for _, c := range f.log[:r.IntN(len(f.log)+1)] {
		c.apply(names)
	}
	after := &FS{}
	after.init()
	for name, node := range names {
		b := node.crash(r)
		n := &inode{cache: b, disk: slices.Clone(b), dirty: map[int64]bool{}}
		after.live[name], after.stable[name] = n, n
	}
	return after
}

func (n *inode) crash(r *rand.Rand) []byte {
	size := len(n.disk)
	if len(n.cache) != size && r.IntN(2) == 0 {
		size = len(n.cache)
	}
	b := make([]byte, size)
	copy(b, n.disk)
	// All pages, none, or a choice: a plain coin for each would almost never
	// leave a large group whole or wholly absent.
	mode := r.IntN(4)
	for _, page := range slices.Sorted(maps.Keys(n.dirty)) {
		if mode == 0 || (mode > 1 && r.IntN(2) == 0) {
			continue
		}
		start := page * Page
		stop := min(start+Page, int64(len(n.cache)), int64(size))
		if start < stop {
			copy(b[start:stop], n.cache[start:stop])
		}
	}
	return b
}

func (c change) apply(names map[string]*inode) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.node == nil {
		delete(names, c.name)
		return
	}
	names[c.name] = c.node
}

// Names lists the files whose base names end in suffix, sorted.
func (f *FS) Names(suffix string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for name := range f.live {
		if strings.HasSuffix(name, suffix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Bytes returns a copy of a file's bytes.
func (f *FS) Bytes(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.live[name].cache)
}

// Put replaces a file's bytes, in the cache and on the disk.
func (f *FS) Put(name string, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.init()
	n := &inode{cache: slices.Clone(b), disk: slices.Clone(b), dirty: map[int64]bool{}}
	f.live[name], f.stable[name] = n, n
}

// Delete removes a file from the cache and the disk.
func (f *FS) Delete(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, name)
	delete(f.stable, name)
}

// Flip inverts one bit of a file.
func (f *FS) Flip(name string, bit int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.live[name]
	n.cache[bit/8] ^= 1 << (bit % 8)
	copy(n.disk, n.cache)
}

// fault returns the fault that an operation meets, if any. f.mu is held.
func (f *FS) fault(op Op, name string) *Fault {
	for _, x := range f.faults {
		if x.Op != op || !strings.HasSuffix(name, x.Name) {
			continue
		}
		if x.After > 0 {
			x.After--
			continue
		}
		if x.Times > 0 {
			if x.Times--; x.Times == 0 {
				x.Times = -1
			}
			return x
		}
		if x.Times == 0 {
			return x
		}
	}
	return nil
}

// changing returns the error that a change of names meets. f.mu is held.
func (f *FS) changing(op Op, name string) error {
	f.init()
	if f.readOnly {
		return &fs.PathError{Op: string(op), Path: name, Err: syscall.EROFS}
	}
	if x := f.fault(op, name); x != nil {
		return &fs.PathError{Op: string(op), Path: name, Err: x.Err}
	}
	return nil
}

// OpenFile opens or creates a file.
func (f *FS) OpenFile(name string, flag int, _ fs.FileMode) (journal.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.init()
	node, ok := f.live[name]
	switch {
	case ok && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case !ok && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case !ok:
		if err := f.changing(Create, name); err != nil {
			return nil, err
		}
		node = &inode{dirty: map[int64]bool{}}
		f.live[name] = node
		f.log = append(f.log, change{name: name, node: node})
	case flag&os.O_TRUNC != 0:
		node.resize(0)
	}
	return &file{fs: f, name: name, node: node}, nil
}

// ReadDir lists a folder.
func (f *FS) ReadDir(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for name := range f.live {
		if filepath.Dir(name) == filepath.Clean(dir) {
			out = append(out, filepath.Base(name))
		}
	}
	slices.Sort(out)
	return out, nil
}

// MkdirAll does nothing: folders are not modelled.
func (f *FS) MkdirAll(string, fs.FileMode) error { return nil }

// Remove removes a file.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.init()
	if _, ok := f.live[name]; !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if f.readOnly {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.EROFS}
	}
	delete(f.live, name)
	f.log = append(f.log, change{name: name})
	return nil
}

// Rename moves a file.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.changing(Rename, to); err != nil {
		return err
	}
	node, ok := f.live[from]
	if !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	c := change{name: to, node: node, from: from}
	c.apply(f.live)
	f.log = append(f.log, c)
	return nil
}

// SyncDir makes all changes of names durable.
func (f *FS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.changing(SyncDir, name); err != nil {
		return err
	}
	f.stable, f.log = maps.Clone(f.live), nil
	return nil
}

// Lock takes a lock.
func (f *FS) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.init()
	if f.locked[name] {
		return nil, journal.ErrLocked
	}
	f.locked[name] = true
	return unlock(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.locked, name)
	}), nil
}

type unlock func()

func (u unlock) Close() error { u(); return nil }

// file is an open file.
type file struct {
	fs   *FS
	name string
	node *inode
}

func (n *inode) mark(from, to int64) {
	for p := from / Page; p*Page < to; p++ {
		n.dirty[p] = true
	}
}

func (n *inode) resize(size int64) {
	old := int64(len(n.cache))
	if size < old {
		n.cache = n.cache[:size:size]
	} else {
		n.cache = append(n.cache, make([]byte, size-old)...)
	}
	n.mark(min(old, size), max(old, size))
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if x := f.fs.fault(Read, f.name); x != nil {
		return 0, x.Err
	}
	if off >= int64(len(f.node.cache)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.cache[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.readOnly {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.EROFS}
	}
	var err error
	if x := f.fs.fault(Write, f.name); x != nil {
		p, err = p[:min(x.Short, len(p))], x.Err
	}
	if grown := off + int64(len(p)) - int64(len(f.node.cache)); grown > 0 {
		if f.fs.full(grown) {
			return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
		}
		f.node.resize(off + int64(len(p)))
	}
	copy(f.node.cache[off:], p)
	f.node.mark(off, off+int64(len(p)))
	return len(p), err
}

func (f *FS) full(more int64) bool { return f.capacity > 0 && f.used()+more > f.capacity }

func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.readOnly {
		return &fs.PathError{Op: "sync", Path: f.name, Err: syscall.EROFS}
	}
	if x := f.fs.fault(Sync, f.name); x != nil {
		// As Linux has it: the pages are clean now, and not on the disk.
		clear(f.node.dirty)
		return &fs.PathError{Op: "sync", Path: f.name, Err: x.Err}
	}
	n := f.node
	if more := len(n.cache) - len(n.disk); more > 0 {
		n.disk = append(n.disk, make([]byte, more)...)
	}
	n.disk = n.disk[:len(n.cache)]
	for p := range n.dirty {
		start, stop := p*Page, min((p+1)*Page, int64(len(n.cache)))
		if start < stop {
			copy(n.disk[start:stop], n.cache[start:stop])
		}
	}
	clear(n.dirty)
	f.fs.syncs++
	return nil
}

func (f *file) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.changing(Truncate, f.name); err != nil {
		return err
	}
	f.node.resize(size)
	return nil
}

func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.node.cache)), nil
}

// Written is now: files here have no times.
func (f *file) Written() (time.Time, error) { return time.Now(), nil }

func (f *file) Allocate(off, n int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.changing(Allocate, f.name); err != nil {
		return err
	}
	grown := off + n - int64(len(f.node.cache))
	if grown <= 0 {
		return nil
	}
	if f.fs.full(grown) {
		return &fs.PathError{Op: "allocate", Path: f.name, Err: syscall.ENOSPC}
	}
	f.node.resize(off + n)
	return nil
}

// Fill writes zeros as any write is written: a crash keeps some of their pages. It
// refuses to write over anything else or past what was allocated, which the
// caller must never ask for.
func (f *file) Fill(off, n int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.changing(Fill, f.name); err != nil {
		return err
	}
	if off+n > int64(len(f.node.cache)) {
		return fmt.Errorf("fill of %s past its end", f.name)
	}
	for _, b := range f.node.cache[off : off+n] {
		if b != 0 {
			return fmt.Errorf("fill of %s over what is written", f.name)
		}
	}
	f.node.mark(off, off+n)
	return nil
}

func (f *file) Close() error { return nil }

// String describes the files, for messages of failed tests.
func (f *FS) String() string {
	var b strings.Builder
	for _, name := range f.Names("") {
		fmt.Fprintf(&b, "%s %d bytes\n", filepath.Base(name), len(f.Bytes(name)))
	}
	return b.String()
}
