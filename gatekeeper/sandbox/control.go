package sandbox

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net/netip"
	"strconv"
)

// Paths inside every sandbox.
const (
	InitPath  = "/run/gatehouse/init"      // gatehouse-init, read-only
	DoorPath  = "/run/gatehouse/door.sock" // the session's only exit, when it has one
	CallPath  = "/run/gatehouse/call.sock" // where PID 1 of a container calls for its channels; answers that one process only
	Workspace = "/workspace"
	Home      = "/home/agent"
	Delivered = "/gatehouse"     // Spec.Files, read-only
	Out       = "/gatehouse/out" // collected as artifacts
)

// ProxyAddr is where the plain proxy listener waits inside; ResolverAddr is the
// name server of resolv.conf. Any address would do for the latter: port 53 of
// every address is the door. CapturePort and NamesPort are where the kernel sends
// the agent's connections and its questions. They lie above what a kernel gives
// out by itself, so that no port of the host's that the probe tries is one of
// them, and no program inside is handed one.
const (
	ProxyAddr    = "127.0.0.1:3128"
	ResolverAddr = "192.0.2.53"
	CapturePort  = 61001
	NamesPort    = 61053
)

// OwnPort reports whether gatehouse-init itself waits on a port inside: that it
// answers there says nothing about the host.
func OwnPort(port uint16) bool {
	proxy := netip.MustParseAddrPort(ProxyAddr).Port()
	return port == proxy || port == CapturePort || port == NamesPort
}

// The control channel: two stream sockets between a provider and
// gatehouse-init, each carrying one JSON object a line. ControlFD is PID 1's;
// its end of file, on either side, is the end of the session. RoomFD is held by
// the one process that becomes the agent and closes on that exec, so that its
// end of file without an error says "the agent runs" and the agent has neither.
const (
	ControlFD      = 3
	RoomFD         = 4
	ControlVersion = 1
	maxLine        = 256 << 10
)

// ToInit is what a provider tells PID 1. The first message is a Setup.
type ToInit struct {
	Setup     *Setup `json:"setup,omitempty"`
	Control   bool   `json:"control,omitempty"`   // run the probe's controls outside the filter
	Terminate bool   `json:"terminate,omitempty"` // SIGTERM to everything but PID 1
}

// Setup describes the session to PID 1.
type Setup struct {
	Version  int    `json:"version"`
	Door     bool   `json:"door"`      // DoorPath exists: capture TCP and DNS for it
	MaxPids  uint64 `json:"max_pids"`  // RLIMIT_NPROC of the agent
	MaxFiles uint64 `json:"max_files"` // RLIMIT_NOFILE of the agent
	MaxFile  uint64 `json:"max_file"`  // RLIMIT_FSIZE of the agent, bytes
}

// FromInit is what PID 1 tells the provider. Hello comes first.
type FromInit struct {
	Hello    int               `json:"hello,omitempty"` // ControlVersion of the program
	Ready    bool              `json:"ready,omitempty"`
	Controls map[string]string `json:"controls,omitempty"` // answer to Control
	Ran      bool              `json:"ran,omitempty"`      // the controls were tried, if in vain
	Exit     *int              `json:"exit,omitempty"`     // of the agent: 0..255, 128+n for a signal
	Fault    *Fault            `json:"fault,omitempty"`
}

// Fault says which step of the inside failed.
type Fault struct {
	Step string `json:"step"` // one of the Step constants
	Text string `json:"text"` // for the operator's log
}

// Steps that can fail inside.
const (
	StepVersion  = "version"  // the program speaks another control version
	StepSetup    = "setup"    // PID 1's own preparation
	StepLoopback = "loopback" // lo and the local routes
	StepCapture  = "capture"  // nf_tables redirect
	StepUserns   = "userns"   // the agent's user namespace
	StepDrop     = "drop"     // capabilities, no_new_privs
	StepFilter   = "filter"   // seccomp
	StepExec     = "exec"     // the agent's program
)

// ToRoom is an order to the process that will be the agent.
type ToRoom struct {
	Probe *Plan  `json:"probe,omitempty"`
	Run   *Agent `json:"run,omitempty"`
}

// FromRoom is its answer.
type FromRoom struct {
	Ready bool   `json:"ready,omitempty"`
	Cases []Case `json:"cases,omitempty"`
	Fault *Fault `json:"fault,omitempty"`
}

// Agent is the program to become.
type Agent struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

// Plan is what a provider tells the probe about the session it runs in.
type Plan struct {
	Door     bool              `json:"door"`     // the session has a door
	Targets  []string          `json:"targets"`  // "address:port" to connect to; with a door its nonces
	Name     string            `json:"name"`     // DNS name to ask for, with a door another nonce
	Host     string            `json:"host"`     // the host's own name
	Ports    []uint16          `json:"ports"`    // TCP ports that answer on the host's loopback just now
	Outside  []string          `json:"outside"`  // paths of the host that must not exist inside
	Canaries []string          `json:"canaries"` // values that must be found nowhere inside
	Controls map[string]string `json:"controls"` // what PID 1's child could do without the filter
}

// NewPlan returns a Plan with fresh nonces. No target is a public address:
// should the boundary be open, no stranger is called.
func NewPlan() Plan {
	// A nonce is a port and, where the range is wide enough, part of the address.
	port := func() string { return strconv.Itoa(20000 + mrand.IntN(40000)) }
	octet := func() string { return strconv.Itoa(1 + mrand.IntN(254)) }
	return Plan{
		Targets: []string{
			"203.0.113." + octet() + ":" + port(),            // documentation, in place of a public one
			"203.0.113." + octet() + ":853",                  // SB-11: DNS over TLS
			"10." + octet() + "." + octet() + ".1:" + port(), // private
			"169.254.169.254:" + port(),                      // link-local, metadata
			"[2001:db8::" + octet() + "]:" + port(),          // documentation
			"[fd00:" + octet() + "::1]:" + port(),            // unique local
			"[::ffff:198.51.100." + octet() + "]:" + port(),  // v4-mapped
		},
		Name: rand.Text()[:16] + ".gatehouse-probe.invalid",
	}
}

// Send writes one message.
func Send(w io.Writer, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode control message: %w", err)
	}
	if len(b) >= maxLine {
		return errors.New("control message too long")
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Reader reads messages. It bounds each to 256 KiB: what it reads may come from
// a process that an agent has taken over.
type Reader struct{ s *bufio.Scanner }

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 4<<10), maxLine)
	return &Reader{s}
}

// Next decodes the next message into v. It returns io.EOF at the end.
func (r *Reader) Next(v any) error {
	if !r.s.Scan() {
		if err := r.s.Err(); err != nil {
			return fmt.Errorf("read control message: %w", err)
		}
		return io.EOF
	}
	if err := json.Unmarshal(r.s.Bytes(), v); err != nil {
		return fmt.Errorf("decode control message: %w", err)
	}
	return nil
}
