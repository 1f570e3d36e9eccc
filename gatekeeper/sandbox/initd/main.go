//go:build linux

package initd

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// Probe is what the roles room, control and attempt run. The main function
// wires it, because this package and the probe stand beside each other.
type Probe struct {
	Run      func(sandbox.Plan) []sandbox.Case // in the agent's place
	Controls func() map[string]string          // the same attempts without the filter
	Attempt  func(args []string) (exit int)    // one attempt that may be killed
}

// The roles, as argv[1].
const (
	roleInit    = "init"
	roleDrop    = "drop"
	roleRoom    = "room"
	roleControl = "control"
	roleAttempt = "attempt"
)

// Calls is the argument of init by which a container's PID 1 is told to call for
// its channels at sandbox.CallPath, because no descriptors can be handed to it.
const Calls = "calls"

// call connects the control channel and then the room's.
func call() (control, room int, err error) {
	for _, fd := range []*int{&control, &room} {
		if *fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return 0, 0, fmt.Errorf("channel: %w", err)
		}
		if err := unix.Connect(*fd, &unix.SockaddrUnix{Name: sandbox.CallPath}); err != nil {
			return 0, 0, fmt.Errorf("channel: %w", err)
		}
	}
	return control, room, nil
}

// Main plays the role that argv names and reports whether argv was meant for
// this package at all: argv[0] must be sandbox.InitPath, which exists inside
// sandboxes only. The main functions of gatehouse-init and gatehouse call it
// before anything else.
func Main(argv []string, p Probe) (exit int, ok bool) {
	if len(argv) < 2 || argv[0] != sandbox.InitPath {
		return 0, false
	}
	switch args := argv[2:]; argv[1] {
	case roleInit:
		control, room := sandbox.ControlFD, sandbox.RoomFD
		if len(args) == 1 && args[0] == Calls {
			// podman's monitor started it: nobody else sees its end, or carries its
			// output. bubblewrap asks for the same by --die-with-parent.
			err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
			if err == nil {
				control, room, err = call()
			}
			if err != nil {
				return complain(err), true
			}
		}
		return runInit(control, room), true
	case roleDrop:
		return runDrop(args), true
	case roleRoom:
		return runRoom(p.Run), true
	case roleControl:
		return runControl(p.Controls), true
	case roleAttempt:
		return p.Attempt(args), true
	}
	return 0, false
}

func runControl(controls func() map[string]string) int {
	if err := json.NewEncoder(os.Stdout).Encode(controls()); err != nil {
		return 1
	}
	return 0
}

func fault(step string, err error) *sandbox.Fault {
	return &sandbox.Fault{Step: step, Text: err.Error()}
}

// self returns the argv of another role of this program.
func self(role string, args ...string) []string {
	return append([]string{sandbox.InitPath, role}, args...)
}

func complain(err error) int {
	fmt.Fprintf(os.Stderr, "gatehouse-init: %v\n", err)
	return 1
}
