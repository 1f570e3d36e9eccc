//go:build linux

package probe

import (
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// call is a system call that the filter must refuse whatever it is asked. Its
// arguments are such that success would do no lasting harm.
type call struct {
	name string
	args [6]uintptr
}

func c(name string, args ...uintptr) call {
	k := call{name: name}
	copy(k.args[:], args)
	return k
}

// make makes the call. A new descriptor is closed.
func (k call) make() error {
	info, err := arch.GetInfo(runtime.GOARCH)
	if err != nil {
		return err
	}
	number, known := info.SyscallNames[k.name]
	if !known {
		return unix.ENOSYS
	}
	r, _, e := syscall.Syscall6(uintptr(number), k.args[0], k.args[1], k.args[2], k.args[3], k.args[4], k.args[5])
	if e != 0 {
		return e
	}
	if opens[k.name] {
		_ = unix.Close(int(r))
	}
	return nil
}

var opens = map[string]bool{
	"io_uring_setup": true, "userfaultfd": true, "perf_event_open": true, "bpf": true, "fsopen": true, "open_tree": true,
	"fanotify_init": true, "pidfd_getfd": true, "open_by_handle_at": true,
}

// Strings and structures that calls point to. They stay where they are.
var (
	empty = [1]byte{}
	slash = [2]byte{'/', 0}
	tmpfs = [6]byte{'t', 'm', 'p', 'f', 's', 0}
	user  = [5]byte{'u', 's', 'e', 'r', 0}
	block [512]byte
	ring  [256]byte // struct io_uring_params
	perf  = [128]byte{1, 0, 0, 0, 128}
	when  = [4]int64{}
	iov   = unix.Iovec{Base: &block[0], Len: 8}
)

func at[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// group is one case made of calls.
type group struct {
	id, name string
	calls    []call
}

// processKeyring is KEY_SPEC_PROCESS_KEYRING, -2: a key that a control manages
// to add dies with its process.
const processKeyring = ^uintptr(1)

var groups = []group{
	{"SB-07", "kernel keyrings", []call{
		c("keyctl", 0, processKeyring, 1), c("add_key", at(&user), at(&user), at(&block), 1, processKeyring), c("request_key", at(&user), at(&user), 0, 0),
	}},
	{"SB-22", "enter another namespace", []call{c("setns", 0, 0)}},
	{"SB-23", "change the mount tree", []call{
		c("mount", at(&tmpfs), at(&slash), at(&tmpfs), 0, 0), c("umount2", at(&slash), unix.MNT_DETACH), c("pivot_root", at(&slash), at(&slash)),
		c("chroot", at(&slash)), c("open_tree", 0, at(&slash), 1), c("move_mount", 0, at(&empty), 0, at(&slash), 0),
		c("fsopen", at(&tmpfs), 0), c("fsmount", 0, 0, 0), c("fspick", 0, at(&slash), 0), c("fsconfig", 0, 0, 0, 0, 0), c("mount_setattr", 0, at(&slash), 0, 0, 0),
	}},
	{"SB-25", "kernel interfaces that are no agent's business", []call{
		c("bpf", 0, at(&block), 8), c("perf_event_open", at(&perf), 0, ^uintptr(0), ^uintptr(0), 0), c("io_uring_setup", 1, at(&ring)),
		c("userfaultfd", 0), c("kexec_load", 0, 0, 0, ^uintptr(0)), c("init_module", 0, 0, at(&empty)), c("finit_module", ^uintptr(0), at(&empty), 0),
		c("delete_module", at(&empty), 0), c("iopl", 3), c("ioperm", 0, 1, 1), c("swapon", at(&empty), 0), c("swapoff", at(&empty)),
		c("reboot", 0, 0, 0, 0), c("acct", at(&empty)), c("quotactl", 0, 0, 0, 0), c("open_by_handle_at", 0, 0, 0), c("fanotify_init", 0, 0),
		c("lookup_dcookie", 0, 0, 0), c("vhangup"), c("modify_ldt", 0, 0, 0),
	}},
	{"SB-26", "reach into PID 1", []call{
		c("ptrace", unix.PTRACE_ATTACH, 1), c("ptrace", unix.PTRACE_SEIZE, 1), c("process_vm_readv", 1, at(&iov), 1, at(&iov), 1, 0),
		c("process_vm_writev", 1, at(&iov), 1, at(&iov), 1, 0), c("pidfd_getfd", ^uintptr(0), 0, 0), c("kcmp", 1, 1, 0, 0, 0),
	}},
	{"SB-28", "another process's limits and priority", []call{
		c("prlimit64", 1, unix.RLIMIT_NOFILE, 0, at(&when)), c("setpriority", unix.PRIO_PROCESS, 1, 0), c("sched_setaffinity", 1, 8, at(&block)),
		c("sched_setscheduler", 1, 0, at(&block)), c("ioprio_set", 1, 1, 0),
	}},
	{"SB-43", "set the clock", []call{
		c("clock_settime", 0, at(&when)), c("settimeofday", at(&when), 0), c("adjtimex", at(&block)), c("clock_adjtime", 0, at(&block)),
	}},
	{"SB-45", "read the kernel's log", []call{c("syslog", 3, at(&block), 8)}},
}

// socket is a socket that must not be made.
type socket struct {
	name                  string
	family, kind, protoco int
}

const (
	protoUDPLite = 136
	protoDCCP    = 33
)

// socketGroups are the cases made of sockets.
var socketGroups = []struct {
	id, name string
	proves   sandbox.Capability
	sockets  []socket
}{
	{"SB-14", "AF_VSOCK", sandbox.VsockClosed, []socket{{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0}, {"vsock_dgram", unix.AF_VSOCK, unix.SOCK_DGRAM, 0}}},
	{"SB-14", "AF_PACKET", sandbox.NetworkClosed, []socket{{"packet", unix.AF_PACKET, unix.SOCK_RAW, 0x300}, {"packet_dgram", unix.AF_PACKET, unix.SOCK_DGRAM, 0x300}}},
	{"SB-14", "netlink beyond routes", sandbox.NetworkClosed, []socket{
		{"sock_diag", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG}, {"xfrm", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM},
		{"audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, {"netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"uevent", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, {"generic", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC},
	}},
	{"SB-14", "other families", sandbox.NetworkClosed, []socket{
		{"alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, {"xdp", unix.AF_XDP, unix.SOCK_RAW, 0}, {"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		{"tipc", unix.AF_TIPC, unix.SOCK_STREAM, 0}, {"kcm", unix.AF_KCM, unix.SOCK_DGRAM, 0}, {"can", unix.AF_CAN, unix.SOCK_RAW, 1},
		{"rds", unix.AF_RDS, unix.SOCK_SEQPACKET, 0}, {"smc", unix.AF_SMC, unix.SOCK_STREAM, 0}, {"qipcrtr", unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0},
		{"key", unix.AF_KEY, unix.SOCK_RAW, 2}, {"pppox", unix.AF_PPPOX, unix.SOCK_STREAM, 0}, {"nfc", unix.AF_NFC, unix.SOCK_SEQPACKET, 0},
		{"x25", unix.AF_X25, unix.SOCK_SEQPACKET, 0}, {"llc", unix.AF_LLC, unix.SOCK_STREAM, 0}, {"phonet", unix.AF_PHONET, unix.SOCK_DGRAM, 0},
	}},
	{"SB-12", "UDP-Lite, SCTP, DCCP, MPTCP", sandbox.NetworkClosed, []socket{
		{"udplite", unix.AF_INET, unix.SOCK_DGRAM, protoUDPLite}, {"sctp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		{"dccp", unix.AF_INET, unix.SOCK_DCCP, protoDCCP}, {"mptcp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
		{"udplite6", unix.AF_INET6, unix.SOCK_DGRAM, protoUDPLite}, {"sctp6", unix.AF_INET6, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP},
	}},
	{"SB-13", "ICMP", sandbox.NetworkClosed, []socket{
		{"icmp_raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, {"icmp_ping", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		{"icmp6_raw", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6}, {"icmp6_ping", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6},
		{"ip_raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
	}},
}

func (s socket) make() error {
	fd, err := unix.Socket(s.family, s.kind|unix.SOCK_CLOEXEC, s.protoco)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// syscalls is the table of attempts made of single calls.
var syscalls = tableOfCalls()

func tableOfCalls() []attempt {
	var table []attempt
	for _, g := range groups {
		table = append(table, attempt{g.id, g.name, sandbox.SyscallsFiltered, func(p *place) verdict {
			var j judge
			for _, k := range g.calls {
				j.compare(p, "call "+k.name, k.name, k.make())
			}
			return j.verdict()
		}})
	}
	for _, g := range socketGroups {
		table = append(table, attempt{g.id, g.name, g.proves, func(p *place) verdict {
			var j judge
			for _, s := range g.sockets {
				j.compare(p, "socket "+s.name, s.name, s.make())
			}
			return j.verdict()
		}})
	}
	return append(table,
		attempt{"SB-22", "make a namespace", sandbox.SyscallsFiltered, newNamespaces},
		attempt{"SB-24", "32-bit entry", sandbox.SyscallsFiltered, func(p *place) verdict { return foreignEntry(p, "int80") }},
		attempt{"SB-24", "x32 numbers", sandbox.SyscallsFiltered, func(p *place) verdict { return foreignEntry(p, "x32") }},
	)
}

// judge compares attempts with the same ones outside the filter.
type judge struct {
	several
	absent []string
}

// compare notes one attempt with its control's result.
func (j *judge) compare(p *place, control, what string, err error) {
	outside, ran := p.Controls[control]
	switch {
	case !ran:
		j.bad = append(j.bad, what+": control did not run")
	case missing[outside]:
		if err == nil {
			j.bad = append(j.bad, what+" ok")
			return
		}
		j.absent = append(j.absent, what+" "+outside)
	default:
		j.note(what, err, refusal(err) || err == unix.ENOSYS) //nolint:errorlint // a bare errno
	}
}

// missing are the answers of a machine that lacks a feature.
var missing = map[string]bool{
	"ENOSYS": true, "EAFNOSUPPORT": true, "EPROTONOSUPPORT": true, "ESOCKTNOSUPPORT": true, "ENODEV": true, "killed": true,
}

func (j *judge) verdict() verdict {
	if len(j.bad) == 0 && len(j.done) == 0 && len(j.absent) > 0 {
		return absent("outside too: %s", strings.Join(j.absent, ", "))
	}
	return j.several.verdict()
}

// Controls makes the same attempts where no filter is. It runs in a child of
// PID 1, in the sandbox's outer user namespace.
func Controls() map[string]string {
	out := make(map[string]string)
	for _, g := range groups {
		for _, k := range g.calls {
			out["call "+k.name] = name(k.make())
		}
	}
	for _, g := range socketGroups {
		for _, s := range g.sockets {
			out["socket "+s.name] = name(s.make())
		}
	}
	out["clone user"] = name(cloneInto(unix.CLONE_NEWUSER))
	for _, entry := range []string{"int80", "x32"} {
		out["entry "+entry] = controlEntry(entry)
	}
	return out
}

// cloneInto forks a child with new namespaces that ends at once.
func cloneInto(flags uintptr) error {
	pid, _, e := syscall.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e == 0 && pid == 0 {
		endChild()
	}
	return endedChild(pid, e)
}

// endChild ends a child that was cloned without Go's knowledge: it is a second
// probe, with one thread, and would go on with what the first one does.
func endChild() {
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// endedChild waits for such a child, if there is one.
func endedChild(pid uintptr, e syscall.Errno) error {
	if e != 0 {
		return e
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

// newNamespaces asks for each namespace in each way.
func newNamespaces(p *place) verdict {
	var s several
	if got := p.Controls["clone user"]; got != "ok" {
		return failed("control: a user namespace outside the filter: %q", got)
	}
	for what, flag := range map[string]uintptr{
		"mount": unix.CLONE_NEWNS, "cgroup": unix.CLONE_NEWCGROUP, "uts": unix.CLONE_NEWUTS, "ipc": unix.CLONE_NEWIPC,
		"user": unix.CLONE_NEWUSER, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET,
	} {
		s.refused("clone "+what, cloneInto(flag))
		s.refused("unshare "+what, unshare(flag))
		s.refused("clone with garbage above "+what, cloneInto(flag|1<<40))
	}
	s.refused("unshare time", unshare(unix.CLONE_NEWTIME))
	s.must("clone without namespaces", cloneInto(0))
	var args [11]uint64 // struct clone_args, all zero but exit_signal
	args[4] = uint64(unix.SIGCHLD)
	pid, _, e := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if e == 0 && pid == 0 {
		endChild()
	}
	s.note("clone3", endedChild(pid, e), e == unix.ENOSYS)
	return s.verdict()
}

func unshare(flags uintptr) error {
	if _, _, e := syscall.RawSyscall(unix.SYS_UNSHARE, flags, 0, 0); e != 0 {
		return e
	}
	return nil
}
