//go:build wasip1

// Command guest is the built-in enforcers as one WebAssembly module of ABI v1.
// It only moves bytes between linear memory and package policies.
package main

import (
	"unsafe"

	"gatehouse/wasm/policies"
)

// inputSize is the largest message, of either kind: the host's input limit.
// Untouched pages of the buffer cost nothing.
const inputSize = 1 << 20

var (
	input  [inputSize]byte
	judge  *policies.Judge // nil until configured
	result []byte          // keeps what the last call returned reachable
)

func main() {}

// abi returns the feature bits: none.
//
//go:wasmexport gatehouse_abi_v1
func abi() int32 { return 0 }

// alloc returns the one input buffer: judging allocates nothing.
//
//go:wasmexport gatehouse_alloc
func alloc(n int32) unsafe.Pointer {
	if n < 0 || n > inputSize {
		return nil
	}
	return unsafe.Pointer(&input)
}

//go:wasmexport gatehouse_configure
func configure(p unsafe.Pointer, n int32) int32 {
	j, status := policies.Configure(unsafe.Slice((*byte)(p), n))
	judge = j
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
