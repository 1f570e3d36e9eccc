//go:build wasip1

// Command guest is the built-in enforcers as one WebAssembly module of ABI v1.
// It only moves bytes between linear memory and package policies.
package main

import (
	"unsafe"

	"gatehouse/wasm/policies"
)

// inputSize is the largest decide message: the host's input limit.
const inputSize = 64 << 10

var (
	input  [inputSize]byte
	large  []byte          // configure messages only
	judge  *policies.Judge // nil until configured
	result []byte          // keeps what the last call returned reachable
)

func main() {}

// abi returns the feature bits: none.
//
//go:wasmexport gatehouse_abi_v1
func abi() int32 { return 0 }

// alloc returns the fixed input buffer, or a fresh one for a configure message
// that does not fit in it.
//
//go:wasmexport gatehouse_alloc
func alloc(n int32) unsafe.Pointer {
	if n < 0 {
		return nil
	}
	if n <= inputSize {
		return unsafe.Pointer(&input)
	}
	large = make([]byte, n)
	return unsafe.Pointer(&large[0])
}

//go:wasmexport gatehouse_configure
func configure(p unsafe.Pointer, n int32) int32 {
	j, status := policies.Configure(unsafe.Slice((*byte)(p), n))
	judge, large = j, nil
	return int32(status)
}

//go:wasmexport gatehouse_decide
func decide(p unsafe.Pointer, n int32) int64 {
	if judge == nil {
		return 0
	}
	a := judge.Decide(unsafe.Slice((*byte)(p), n))
	if a == nil {
		return 0
	}
	return packed(a.JSON)
}

//go:wasmexport gatehouse_describe
func describe() int64 {
	if judge == nil {
		return 0
	}
	return packed(judge.Describe())
}

func packed(b []byte) int64 {
	result = b
	return int64(uintptr(unsafe.Pointer(&b[0])))<<32 | int64(len(b))
}
