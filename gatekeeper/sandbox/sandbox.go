package sandbox

import (
	"context"
	"io"
	"net"
	"time"
)

// Capability names one property of a provider. Providers declare them, the
// probe proves them, hard mode and credential_free need them.
type Capability string

// Capabilities.
const (
	NetworkClosed     Capability = "network_closed"     // no exit but the door
	DoorOnly          Capability = "door_only"          // the door is reachable and is this session's
	EnvironmentClean  Capability = "environment_clean"  // no host environment inside
	FilesystemPrivate Capability = "filesystem_private" // no host secret or other session's files
	ProcessesPrivate  Capability = "processes_private"  // no host process visible
	Unprivileged      Capability = "unprivileged"       // never kuid 0, no capabilities, no_new_privs
	SyscallsFiltered  Capability = "syscalls_filtered"  // seccomp filter of DESIGN.md section 7
	VsockClosed       Capability = "vsock_closed"       // AF_VSOCK refused
	ResourceLimited   Capability = "resource_limited"   // delegated cgroup
	Supervised        Capability = "supervised"         // init's death ends the session
)

// Spec is one session's sandbox. It holds no secret: everything in it may be
// read by the agent.
type Spec struct {
	Session   string            // lower-case letters, digits and dashes, at most 64
	Argv      []string          // the agent's command; argv[0] is looked up in the sandbox's PATH
	Env       map[string]string // added to the sandbox's fixed environment
	Files     map[string][]byte // read-only files under /gatehouse, by base name (event.json, event.md, README.md)
	Trust     []byte            // PEM of the session's CA, mounted at the usual paths; nil before there is a door
	Rootfs    string            // "host" (also "") or a directory
	Timeout   time.Duration     // of Run; 0 = none
	Grace     time.Duration     // between SIGTERM and the kill; 0 = 2 s
	Quota     int64             // bytes for workspace + home + tmp + out; 0 = 10 GiB
	Memory    int64             // bytes, 0 = unlimited (needs Unlimited)
	Pids      int64             // processes and threads; 0 = 4,096
	CPUs      float64           // processors' worth of time; 0 = no ceiling
	Unlimited bool              // sandbox.unlimited: accepted; without it Start needs a delegated cgroup
	Proxy     bool              // set the proxy variables to the plain proxy listener
	Mounts    []Mount           // host folders and files that the agent may read

	// Output receives a copy of everything the agent prints, as it is printed.
	// It is untrusted. An error from Write ends the session (a tripwire).
	Output io.Writer

	// Witness is the door's side of the probe. Nil leaves the network cases
	// with the evidence from inside.
	Witness Witness

	// Challenge, when set, is what the probe asks the door for, in place of the
	// provider's own nonces: whoever cannot look into the provider makes them.
	Challenge *Challenge

	// Canaries are values planted outside that the probe must find nowhere
	// inside. They are made for the purpose: the probe is told them, so a real
	// secret must never be among them.
	Canaries []string
}

// Mount is a host folder or file that is shown inside, read-only: what a session
// can write, the next one would read (SB-46).
type Mount struct {
	Source string // absolute path on the host
	Path   string // absolute path inside, below none of the sandbox's own folders
}

// Witness tells the probe what a door met. Targets are "address:port" as in the
// CONNECT line; the door refuses those announced, and the names below
// gatehouse-probe.invalid, without a decision and without a receipt.
type Witness interface {
	Expect(targets []string)
	Saw(target string) bool
}

// Challenge is what a probe asks the door for: see Plan.
type Challenge struct {
	Targets []string `json:"targets"`
	Name    string   `json:"name"`
}

// Provider runs sandboxes. Start prepares a sandbox and returns once it could
// run a program; it starts neither the probe nor the agent. A nil door means
// that the session has no exit at all. A door is a listener on a unix socket
// with a path (see ListenDoor); the provider makes it reachable inside this one
// sandbox as /run/gatehouse/door.sock and never accepts from it itself.
type Provider interface {
	Name() string
	Capabilities() map[Capability]bool // declared
	Start(ctx context.Context, s Spec, door net.Listener) (Sandbox, error)
}

// Versioned is a Provider that says what it runs: a digest of everything that a
// conformance report rests on beside the node's own program. A report about
// another version is worth nothing.
type Versioned interface {
	Version() (digest string, err error)
}

// Distant is a Provider whose sandboxes run where this node cannot see who
// executes the probe: another machine. Its sessions are observed at level 2 at
// most, and hard mode needs a conformance report that holds (DESIGN.md section 7).
type Distant interface {
	Distant()
}

// Sandbox is one started sandbox.
type Sandbox interface {
	// Probe runs the negative cases in the same process, uid, filter and mounts
	// as the agent, before it. It may be called once, before Run.
	Probe(ctx context.Context) (Report, error)
	// Run runs the agent to its end, its timeout, or ctx's end. It may be called
	// once. Nothing of the agent is alive when it returns.
	Run(ctx context.Context) (End, error)
	// Close kills what is left and removes every trace but the transcript. It
	// is idempotent and may be called at any time, also while Run runs.
	Close() error
}

// Report is what a probe proved.
type Report struct {
	Provider string
	At       time.Time
	Cases    []Case
}

// Outcomes of a case.
const (
	Passed = "passed" // the attempt failed inside and its control succeeded
	Failed = "failed" // the attempt succeeded, or could not be made
	Absent = "absent" // the attempt fails outside the sandbox too
)

// Case is one probe case.
type Case struct {
	ID       string // SB-nn
	Name     string // what was tried, a few words
	Outcome  string // Passed | Failed | Absent
	Evidence string // one line; never holds a secret
	Proves   Capability
}

// Proven reports the capabilities of which at least one case ran and none
// failed.
func (r Report) Proven() map[Capability]bool {
	out := make(map[Capability]bool)
	for _, c := range r.Cases {
		ok, seen := out[c.Proves]
		out[c.Proves] = (c.Outcome == Passed || c.Outcome == Absent) && (ok || !seen)
	}
	return out
}

// Reasons of an End.
const (
	Completed = "completed" // exit 0
	Faulted   = "failed"    // any other exit, a signal, or a limit: see Detail
	Timeout   = "timeout"
	Cancelled = "cancelled" // ctx ended
	Lost      = "lost"      // the sandbox vanished without an exit code
)

// End says how the agent ended.
type End struct {
	Exit       int               // 0..255, 128+n for a signal
	Reason     string            // Completed | Faulted | Timeout | Cancelled | Lost
	Detail     string            // which limit or part ended it: init, quota, output; empty = the agent itself
	Wall       time.Duration     //
	Transcript string            // path of the capped transcript on the host
	Dropped    int64             // bytes of output beyond the transcript's cap
	Final      string            // last message, untrusted
	Artifacts  map[string]string // name -> lower-hex SHA-256 of files under /gatehouse/out
	Skipped    []string          // names under /gatehouse/out that were not collected, with the reason; untrusted
}
