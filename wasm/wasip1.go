package wasm

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// wasip1 is the module name of the one import profile besides none.
const wasip1 = "wasi_snapshot_preview1"

// Errno values of wasip1.
const (
	errnoSuccess = 0
	errnoBadf    = 8
	errnoFault   = 21
	errnoInval   = 28
	errnoNosys   = 52
)

// maxRandom bounds one random_get, as host work costs the module no fuel.
const maxRandom = 256

// errExit is what proc_exit ends a call with (WA-34).
var errExit = errors.New("proc_exit")

// stub is one inert import: its exact type and what it does. None reads or
// writes anything outside the calling instance.
type stub struct {
	params  []api.ValueType
	results []api.ValueType
	call    api.GoModuleFunc
}

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
)

// stubs are the sixteen functions that a Go module imports. wazero's own WASI
// is never instantiated: it has a clock, a file table and a random source.
func stubs() map[string]stub {
	errno := []api.ValueType{i32}
	refuse := func(code uint64, params ...api.ValueType) stub {
		return stub{params, errno, func(_ context.Context, _ api.Module, stack []uint64) { stack[0] = code }}
	}
	twoZeros := stub{[]api.ValueType{i32, i32}, errno, func(_ context.Context, m api.Module, stack []uint64) {
		ok := m.Memory().WriteUint32Le(uint32(stack[0]), 0) && m.Memory().WriteUint32Le(uint32(stack[1]), 0)
		stack[0] = errnoOf(ok)
	}}
	return map[string]stub{
		"args_sizes_get":      twoZeros,
		"environ_sizes_get":   twoZeros,
		"args_get":            refuse(errnoSuccess, i32, i32),
		"environ_get":         refuse(errnoSuccess, i32, i32),
		"fd_close":            refuse(errnoBadf, i32),
		"fd_fdstat_get":       refuse(errnoBadf, i32, i32),
		"fd_fdstat_set_flags": refuse(errnoBadf, i32, i32),
		"fd_prestat_get":      refuse(errnoBadf, i32, i32),
		"fd_prestat_dir_name": refuse(errnoBadf, i32, i32, i32),
		"fd_read":             refuse(errnoBadf, i32, i32, i32, i32),
		"poll_oneoff":         refuse(errnoNosys, i32, i32, i32, i32),
		"sched_yield":         refuse(errnoSuccess),
		// The clock stands still. Monotonic time is 1, because Go's runtime takes
		// 0 for a broken clock.
		"clock_time_get": {[]api.ValueType{i32, i64, i32}, errno, func(_ context.Context, m api.Module, stack []uint64) {
			now := uint64(0)
			if uint32(stack[0]) != 0 {
				now = 1
			}
			stack[0] = errnoOf(m.Memory().WriteUint64Le(uint32(stack[2]), now))
		}},
		// The same stream in every instance: a verdict must not depend on luck.
		"random_get": {[]api.ValueType{i32, i32}, errno, func(ctx context.Context, m api.Module, stack []uint64) {
			stack[0] = randomGet(instanceOf(ctx), m.Memory(), uint32(stack[0]), uint32(stack[1]))
		}},
		"fd_write": {[]api.ValueType{i32, i32, i32, i32}, errno, func(ctx context.Context, m api.Module, stack []uint64) {
			in := instanceOf(ctx)
			if in.module.host.debug == nil || uint32(stack[0]) != 2 {
				stack[0] = errnoBadf
				return
			}
			stack[0] = in.lastWords(m.Memory(), uint32(stack[1]), uint32(stack[2]), uint32(stack[3]))
		}},
		"proc_exit": {[]api.ValueType{i32}, nil, func(context.Context, api.Module, []uint64) { panic(errExit) }},
	}
}

func errnoOf(ok bool) uint64 {
	if ok {
		return errnoSuccess
	}
	return errnoFault
}

// randomGet fills memory from the instance's splitmix64 stream.
func randomGet(in *instance, mem api.Memory, ptr, n uint32) uint64 {
	if n > maxRandom {
		return errnoInval
	}
	b, ok := mem.Read(ptr, n)
	if !ok {
		return errnoFault
	}
	for len(b) > 0 {
		in.random += 0x9e3779b97f4a7c15
		z := in.random
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], z^z>>31)
		b = b[copy(b, word[:]):]
	}
	return errnoSuccess
}

// maxDebug bounds what one instance may write to Options.Debug, in bytes.
const maxDebug = 4 << 10

// lastWords is fd_write to standard error for a host with Options.Debug.
func (in *instance) lastWords(mem api.Memory, vectors, n, written uint32) uint64 {
	total := uint32(0)
	for i := range min(n, 64) {
		ptr, ok := mem.ReadUint32Le(vectors + 8*i)
		size, ok2 := mem.ReadUint32Le(vectors + 8*i + 4)
		b, ok3 := mem.Read(ptr, size)
		if !ok || !ok2 || !ok3 {
			return errnoFault
		}
		total += size
		b = b[:min(len(b), maxDebug-in.debug)]
		in.debug += len(b)
		// What a writer for people does with last words is not the module's concern.
		_, _ = in.module.host.debug.Write(b)
	}
	return errnoOf(mem.WriteUint32Le(written, total))
}

// instantiateStubs gives a runtime the inert profile.
func instantiateStubs(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(wasip1)
	for name, s := range stubs() {
		b.NewFunctionBuilder().WithGoModuleFunction(s.call, s.params, s.results).Export(name)
	}
	_, err := b.Instantiate(ctx)
	return err
}
