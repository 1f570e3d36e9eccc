//go:build linux

package initd

import (
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// machine runs the filter as the kernel would. The VM of x/net/bpf loads in
// network order, so the words of seccomp_data are laid out that way; the
// argument halves stay where this machine has them.
type machine struct {
	vm   *bpf.VM
	info *arch.Info
}

func newMachine(t testing.TB) machine {
	t.Helper()
	raw, err := filter()
	if err != nil {
		t.Fatal(err)
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter does not disassemble")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	info, err := arch.GetInfo(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	return machine{vm, info}
}

func (m machine) answer(t testing.TB, number, architecture uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[0:], number)
	binary.BigEndian.PutUint32(data[4:], architecture)
	for i, a := range args {
		low, high := 16+8*i, 20+8*i // little-endian machines
		binary.BigEndian.PutUint32(data[low:], uint32(a))
		binary.BigEndian.PutUint32(data[high:], uint32(a>>32))
	}
	r, err := m.vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(r)
}

const (
	eperm  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	enosys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	passes = unix.SECCOMP_RET_ALLOW
	noop   = unix.SECCOMP_RET_ERRNO
	killed = unix.SECCOMP_RET_KILL_PROCESS
	above  = 1 << 40 // garbage that the kernel does not read
)

func TestFilterAnswers(t *testing.T) {
	m := newMachine(t)
	cases := map[string]struct {
		call string
		args []uint64
		want uint32
	}{
		"SB-22_clone_thread":           {"clone", []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, passes},
		"SB-22_clone_fork":             {"clone", []uint64{uint64(unix.SIGCHLD)}, passes},
		"SB-22_clone_user":             {"clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, eperm},
		"SB-22_clone_net_garbage":      {"clone", []uint64{unix.CLONE_NEWNET | above}, eperm},
		"SB-22_clone3":                 {"clone3", nil, enosys},
		"SB-22_unshare_files":          {"unshare", []uint64{unix.CLONE_FILES}, passes},
		"SB-22_unshare_user":           {"unshare", []uint64{unix.CLONE_NEWUSER}, eperm},
		"SB-22_unshare_time":           {"unshare", []uint64{unix.CLONE_NEWTIME}, eperm},
		"SB-22_setns":                  {"setns", []uint64{3, 0}, eperm},
		"SB-14_vsock":                  {"socket", []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, eperm},
		"SB-14_vsock_garbage":          {"socket", []uint64{unix.AF_VSOCK | above, unix.SOCK_STREAM, 0}, eperm},
		"SB-14_unix_with_garbage":      {"socket", []uint64{unix.AF_UNIX | above, unix.SOCK_STREAM, 0}, eperm},
		"SB-14_unix":                   {"socket", []uint64{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, 0}, passes},
		"SB-14_packet":                 {"socket", []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, eperm},
		"SB-14_netlink_route":          {"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE}, passes},
		"SB-14_netlink_netfilter":      {"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, eperm},
		"SB-14_netlink_garbage":        {"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, above}, eperm},
		"SB-14_alg":                    {"socket", []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, eperm},
		"SB-12_tcp":                    {"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, passes},
		"SB-12_tcp_named":              {"socket", []uint64{unix.AF_INET6, unix.SOCK_STREAM | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP}, passes},
		"SB-12_udp":                    {"socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, unix.IPPROTO_UDP}, passes},
		"SB-12_mptcp":                  {"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, eperm},
		"SB-12_udplite":                {"socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM, 136}, eperm},
		"SB-12_sctp_seqpacket":         {"socket", []uint64{unix.AF_INET, unix.SOCK_SEQPACKET, 0}, eperm},
		"SB-12_dccp":                   {"socket", []uint64{unix.AF_INET, unix.SOCK_DCCP, 0}, eperm},
		"SB-12_unknown_type_flag":      {"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM | 1<<20, 0}, eperm},
		"SB-13_raw":                    {"socket", []uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP}, eperm},
		"SB-13_raw_with_flag":          {"socket", []uint64{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.IPPROTO_UDP}, eperm},
		"SB-13_ping":                   {"socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, eperm},
		"SB-13_protocol_garbage":       {"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP | above}, eperm},
		"SB-14_socketpair_unix":        {"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, passes},
		"SB-14_socketpair_tipc":        {"socketpair", []uint64{unix.AF_TIPC, unix.SOCK_STREAM, 0}, eperm},
		"SB-27_kill_1":                 {"kill", []uint64{1, 11}, eperm},
		"SB-27_kill_1_garbage":         {"kill", []uint64{1 | above, 11}, eperm},
		"SB-27_kill_other":             {"kill", []uint64{7, 11}, passes},
		"SB-27_kill_group":             {"kill", []uint64{0, 15}, passes},
		"SB-27_tkill_1":                {"tkill", []uint64{1, 11}, eperm},
		"SB-27_tgkill_1":               {"tgkill", []uint64{1, 3, 11}, eperm},
		"SB-27_sigqueue_1":             {"rt_sigqueueinfo", []uint64{1, 11, 0}, eperm},
		"SB-27_tgsigqueue_1":           {"rt_tgsigqueueinfo", []uint64{1, 1, 11, 0}, eperm},
		"SB-27_pidfd_open_1":           {"pidfd_open", []uint64{1, 0}, eperm},
		"SB-27_pidfd_open_other":       {"pidfd_open", []uint64{9, 0}, passes},
		"SB-27_pidfd_send_signal":      {"pidfd_send_signal", []uint64{4, 9, 0, 0}, eperm},
		"SB-28_prlimit_1":              {"prlimit64", []uint64{1, unix.RLIMIT_NOFILE, 0, 0}, eperm},
		"SB-28_prlimit_thread_of_1":    {"prlimit64", []uint64{3, unix.RLIMIT_NOFILE, 4096, 0}, eperm},
		"SB-28_prlimit_self":           {"prlimit64", []uint64{0, unix.RLIMIT_NOFILE, 4096, 0}, passes},
		"SB-28_affinity_1":             {"sched_setaffinity", []uint64{1, 8, 4096}, eperm},
		"SB-28_priority_1":             {"setpriority", []uint64{unix.PRIO_PROCESS, 1, 0}, eperm},
		"SB-08_prlimit_core_read":      {"prlimit64", []uint64{0, unix.RLIMIT_CORE, 0, 4096}, passes},
		"SB-08_prlimit_core_write":     {"prlimit64", []uint64{0, unix.RLIMIT_CORE, 4096, 0}, noop},
		"SB-08_prlimit_core_write_hi":  {"prlimit64", []uint64{0, unix.RLIMIT_CORE, 4096 << 32, 0}, noop},
		"SB-26_ptrace_traceme":         {"ptrace", []uint64{unix.PTRACE_TRACEME}, passes},
		"SB-26_ptrace_attach":          {"ptrace", []uint64{unix.PTRACE_ATTACH, 1}, eperm},
		"SB-26_ptrace_seize_garbage":   {"ptrace", []uint64{unix.PTRACE_SEIZE | above, 1}, eperm},
		"SB-26_process_vm_readv":       {"process_vm_readv", nil, eperm},
		"SB-26_pidfd_getfd":            {"pidfd_getfd", nil, eperm},
		"SB-26_kcmp":                   {"kcmp", nil, eperm},
		"SB-23_mount":                  {"mount", nil, eperm},
		"SB-23_chroot":                 {"chroot", nil, eperm},
		"SB-25_bpf":                    {"bpf", nil, eperm},
		"SB-25_io_uring":               {"io_uring_setup", nil, eperm},
		"SB-25_userfaultfd":            {"userfaultfd", nil, eperm},
		"SB-25_perf":                   {"perf_event_open", nil, eperm},
		"SB-07_keyctl":                 {"keyctl", nil, eperm},
		"SB-43_clock_settime":          {"clock_settime", nil, eperm},
		"SB-45_syslog":                 {"syslog", nil, eperm},
		"tty_injection":                {"ioctl", []uint64{0, unix.TIOCSTI, 0}, eperm},
		"tty_size":                     {"ioctl", []uint64{0, unix.TIOCGWINSZ, 0}, passes},
		"personality_query":            {"personality", []uint64{0xffffffff}, passes},
		"personality_read_implies_x":   {"personality", []uint64{0x0400000}, eperm},
		"ordinary_read":                {"read", []uint64{0, 0, 0}, passes},
		"ordinary_execve":              {"execve", nil, passes},
		"ordinary_openat2":             {"openat2", nil, passes},
		"ordinary_prctl":               {"prctl", nil, passes},
		"refused_by_default_quotactl":  {"quotactl", nil, eperm},
		"refused_by_default_fanotify":  {"fanotify_init", nil, eperm},
		"refused_by_default_vm_writev": {"process_vm_writev", nil, eperm},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			number, known := m.info.SyscallNames[c.call]
			if !known {
				t.Skipf("%s has no call %s", runtime.GOARCH, c.call)
			}
			if got := m.answer(t, uint32(number), uint32(m.info.ID), c.args...); got != c.want {
				t.Errorf("%s%v: got %#x, want %#x", c.call, c.args, got, c.want)
			}
		})
	}
}

func TestFilterKillsForeignEntries(t *testing.T) {
	m := newMachine(t)
	own := uint32(m.info.ID)
	for name, a := range map[string]*arch.Info{"i386": arch.I386, "arm": arch.ARM, "x86_64": arch.X86_64, "aarch64": arch.AARCH64} {
		if uint32(a.ID) == own {
			continue
		}
		t.Run("SB-24_"+name, func(t *testing.T) {
			for number := range uint32(600) {
				if got := m.answer(t, number, uint32(a.ID)); got != killed {
					t.Fatalf("call %d: %#x", number, got)
				}
			}
		})
	}
	t.Run("SB-24_x32", func(t *testing.T) {
		if runtime.GOARCH != "amd64" {
			t.Skip("x32 is amd64's")
		}
		for number := range uint32(600) {
			if got := m.answer(t, x32Bit|number, own); got != killed {
				t.Fatalf("call %d: %#x", number, got)
			}
		}
		if got := m.answer(t, ^uint32(0), own); got != killed {
			t.Errorf("call -1: %#x", got)
		}
	})
}

// TestFilterCoversEveryNumber: what is in no list is refused, and only what no
// kernel known to this program has is "no such call".
func TestFilterCoversEveryNumber(t *testing.T) {
	m := newMachine(t)
	highest := slices.Max(slices.Collect(maps.Keys(m.info.SyscallNumbers)))
	listed := make(map[string]bool)
	for _, call := range allowed {
		listed[call] = true
	}
	for _, c := range conditions {
		if listed[c.call] {
			t.Errorf("%s is allowed outright and by condition", c.call)
		}
		listed[c.call] = true
	}
	for number := range highest + 200 {
		got := m.answer(t, uint32(number), uint32(m.info.ID))
		call, known := m.info.SyscallNumbers[number]
		switch {
		case number > highest && got != enosys:
			t.Errorf("call %d, unknown: %#x", number, got)
		case number <= highest && !listed[call] && got != eperm:
			t.Errorf("call %d (%s, known %v) is in no list: %#x", number, call, known, got)
		case slices.Contains(allowed, call) && got != passes:
			t.Errorf("call %s: %#x", call, got)
		}
	}
}

// TestFilterNamesExist guards against a typing mistake, which would silently
// take a call away.
func TestFilterNamesExist(t *testing.T) {
	known := func(call string) bool {
		_, amd := arch.X86_64.SyscallNames[call]
		_, arm := arch.AARCH64.SyscallNames[call]
		return amd || arm
	}
	seen := make(map[string]bool)
	for _, call := range allowed {
		if !known(call) || seen[call] {
			t.Errorf("%q is unknown or listed twice", call)
		}
		seen[call] = true
	}
	for _, c := range conditions {
		if !known(c.call) {
			t.Errorf("%q is unknown", c.call)
		}
	}
}

func FuzzFilterNeverWidens(f *testing.F) {
	f.Add(uint32(41), uint64(unix.AF_VSOCK), uint64(1), uint64(0))
	f.Add(uint32(56), uint64(unix.CLONE_NEWUSER), uint64(0), uint64(0))
	f.Add(uint32(302), uint64(1), uint64(4), uint64(1))
	m := newMachine(f)
	f.Fuzz(func(t *testing.T, number uint32, a, b, c uint64) {
		if m.answer(t, number, uint32(m.info.ID), a, b, c) != passes {
			return
		}
		switch m.info.SyscallNumbers[int(number)] {
		case "socket": // the kernel reads 32 bits of each
			family, kind, proto := uint32(a), uint32(b)&0xf, uint32(c)
			inet := (family == unix.AF_INET || family == unix.AF_INET6) && (kind == unix.SOCK_STREAM || kind == unix.SOCK_DGRAM) &&
				(proto == 0 || proto == unix.IPPROTO_TCP || proto == unix.IPPROTO_UDP)
			if family != unix.AF_UNIX && !inet && (family != unix.AF_NETLINK || proto != unix.NETLINK_ROUTE) {
				t.Errorf("socket(%d, %d, %d) passes", family, kind, proto)
			}
		case "clone":
			if uint32(a)&newNamespaces != 0 {
				t.Errorf("clone(%#x) passes", a)
			}
		case "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open":
			if uint32(a) == 1 {
				t.Error("PID 1 is reached")
			}
		case "prlimit64":
			if uint32(a) != 0 || uint32(b) == unix.RLIMIT_CORE && c != 0 {
				t.Errorf("prlimit64(%d, %d, %#x) passes", uint32(a), b, c)
			}
		}
	})
}

func BenchmarkFilterBuild(b *testing.B) {
	for b.Loop() {
		if _, err := filter(); err != nil {
			b.Fatal(err)
		}
	}
}
