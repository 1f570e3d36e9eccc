//go:build wasip1

package gatehouse

import (
	"encoding/json"
	"unsafe"
)

var (
	registered Enforcer
	input      []byte // the message being written by the host
	output     []byte // keeps the last answer reachable
)

// Register makes e the module's enforcer. Call it once, in the initialiser of a
// package variable: main is never run.
func Register(e Enforcer) struct{} {
	registered = e
	return struct{}{}
}

//go:wasmexport gatehouse_abi_v1
func exportABI() int32 { return 0 }

//go:wasmexport gatehouse_alloc
func exportAlloc(n int32) unsafe.Pointer {
	if n <= 0 {
		return nil
	}
	input = make([]byte, n)
	return unsafe.Pointer(&input[0])
}

//go:wasmexport gatehouse_configure
func exportConfigure(p unsafe.Pointer, n int32) int32 {
	return configure(registered, unsafe.Slice((*byte)(p), n))
}

//go:wasmexport gatehouse_decide
func exportDecide(p unsafe.Pointer, n int32) int64 {
	return packed(decide(registered, unsafe.Slice((*byte)(p), n)))
}

//go:wasmexport gatehouse_describe
func exportDescribe() int64 {
	b, err := json.Marshal(registered.Describe())
	if err != nil {
		return 0
	}
	return packed(b)
}

func packed(b []byte) int64 {
	if len(b) == 0 {
		return 0
	}
	output = b
	return int64(uintptr(unsafe.Pointer(&b[0])))<<32 | int64(len(b))
}
