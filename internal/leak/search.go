package leak

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Hit is a secret where it must not be.
type Hit struct {
	Where  string // a path, or what the caller calls it
	Offset int64
	Names  []string // of the secret
	Form   string
}

func (h Hit) String() string {
	return fmt.Sprintf("the secret %s (%s) is in %s at %d", strings.Join(h.Names, " = "), h.Form, h.Where, h.Offset)
}

// In searches bytes. Of each secret it returns the first place.
func (s *Set) In(where string, b []byte) []Hit {
	hits, _, _ := s.Read(where, bytes.NewReader(b)) // a reader of bytes does not fail
	return hits
}

// Read is In for what comes in pieces; it returns how many bytes it read.
func (s *Set) Read(where string, r io.Reader) (hits []Hit, n int64, err error) {
	const piece = 1 << 18
	found := map[*one]bool{}
	var kept []byte // the end of what was read, in which a secret may have begun
	buffer := make([]byte, 0, piece)
	for err == nil {
		s.mu.RLock()
		kept = append(buffer[:0], kept[max(0, len(kept)-s.longest+1):]...)
		s.mu.RUnlock()
		from := len(kept)
		buffer = slices.Grow(kept, piece)[:from+piece]
		var k int
		k, err = io.ReadFull(r, buffer[from:])
		kept = buffer[:from+k]
		s.mu.RLock()
		s.search(kept, func(at int, f form) {
			if !found[f.of] {
				found[f.of] = true
				hits = append(hits, Hit{Where: where, Offset: n - int64(from) + int64(at), Names: slices.Clone(f.of.names), Form: f.how})
			}
		})
		s.mu.RUnlock()
		n += int64(k)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return hits, n, err
}

// search calls hit for every form in b. Its caller holds the lock; the race
// detector would make tests ten times as slow here, which read gigabytes.
//
//go:norace
func (s *Set) search(b []byte, hit func(at int, f form)) {
	for i := 0; i+window <= len(b); i++ {
		first := binary.LittleEndian.Uint64(b[i:])
		if first == 0 {
			i += max(0, window-1-s.zeros) // files that were made long before they were full
			continue
		}
		if !s.hashes[hash(first)] {
			continue
		}
		for _, f := range s.forms[first] {
			if bytes.HasPrefix(b[i:], f.bytes) {
				hit(i, f)
			}
		}
	}
}

// Holders names the files that may hold secrets, and which: path -> name of the
// secret. Paths are as Tree meets them.
type Holders map[string][]string

// Add allows one file one secret.
func (h Holders) Add(path, name string) { h[path] = append(h[path], name) }

// Found is what a search of a tree came to.
type Found struct {
	Files int
	Bytes int64
	Cores []string // files that are a process's memory
	Hits  []Hit
	Held  map[string]int // by file that may hold a secret: how many of its own it does hold
}

// Tree searches every plain file below root, also what is compressed in it.
// Links are not followed, and what goes away meanwhile is not there.
func (s *Set) Tree(root string, holders Holders) (Found, error) {
	found := Found{Held: map[string]int{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if gone(err) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		found.Files++
		if name := d.Name(); name == "core" || strings.HasPrefix(name, "core.") {
			found.Cores = append(found.Cores, path)
		}
		in := bufio.NewReader(f)
		head, _ := in.Peek(2)
		if bytes.Equal(head, []byte{0x1f, 0x8b}) {
			if z, err := gzip.NewReader(in); err == nil {
				hits, _, _ := s.Read(path+" (inside the gzip)", z) // what ends early was searched as far as it goes
				found.Hits = append(found.Hits, hits...)
			}
		}
		hits, n, err := s.file(f, path)
		found.Bytes += n
		for _, h := range hits {
			if slices.ContainsFunc(h.Names, func(name string) bool { return slices.Contains(holders[path], name) }) {
				found.Held[path]++
				continue
			}
			found.Hits = append(found.Hits, h)
		}
		if gone(err) {
			return nil
		}
		return err
	})
	return found, err
}

// file searches what was ever written of a file: a journal is made long before it
// is full.
func (s *Set) file(f *os.File, path string) (hits []Hit, n int64, err error) {
	const data, hole = 3, 4 // SEEK_DATA, SEEK_HOLE
	for at := int64(0); ; {
		from, err := f.Seek(at, data)
		if errors.Is(err, syscall.ENXIO) {
			return hits, n, nil // nothing but a hole from here on
		}
		to := int64(math.MaxInt64)
		if err == nil {
			to, err = f.Seek(from, hole)
		}
		if err != nil { // the file system knows no holes
			from, to = at, math.MaxInt64
		}
		found, k, err := s.Read(path, io.NewSectionReader(f, from, to-from))
		for _, h := range found {
			h.Offset += from
			hits = append(hits, h)
		}
		n += k
		if err != nil || k < to-from {
			return hits, n, err
		}
		at = to
	}
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE) }
