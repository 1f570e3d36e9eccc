package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/internal/blob"
)

// TestLeftDisturbsNobody: an agent's package.publish looks for a file while the
// node takes a delivery; what is half-written then is no crash's.
func TestLeftDisturbsNobody(t *testing.T) {
	dir := filepath.Join(tempDir(t), "blobs")
	store, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	there, _, err := store.Put(strings.NewReader("package"))
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	put := make(chan error)
	go func() {
		_, _, err := store.Put(r)
		put <- err
	}()
	if _, err := io.WriteString(w, "the first half of a webhook's body"); err != nil {
		t.Fatal(err)
	}
	file, err := left(state{blobs: dir})(there)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-put; err != nil {
		t.Errorf("another's blob was lost: %v", err)
	}
}
