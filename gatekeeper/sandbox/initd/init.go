//go:build linux

package initd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// AgentID is the uid and gid of the agent in its own user namespace. Agents
// refuse to run as root, and files of the workspace appear as its own.
const AgentID = 1000

// supervisor is PID 1.
type supervisor struct {
	control *net.UnixConn
	mu      sync.Mutex // guards writes to control
	room    int        // pid of the process that becomes the agent
	roomFD  int        // its channel, here
	setup   sandbox.Setup
}

func runInit(controlFD, roomFD int) int {
	if os.Getpid() != 1 {
		return complain(errors.New("init runs as PID 1 of a sandbox only"))
	}
	if err := protectSelf(); err != nil {
		return complain(err)
	}
	control, err := controlConn(controlFD)
	if err != nil {
		return complain(err)
	}
	s := &supervisor{control: control, roomFD: roomFD}
	if f := s.start(); f != nil {
		s.send(sandbox.FromInit{Fault: f})
		return 1
	}
	s.send(sandbox.FromInit{Ready: true})
	exit := s.reap()
	s.send(sandbox.FromInit{Exit: &exit})
	return 0 // and the kernel ends whatever the agent left running (SB-42)
}

// protectSelf makes PID 1 hard to harm for a process with the same kernel uid.
//
// SB-27: the kernel drops every signal that a process of this PID namespace
// sends to its PID 1 while the signal's action is the default one, SIGSEGV and
// SIGKILL included. Go's runtime installs handlers, through which a forged
// SIGSEGV is a crash, so they are all taken out again; and kill(2) accepts the
// id of any thread, so a filter that names PID 1 is not enough. What is lost
// is Go's panic for a genuine fault and asynchronous preemption.
//
// SB-04, SB-26: not dumpable, so memory, descriptors, root and cwd are closed.
func protectSelf() error {
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if sig == syscall.SIGKILL || sig == syscall.SIGSTOP {
			continue
		}
		var act struct { // struct kernel_sigaction of amd64 and arm64
			handler, flags, restorer, mask uint64
		}
		if _, _, e := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0); e != 0 {
			return fmt.Errorf("reset signal %d: %w", sig, e)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become not dumpable: %w", err)
	}
	// SB-08: 1 and not 0, because the kernel runs a pipe handler of core_pattern
	// for 0 but aborts the dump for 1.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		return fmt.Errorf("limit core dumps: %w", err)
	}
	// SB-06: nothing that came along is inherited any further.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors: %w", err)
	}
	return nil
}

func controlConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "control")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("control channel: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("control channel is not a unix socket")
	}
	return u, nil
}

// start brings the inside up to the point where the room waits for orders.
func (s *supervisor) start() *sandbox.Fault {
	s.send(sandbox.FromInit{Hello: sandbox.ControlVersion})
	orders := sandbox.NewReader(s.control)
	var first sandbox.ToInit
	if err := orders.Next(&first); err != nil || first.Setup == nil {
		return fault(sandbox.StepSetup, fmt.Errorf("no setup: %w", err))
	}
	s.setup = *first.Setup
	if s.setup.Version != sandbox.ControlVersion {
		return fault(sandbox.StepVersion, fmt.Errorf("gatehouse speaks control version %d, gatehouse-init %d", s.setup.Version, sandbox.ControlVersion))
	}
	if err := loopbackUp(); err != nil {
		return fault(sandbox.StepLoopback, err)
	}
	if s.setup.Door {
		if f := capture(); f != nil {
			return f
		}
	}
	if err := s.openRoom(); err != nil {
		return fault(sandbox.StepUserns, err)
	}
	go s.obey(orders)
	return nil
}

// capture sends the agent's connections to the door.
func capture() *sandbox.Fault {
	v6, err := everythingLocal()
	if err != nil {
		return fault(sandbox.StepLoopback, err)
	}
	l, err := listen(v6, sandbox.ProxyAddr)
	if err != nil {
		return fault(sandbox.StepCapture, fmt.Errorf("listen: %w", err))
	}
	if err := redirect(sandbox.CapturePort, sandbox.NamesPort); err != nil {
		return fault(sandbox.StepCapture, fmt.Errorf("nf_tables redirect: %w", err))
	}
	l.run(newForwarder(sandbox.DoorPath, maxTunnels))
	return nil
}

// openRoom clones the process that will be the agent into its own user
// namespace. It takes one capability along, only to be able to drop the
// bounding set.
func (s *supervisor) openRoom() error {
	room := os.NewFile(uintptr(s.roomFD), "room")
	defer room.Close()
	limits := []string{
		strconv.FormatUint(s.setup.MaxPids, 10),
		strconv.FormatUint(s.setup.MaxFiles, 10),
		strconv.FormatUint(s.setup.MaxFile, 10),
	}
	p, err := os.StartProcess(sandbox.InitPath, self(roleDrop, limits...), &os.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, nil, room},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: AgentID, HostID: 0, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: AgentID, HostID: 0, Size: 1}},
			AmbientCaps: []uintptr{unix.CAP_SETPCAP},
			// A session of its own: kill(0, ...) of the agent must not mean PID 1.
			Setsid: true,
		},
	})
	if err != nil {
		return err
	}
	s.room = p.Pid
	return p.Release() // the reaper waits for it
}

// obey follows the provider's orders until the channel ends, which ends PID 1
// and with it everything inside.
func (s *supervisor) obey(orders *sandbox.Reader) {
	for {
		var order sandbox.ToInit
		if err := orders.Next(&order); err != nil {
			os.Exit(1)
		}
		switch {
		case order.Terminate:
			_ = unix.Kill(-1, unix.SIGTERM) // everyone but the caller, PID 1
		case order.Control:
			s.send(sandbox.FromInit{Controls: controls(), Ran: true})
		}
	}
}

// controls runs the role control and returns what it found; nil when it could
// not run, which the probe counts as failed. The reaper waits for the child.
func controls() map[string]string {
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	defer r.Close()
	p, err := os.StartProcess(sandbox.InitPath, self(roleControl), &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{os.Stdin, w, os.Stderr},
	})
	w.Close()
	if err != nil {
		return nil
	}
	_ = p.Release()
	b, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if err != nil {
		return nil
	}
	var found map[string]string
	if err := json.Unmarshal(b, &found); err != nil {
		return nil
	}
	return found
}

// reap waits for every child until the room's process is gone and returns its
// exit code.
func (s *supervisor) reap() int {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 255
		case pid != s.room:
		case ws.Stopped():
			// SB-26: the agent asked to be traced and stopped. A stop is no end, and
			// has no exit code that a receipt could hold.
		case ws.Signaled():
			return 128 + int(ws.Signal())
		default:
			return ws.ExitStatus()
		}
	}
}

func (s *supervisor) send(m sandbox.FromInit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = sandbox.Send(s.control, m) // a provider that is gone is noticed by obey
}
