package wasm

import (
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// mapping is one instance's linear memory, outside the Go heap: reserved at its
// full size, committed by the kernel as it is touched, given back when the
// instance closes. Growing moves and copies nothing.
type mapping struct{ b []byte }

// newMapping reserves size bytes.
func newMapping(size int) (*mapping, error) {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fault(HostError, "no memory for an instance")
	}
	return &mapping{b}, nil
}

// Allocate returns the mapping itself.
func (m *mapping) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate returns the first size bytes, nil past the reservation.
func (m *mapping) Reallocate(size uint64) []byte {
	if size > uint64(len(m.b)) {
		return nil
	}
	return m.b[:size]
}

// Free gives the memory back. It is idempotent.
func (m *mapping) Free() {
	if m.b != nil {
		// Unmapping a whole mapping of ours cannot fail.
		_ = syscall.Munmap(m.b)
		m.b = nil
	}
}
