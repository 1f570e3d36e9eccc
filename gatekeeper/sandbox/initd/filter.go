//go:build linux

package initd

import (
	"fmt"
	"runtime"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Answers of the filter.
const (
	allow  = seccomp.ActionAllow
	refuse = seccomp.ActionErrno                               // EPERM
	nosys  = seccomp.ActionErrno | seccomp.Action(unix.ENOSYS) // "this kernel has no such call"
	kill   = seccomp.ActionKillProcess

	// pretend answers success and does nothing: errno 0. The assembler turns
	// that into EPERM, so it is written as an errno that no call has, and
	// replaced at the end.
	pretend = seccomp.ActionErrno | 0xfff
)

// Offsets in struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	x32Bit    = 0x40000000
)

// filter builds the agent's system call filter for this machine:
//
//   - another architecture's entry (int 0x80) and x32 numbers kill the process
//     (SB-24), before anything else is looked at;
//   - a call of the list conditions is answered by its arguments;
//   - a call of the list allowed passes;
//   - a number above every call this program knows is ENOSYS, so that a newer
//     libc falls back instead of giving up;
//   - everything else is EPERM.
func filter() ([]bpf.RawInstruction, error) {
	info, err := arch.GetInfo(runtime.GOARCH)
	if err != nil {
		return nil, fmt.Errorf("no system call table for %s: %w", runtime.GOARCH, err)
	}
	p := seccomp.NewProgram()
	for _, c := range conditions {
		number, known := info.SyscallNames[c.call]
		if !known {
			continue // not a call of this architecture: nothing to ask for
		}
		next := p.NewLabel()
		p.JmpIfTrue(bpf.JumpNotEqual, uint32(number), next)
		c.rule(&p)
		p.SetLabel(next)
	}
	pass, highest := p.NewLabel(), 0
	for number := range info.SyscallNumbers {
		highest = max(highest, number)
	}
	unknown := p.NewLabel()
	for _, call := range allowed {
		if number, known := info.SyscallNames[call]; known {
			p.JmpIfTrue(bpf.JumpEqual, uint32(number), pass)
		}
	}
	p.JmpIfTrue(bpf.JumpGreaterThan, uint32(highest), unknown)
	p.Ret(refuse)
	p.SetLabel(unknown)
	p.Ret(nosys)
	p.SetLabel(pass)
	p.Ret(allow)
	body, err := p.Assemble()
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	for i, in := range body {
		if ret, ok := in.(bpf.RetConstant); ok && ret.Val == uint32(pretend) {
			body[i] = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO}
		}
	}

	// The library alone sends a foreign architecture to its default answer.
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(kill)},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
	}
	if runtime.GOARCH == "amd64" {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
			bpf.RetConstant{Val: uint32(kill)})
	}
	return bpf.Assemble(append(program, body...))
}

// install puts the filter on every thread of this process.
func install(program []bpf.RawInstruction) error {
	filters := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filters[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}
	r, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	if r != 0 {
		return fmt.Errorf("seccomp: thread %d cannot take the filter", r)
	}
	return nil
}

// condition answers one call by its arguments. Its rule ends in a return on
// every path, because it overwrites the loaded call number.
type condition struct {
	call string
	rule func(*seccomp.Program)
}

// The kernel reads these arguments as 32-bit values. A rule that allows some
// values compares all 64 bits, and one that refuses some compares the low 32,
// so that garbage in the upper half never widens anything.

// only allows the call when argument arg is one of values.
func only(arg uint32, values ...uint32) func(*seccomp.Program) {
	return func(p *seccomp.Program) {
		no, yes := p.NewLabel(), p.NewLabel()
		p.LdHi(arg)
		p.JmpIfTrue(bpf.JumpNotEqual, 0, no)
		p.LdLo(arg)
		for _, v := range values {
			p.JmpIfTrue(bpf.JumpEqual, v, yes)
		}
		p.SetLabel(no)
		p.Ret(refuse)
		p.SetLabel(yes)
		p.Ret(allow)
	}
}

// never refuses the call when argument arg is one of values.
func never(arg uint32, values ...uint32) func(*seccomp.Program) {
	return func(p *seccomp.Program) {
		no := p.NewLabel()
		p.LdLo(arg)
		for _, v := range values {
			p.JmpIfTrue(bpf.JumpEqual, v, no)
		}
		p.Ret(allow)
		p.SetLabel(no)
		p.Ret(refuse)
	}
}

// without refuses the call when argument arg has any bit of mask.
func without(arg, mask uint32) func(*seccomp.Program) {
	return func(p *seccomp.Program) {
		no := p.NewLabel()
		p.LdLo(arg)
		p.JmpIfTrue(bpf.JumpBitsSet, mask, no)
		p.Ret(allow)
		p.SetLabel(no)
		p.Ret(refuse)
	}
}

// always answers the call with a.
func always(a seccomp.Action) func(*seccomp.Program) {
	return func(p *seccomp.Program) { p.Ret(a) }
}

