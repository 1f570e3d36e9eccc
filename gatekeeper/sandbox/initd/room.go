//go:build linux

package initd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// runDrop gives up every right and re-executes itself as the room. Capabilities
// are a thread's own: the thread is locked and the execve comes from it, which
// ends all other threads.
func runDrop(args []string) int {
	runtime.LockOSThread()
	room := os.NewFile(sandbox.RoomFD, "room")
	f := drop(args)
	if f == nil {
		err := unix.Exec(sandbox.InitPath, self(roleRoom), []string{})
		f = fault(sandbox.StepExec, err)
	}
	_ = sandbox.Send(room, sandbox.FromRoom{Fault: f})
	return 1
}

func drop(args []string) *sandbox.Fault {
	if err := limit(args); err != nil {
		return fault(sandbox.StepSetup, err)
	}
	if err := dropCapabilities(); err != nil {
		return fault(sandbox.StepDrop, err)
	}
	program, err := filter()
	if err != nil {
		return fault(sandbox.StepFilter, err)
	}
	if err := install(program); err != nil {
		return fault(sandbox.StepFilter, err)
	}
	return nil
}

func limit(args []string) error {
	resources := []int{unix.RLIMIT_NPROC, unix.RLIMIT_NOFILE, unix.RLIMIT_FSIZE}
	if len(args) != len(resources) {
		return errors.New("limits: wrong count")
	}
	for i, r := range resources {
		want, err := strconv.ParseUint(args[i], 10, 64)
		if err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(r, &now); err != nil {
			return err
		}
		want = min(want, now.Max)
		if err := unix.Setrlimit(r, &unix.Rlimit{Cur: want, Max: want}); err != nil {
			return fmt.Errorf("limit %d: %w", r, err)
		}
	}
	return nil
}

// dropCapabilities leaves nothing to regain: bounding set, ambient set and all
// three thread sets are empty, and the securebits that could bring any back
// are locked (SB-29, SB-30).
func dropCapabilities() error {
	for c := uintptr(0); c <= 63; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > unix.CAP_LAST_CAP {
			break // beyond the kernel's last capability
		} else if err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("bounding set %d: %w", c, err)
		}
	}
	const (
		noroot      = 1<<0 | 1<<1 // SECBIT_NOROOT and its lock
		noFixup     = 1<<2 | 1<<3 // SECBIT_NO_SETUID_FIXUP and its lock
		keepLocked  = 1 << 5      // SECBIT_KEEP_CAPS_LOCKED
		noAmbient   = 1<<6 | 1<<7 // SECBIT_NO_CAP_AMBIENT_RAISE and its lock
		allOfTheSet = noroot | noFixup | keepLocked | noAmbient
	)
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, allOfTheSet, 0, 0, 0); err != nil {
		return fmt.Errorf("securebits: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient set: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	return nil
}

// runRoom waits for orders in the place where the agent will be.
func runRoom(probe func(sandbox.Plan) []sandbox.Case) int {
	unix.CloseOnExec(sandbox.RoomFD) // SB-06
	room := os.NewFile(sandbox.RoomFD, "room")
	if err := sandbox.Send(room, sandbox.FromRoom{Ready: true}); err != nil {
		return 1
	}
	orders := sandbox.NewReader(room)
	for {
		var order sandbox.ToRoom
		if err := orders.Next(&order); err != nil {
			return 1
		}
		switch {
		case order.Probe != nil:
			if err := sandbox.Send(room, sandbox.FromRoom{Cases: probe(*order.Probe)}); err != nil {
				return 1
			}
		case order.Run != nil:
			err := become(order.Run)
			_ = sandbox.Send(room, sandbox.FromRoom{Fault: fault(sandbox.StepExec, err)})
			return 127
		}
	}
}

// become replaces this process with the agent. It returns only an error.
func become(a *sandbox.Agent) error {
	if len(a.Argv) == 0 {
		return errors.New("empty argv")
	}
	if err := os.Chdir(a.Dir); err != nil {
		return err
	}
	path, err := lookPath(a.Argv[0], a.Env)
	if err != nil {
		return err
	}
	return fmt.Errorf("exec %s: %w", path, syscall.Exec(path, a.Argv, a.Env))
}

// lookPath finds name in the PATH of env, as execvp would.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, e := range env {
		dirs, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(dirs) {
			p := filepath.Join(dir, name)
			if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("%s: not found in PATH", name)
}
