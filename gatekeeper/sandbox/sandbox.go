package sandbox

import (
	"context"
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
	Session   string
	Argv      []string          // the agent's command
	Env       map[string]string // added to the sandbox's fixed environment
	Files     map[string][]byte // read-only files under /gatehouse, by base name (event.json, event.md, README.md)
	Trust     []byte            // PEM of the session's CA, mounted at the usual paths; nil before there is a door
	Rootfs    string            // "host" or a directory
	Timeout   time.Duration
	Grace     time.Duration // between SIGTERM and the kill; 0 = 2 s
	Quota     int64         // bytes for workspace + home
	Memory    int64         // bytes, 0 = unlimited (needs Unlimited)
	Pids      int64
	Unlimited bool // sandbox.unlimited: accepted
	Proxy     bool // set HTTP_PROXY variables to the plain proxy listener
}

// Provider runs sandboxes. Start prepares a sandbox and returns once it could
// run a program; it starts neither the probe nor the agent. A nil door means
// that the session has no exit at all.
type Provider interface {
	Name() string
	Capabilities() map[Capability]bool // declared
	Start(ctx context.Context, s Spec, door net.Listener) (Sandbox, error)
}

// Sandbox is one started sandbox.
type Sandbox interface {
	// Probe runs the negative cases in the same process, uid, filter and mounts
	// as the agent, before it.
	Probe(ctx context.Context) (Report, error)
	// Run runs the agent to its end, its timeout, or ctx's end.
	Run(ctx context.Context) (End, error)
	// Close kills what is left and removes every trace. It is idempotent.
	Close() error
}

// Report is what a probe proved.
type Report struct {
	Provider string
	At       time.Time
	Cases    []Case
}

// Case is one probe case.
type Case struct {
	ID       string // SB-nn
	Outcome  string // passed | failed | absent
	Evidence string
	Proves   Capability
}

// End says how the agent ended.
type End struct {
	Exit       int               // 0..255, 128+n for a signal
	Reason     string            // completed | failed | timeout | cancelled | lost
	Wall       time.Duration     //
	Transcript string            // path of the capped transcript on the host
	Final      string            // last message, untrusted
	Artifacts  map[string]string // name -> lower-hex SHA-256 of files under /gatehouse/out
}
