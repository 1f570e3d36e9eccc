//go:build linux

package probe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

var processes = []attempt{
	{"SB-01", "environment", sandbox.EnvironmentClean, ownEnvironment},
	{"SB-02", "environment of other processes", sandbox.EnvironmentClean, otherEnvironments},
	{"SB-03", "arguments of other processes", sandbox.ProcessesPrivate, arguments},
	{"SB-04", "memory, descriptors and root of PID 1", sandbox.Supervised, insidePID1},
	{"SB-06", "inherited descriptors", sandbox.EnvironmentClean, descriptors},
	{"SB-08", "core dump of a child", sandbox.Unprivileged, coreDump},
	{"SB-27", "signals to PID 1", sandbox.Supervised, signals},
	{"SB-29", "set-user-id programs and file capabilities", sandbox.Unprivileged, gain},
	{"SB-30", "regain capabilities", sandbox.Unprivileged, regain},
	{"SB-44", "the host's name", sandbox.ProcessesPrivate, hostName},
}

// canary returns the first canary that b holds, by its position.
func (p *place) canary(b []byte) (int, bool) {
	for i, c := range p.Canaries {
		if c != "" && bytes.Contains(b, []byte(c)) {
			return i, true
		}
	}
	return 0, false
}

// ownEnvironment: the process that becomes the agent has none, and a child has
// what it is given (SB-47 with it).
func ownEnvironment(*place) verdict {
	if env := os.Environ(); len(env) > 0 {
		return failed("%d variables came along", len(env))
	}
	_, vars, err := inherited([]string{"GIVEN=1"})
	if err != nil {
		return failed("could not run: %v", err)
	}
	if !slices.Equal(vars, []string{"GIVEN=1"}) {
		return failed("a child's environment has %d variables", len(vars))
	}
	return passed("no variable came along; a child has the one it was given")
}

// visible returns the process ids in /proc.
func visible() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	if !slices.Contains(pids, 1) || !slices.Contains(pids, os.Getpid()) {
		return nil, errors.New("/proc lists neither PID 1 nor this process")
	}
	return pids, nil
}

func proc(pid int, file string) string { return filepath.Join("/proc", strconv.Itoa(pid), file) }

func otherEnvironments(p *place) verdict {
	pids, err := visible()
	if err != nil {
		return failed("could not run: %v", err)
	}
	var s several
	_, err = os.ReadFile("/proc/self/environ")
	s.must("own environ", err)
	for _, pid := range pids {
		b, err := os.ReadFile(proc(pid, "environ"))
		if i, found := p.canary(b); found {
			s.bad = append(s.bad, fmt.Sprintf("canary %d in the environment of process %d", i, pid))
		} else if pid == 1 {
			s.refused("PID 1", err)
		}
	}
	return s.verdict()
}

func arguments(p *place) verdict {
	pids, err := visible()
	if err != nil {
		return failed("could not run: %v", err)
	}
	own, err := os.ReadFile("/proc/self/cmdline")
	if err != nil || !bytes.HasPrefix(own, []byte(sandbox.InitPath)) {
		return failed("control: own arguments: %v", err)
	}
	for _, pid := range pids {
		b, _ := os.ReadFile(proc(pid, "cmdline"))
		if i, found := p.canary(b); found {
			return failed("canary %d in the arguments of process %d", i, pid)
		}
		if len(b) > 0 && !bytes.HasPrefix(b, []byte(sandbox.InitPath)) {
			return failed("a process of somebody else is visible: %d", pid)
		}
	}
	return passed("%d processes visible, all gatehouse-init's", len(pids))
}

func insidePID1(*place) verdict {
	var s several
	for _, file := range []string{"maps", "mem", "environ", "auxv"} {
		s.refused(file, read(proc(1, file)))
		s.must("own "+file, read(proc(os.Getpid(), file)))
	}
	for _, file := range []string{"root", "cwd", "exe"} {
		_, err := os.Readlink(proc(1, file))
		s.refused(file, err)
		_, err = os.Readlink(proc(os.Getpid(), file))
		s.must("own "+file, err)
	}
	// The kernel lists descriptor numbers to the same user, and opens none.
	s.refused("fd/0", openForReading(proc(1, "fd/0")))
	s.must("own fd/0", openForReading("/proc/self/fd/0"))
	_, err := os.ReadDir(proc(1, "map_files"))
	s.refused("map_files", err)
	return s.verdict()
}

