//go:build linux

package probe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// Exits of an attempt's child.
const (
	exitDone  = 0
	exitEmpty = 10 // the entry answered, but not with what was asked
	exitUsage = 2
)

// Attempt is one attempt in a process of its own, for those that may be killed
// or that need a fresh exec. args name it.
func Attempt(args []string) int {
	switch {
	case len(args) == 2 && args[0] == "enter":
		if enter(args[1]) {
			return exitDone
		}
		return exitEmpty
	case len(args) == 1 && args[0] == "inherited":
		return printInherited()
	case len(args) == 1 && args[0] == "crash":
		return crash()
	case len(args) == 1 && args[0] == "sleep":
		for {
			time.Sleep(time.Hour)
		}
	case len(args) == 2 && args[0] == "bomb":
		return bomb(args[1])
	case len(args) == 2 && args[0] == "poison":
		return poison(args[1])
	}
	return exitUsage
}

// crash dies of SIGABRT as a C program would, without Go's own handler.
func crash() int {
	var act struct{ handler, flags, restorer, mask uint64 } // struct kernel_sigaction, the default action
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGABRT), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
	_ = unix.Kill(unix.Getpid(), unix.SIGABRT)
	time.Sleep(10 * time.Second) // the signal may go to another thread, a moment later
	return exitDone
}

// child starts an attempt with an environment of its own.
func child(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(sandbox.InitPath)
	cmd.Args = append([]string{sandbox.InitPath, "attempt"}, args...)
	cmd.Env = env
	if env == nil {
		cmd.Env = []string{}
	}
	return cmd
}

// waitStatus runs cmd and returns how it ended.
func waitStatus(cmd *exec.Cmd) (syscall.WaitStatus, error) {
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return 0, errors.New("no wait status")
	}
	return ws, nil
}

// foreignEntry is SB-24: a process that enters the kernel as another
// architecture dies of SIGSYS.
func foreignEntry(p *place, entry string) verdict {
	outside, ran := p.Controls["entry "+entry]
	if !ran {
		return failed("control did not run")
	}
	ws, err := waitStatus(child(nil, "enter", entry))
	switch {
	case err != nil:
		return failed("could not run: %v", err)
	case ws.Signaled() && ws.Signal() == unix.SIGSYS:
		if outside != "ok" {
			return absent("killed by SIGSYS; without the filter: %s", outside)
		}
		return passed("killed by SIGSYS")
	case outside != "ok" && !(ws.Exited() && ws.ExitStatus() == exitDone):
		return absent("without the filter: %s", outside)
	}
	return failed("the kernel answered: exit %d, signal %v", ws.ExitStatus(), ws.Signal())
}

// controlEntry says what the machine makes of the entry.
func controlEntry(entry string) string {
	ws, err := waitStatus(child(nil, "enter", entry))
	switch {
	case err != nil:
		return err.Error()
	case ws.Signaled():
		return "killed"
	case ws.ExitStatus() == exitDone:
		return "ok"
	}
	return "ENOSYS"
}

// printInherited prints the descriptors and the environment that an exec hands
// down.
func printInherited() int {
	var st unix.Stat_t
	for fd := range 1 << 10 {
		if unix.Fstat(fd, &st) == nil {
			link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			fmt.Printf("fd %d %s\n", fd, link)
		}
	}
	for _, e := range os.Environ() {
		fmt.Printf("env %s\n", e)
	}
	return exitDone
}

// inherited runs a child and returns its descriptors and environment.
func inherited(env []string) (fds, vars []string, err error) {
	cmd := child(env, "inherited")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		if fd, ok := strings.CutPrefix(line, "fd "); ok {
			fds = append(fds, fd)
		} else if v, ok := strings.CutPrefix(line, "env "); ok {
			vars = append(vars, v)
		}
	}
	return fds, vars, nil
}