// sockets allows UNIX, INET and INET6 with TCP or UDP, and NETLINK_ROUTE.
// AF_VSOCK and others are not confined by a network namespace (SB-12, SB-13,
// SB-14).
func sockets(p *seccomp.Program) {
	const typeMask = 0xf // the rest of the type are SOCK_CLOEXEC and SOCK_NONBLOCK
	no, yes, unixFamily, inet, netlink := p.NewLabel(), p.NewLabel(), p.NewLabel(), p.NewLabel(), p.NewLabel()
	p.LdHi(0)
	p.JmpIfTrue(bpf.JumpNotEqual, 0, no)
	p.LdLo(0)
	p.JmpIfTrue(bpf.JumpEqual, unix.AF_UNIX, unixFamily)
	p.JmpIfTrue(bpf.JumpEqual, unix.AF_INET, inet)
	p.JmpIfTrue(bpf.JumpEqual, unix.AF_INET6, inet)
	p.JmpIfTrue(bpf.JumpEqual, unix.AF_NETLINK, netlink)
	p.SetLabel(no)
	p.Ret(refuse)

	p.SetLabel(inet)
	// Protocols first: 0, TCP, UDP. Then no type but STREAM (1) and DGRAM (2):
	// bits 2 and 3 clear and the value not 3 (RAW) or 0.
	proto, raw := p.NewLabel(), p.NewLabel()
	p.LdHi(2)
	p.JmpIfTrue(bpf.JumpNotEqual, 0, raw)
	p.LdLo(2)
	p.JmpIfTrue(bpf.JumpEqual, 0, proto)
	p.JmpIfTrue(bpf.JumpEqual, unix.IPPROTO_TCP, proto)
	p.JmpIfTrue(bpf.JumpEqual, unix.IPPROTO_UDP, proto)
	p.SetLabel(raw)
	p.Ret(refuse)
	p.SetLabel(proto)
	bad := p.NewLabel()
	p.LdLo(1)
	p.JmpIfTrue(bpf.JumpBitsSet, typeMask&^3, bad)
	for _, flags := range []uint32{0, unix.SOCK_CLOEXEC, unix.SOCK_NONBLOCK, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK} {
		p.JmpIfTrue(bpf.JumpEqual, unix.SOCK_STREAM|flags, yes)
		p.JmpIfTrue(bpf.JumpEqual, unix.SOCK_DGRAM|flags, yes)
	}
	p.SetLabel(bad)
	p.Ret(refuse)

	p.SetLabel(netlink)
	other := p.NewLabel()
	p.LdHi(2)
	p.JmpIfTrue(bpf.JumpNotEqual, 0, other)
	p.LdLo(2)
	p.JmpIfTrue(bpf.JumpEqual, unix.NETLINK_ROUTE, yes)
	p.SetLabel(other)
	p.Ret(refuse)

	p.SetLabel(unixFamily)
	p.SetLabel(yes)
	p.Ret(allow)
}

// ownLimits allows prlimit64 on the caller alone (SB-28), and answers a change
// of RLIMIT_CORE with success that changes nothing: programs lower it to 0 out
// of caution, which would wake the host's core handler again (SB-08).
func ownLimits(p *seccomp.Program) {
	no, yes, reading := p.NewLabel(), p.NewLabel(), p.NewLabel()
	p.LdLo(0)
	p.JmpIfTrue(bpf.JumpNotEqual, 0, no)
	p.LdLo(1)
	p.JmpIfTrue(bpf.JumpNotEqual, unix.RLIMIT_CORE, yes)
	p.LdLo(2)
	p.JmpIfTrue(bpf.JumpNotEqual, 0, reading)
	p.LdHi(2)
	p.JmpIfTrue(bpf.JumpNotEqual, 0, reading)
	p.SetLabel(yes)
	p.Ret(allow)
	p.SetLabel(no)
	p.Ret(refuse)
	p.SetLabel(reading) // a new value is given
	p.Ret(pretend)
}

// coreLimit is the same for setrlimit.
func coreLimit(p *seccomp.Program) {
	core := p.NewLabel()
	p.LdLo(0)
	p.JmpIfTrue(bpf.JumpEqual, unix.RLIMIT_CORE, core)
	p.Ret(allow)
	p.SetLabel(core)
	p.Ret(pretend)
}

// newNamespaces are the CLONE_NEW flags that clone takes; unshare also takes
// CLONE_NEWTIME, whose bit is part of the exit signal in clone.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

const tioclinux = 0x541C

var conditions = []condition{
	// SB-22. clone3 hides its flags behind a pointer; libc falls back to clone.
	{"clone3", always(nosys)},
	{"clone", without(0, newNamespaces)},
	{"unshare", without(0, newNamespaces|unix.CLONE_NEWTIME)},

	{"socket", sockets},
	{"socketpair", only(0, unix.AF_UNIX)},

	// SB-27. The kernel already protects PID 1 (see protectSelf); the filter is
	// the second lock. pidfd_send_signal is not allowed at all.
	{"kill", never(0, 1)},
	{"tkill", never(0, 1)},
	{"tgkill", never(0, 1)},
	{"rt_sigqueueinfo", never(0, 1)},
	{"rt_tgsigqueueinfo", never(0, 1)},
	{"pidfd_open", never(0, 1)},

	// SB-28.
	{"prlimit64", ownLimits},
	{"setrlimit", coreLimit},
	{"setpriority", never(1, 1)},
	{"sched_setaffinity", never(0, 1)},
	{"sched_setscheduler", never(0, 1)},
	{"sched_setparam", never(0, 1)},
	{"sched_setattr", never(0, 1)},
	{"ioprio_set", never(1, 1)},

	// SB-26. A debugger may follow its own children; nothing may be attached to.
	{"ptrace", never(0, unix.PTRACE_ATTACH, unix.PTRACE_SEIZE)},

	// Typing into a terminal somebody else reads from.
	{"ioctl", never(1, unix.TIOCSTI, tioclinux)},

	// Execution domains of other systems have had bugs of their own.
	{"personality", only(0, 0, 0x0008, 0x20000, 0x20008, 0x40000, 0xffffffff)},
}