// read opens a file and reads a little. An end and a hole in the address space
// are a success: the file was open.
func read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(make([]byte, 64))
	if errors.Is(err, unix.EIO) || (err != nil && !errors.As(err, new(*os.PathError))) {
		return nil
	}
	return err
}

func openForReading(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func descriptors(*place) verdict {
	fds, _, err := inherited(nil)
	if err != nil {
		return failed("could not run: %v", err)
	}
	var extra []string
	seen := make(map[string]bool)
	for _, fd := range fds {
		number, link, _ := strings.Cut(fd, " ")
		seen[number] = true
		n, err := strconv.Atoi(number)
		if err != nil {
			return failed("could not run: %v", err)
		}
		// A Go program opens these two for itself after the exec.
		if n > 2 && !strings.HasPrefix(link, "anon_inode:[event") {
			extra = append(extra, fd)
		}
	}
	if len(extra) > 0 {
		return failed("inherited: %s", strings.Join(extra, ", "))
	}
	if !seen["0"] || !seen["1"] || !seen["2"] {
		return failed("control: 0, 1 and 2 are not all open")
	}
	return passed("0, 1 and 2 alone cross an exec")
}

// coreDump: the limit is the one at which the kernel starts no handler, cannot
// be lowered, and a crash leaves nothing.
func coreDump(*place) verdict {
	var now unix.Rlimit
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &now); err != nil {
		return failed("could not run: %v", err)
	}
	if now.Cur != 1 || now.Max != 1 {
		return failed("RLIMIT_CORE is %d/%d after an attempt to lower it, not 1/1", now.Cur, now.Max)
	}
	cmd := child(nil, "crash")
	cmd.Dir = "/tmp"
	ws, err := waitStatus(cmd)
	switch {
	case err != nil:
		return failed("could not run: %v", err)
	case !ws.Signaled() || ws.Signal() != unix.SIGABRT:
		return failed("control: the child did not crash")
	case ws.CoreDump():
		return failed("the kernel says that core was dumped")
	}
	if cores, _ := filepath.Glob("/tmp/core*"); len(cores) > 0 {
		return failed("the crash left %d files", len(cores))
	}
	return passed("RLIMIT_CORE stays 1/1; a crash dumped nothing")
}

// signals sends PID 1 what would kill it, by every call and by the ids of its
// threads, which kill(2) takes for the whole process. Should it die, so does
// this process, and the probe counts as not run; as it may take a moment to die,
// the reason why it does not is checked too. Control: a child dies of it.
func signals(*place) verdict {
	var s several
	caught, err := statusField(1, "SigCgt")
	if err != nil {
		return failed("could not run: %v", err)
	}
	if strings.Trim(caught, "0") != "" {
		return failed("PID 1 has signal handlers: %s", caught)
	}
	tids, err := os.ReadDir("/proc/1/task")
	if err != nil || len(tids) == 0 {
		return failed("could not run: threads of PID 1: %v", err)
	}
	for sig := syscall.Signal(0); sig <= 64; sig++ {
		if err := unix.Kill(1, sig); !refusal(err) {
			s.bad = append(s.bad, fmt.Sprintf("kill(1, %d) %s", sig, name(err)))
		}
		if _, _, e := syscall.RawSyscall(unix.SYS_KILL, 1|1<<32, uintptr(sig), 0); !refusal(e) {
			s.bad = append(s.bad, fmt.Sprintf("kill(1 with garbage above, %d) %s", sig, name(e)))
		}
	}
	for what, number := range map[string]uintptr{"tkill": unix.SYS_TKILL, "tgkill": unix.SYS_TGKILL, "rt_sigqueueinfo": unix.SYS_RT_SIGQUEUEINFO, "rt_tgsigqueueinfo": unix.SYS_RT_TGSIGQUEUEINFO} {
		var info [128]byte
		args := [4]uintptr{1, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&info))}
		if what == "tgkill" || what == "rt_tgsigqueueinfo" {
			args = [4]uintptr{1, 1, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&info))}
		}
		_, _, e := syscall.RawSyscall6(number, args[0], args[1], args[2], args[3], 0, 0)
		s.refused(what, e)
	}
	_, err = unix.PidfdOpen(1, 0)
	s.refused("pidfd_open", err)
	if dir, err := os.Open("/proc/1"); err == nil { // serves as a pidfd
		s.refused("pidfd_send_signal", unix.PidfdSendSignal(int(dir.Fd()), unix.SIGSEGV, nil, 0))
		dir.Close()
	}
	for _, t := range tids {
		tid, err := strconv.Atoi(t.Name())
		if err != nil || tid == 1 {
			continue
		}
		for _, sig := range []syscall.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGABRT, unix.SIGQUIT, unix.SIGTERM, unix.SIGKILL, unix.SIGSTOP} {
			// Delivered, and dropped by the kernel.
			_ = unix.Kill(tid, sig)
			_, _, _ = syscall.RawSyscall(unix.SYS_TKILL, uintptr(tid), uintptr(sig), 0)
		}
	}
	stat, err := os.ReadFile("/proc/1/stat")
	if err != nil {
		return failed("could not run: %v", err)
	}
	if _, state, _ := strings.Cut(string(stat), ") "); state == "" || strings.ContainsAny(state[:1], "TZX") {
		return failed("PID 1 is in state %.1s", state)
	}
	if err := dies(); err != nil {
		return failed("control: %v", err)
	}
	v := s.verdict()
	if v.outcome == sandbox.Passed {
		v.evidence += fmt.Sprintf("; without effect: %d thread ids of PID 1", len(tids)-1)
	}
	return v
}

// statusField reads one field of /proc/<pid>/status.
func statusField(pid int, field string) (string, error) {
	b, err := os.ReadFile(proc(pid, "status"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("no %s in status", field)
}

// dies proves that the same signal ends another process.
func dies() error {
	cmd := child(nil, "sleep")
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := unix.Kill(cmd.Process.Pid, unix.SIGKILL); err != nil {
		return err
	}
	_ = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() {
		return errors.New("a child survived SIGKILL")
	}
	return nil
}

// gain: no_new_privs, and no mount on which a set-user-id bit counts.
func gain(*place) verdict {
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || nnp != 1 {
		return failed("no_new_privs is %d: %v", nnp, err)
	}
	mounts, err := mountInfo()
	if err != nil {
		return failed("could not run: %v", err)
	}
	for _, m := range mounts {
		if !slices.Contains(m.options, "nosuid") && !holdsNothing(m) {
			return failed("%s is mounted without nosuid", m.at)
		}
	}
	return passed("no_new_privs, and nosuid on all %d mounts", len(mounts))
}

func regain(*place) verdict {
	var s several
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return failed("could not run: %v", err)
	}
	if sets != [2]unix.CapUserData{} {
		return failed("capabilities are left: %x", sets)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil || held != 0 {
			return failed("capability %d is in the bounding set: %v", c, err)
		}
	}
	all := [2]unix.CapUserData{{Effective: ^uint32(0), Permitted: ^uint32(0), Inheritable: ^uint32(0)}}
	s.refused("capset", unix.Capset(&header, &all[0]))
	s.refused("ambient", unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_ADMIN, 0, 0))
	s.refused("securebits", unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0))
	err := unix.Setuid(0)
	s.note("setuid 0", err, refusal(err) || errors.Is(err, unix.EINVAL))
	err = unix.Setgid(0)
	s.note("setgid 0", err, refusal(err) || errors.Is(err, unix.EINVAL))
	s.refused("setgroups", unix.Setgroups([]int{0}))
	if unix.Getuid() == 0 || unix.Geteuid() == 0 {
		s.bad = append(s.bad, "the agent is uid 0")
	}
	return s.verdict()
}

func hostName(p *place) verdict {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return failed("could not run: %v", err)
	}
	got := unix.ByteSliceToString(u.Nodename[:])
	if p.Host == "" {
		return failed("could not run: the host's name is not known")
	}
	if got == p.Host {
		return failed("the host's name is visible")
	}
	return passed("the name is %q", got)
}

// holdsNothing tells the mounts that cannot hold a program: a device, the
// empty read-only folder by which OCI runtimes mask others, and what it masks.
func holdsNothing(m mount) bool {
	fi, err := os.Lstat(m.at)
	if err != nil {
		return errors.Is(err, os.ErrNotExist) // under another mount
	}
	if fi.Mode()&os.ModeCharDevice != 0 {
		return true
	}
	entries, err := os.ReadDir(m.at)
	return err == nil && len(entries) == 0 && slices.Contains(m.options, "ro")
}
