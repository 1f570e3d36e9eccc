package remote

import (
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// Contract is the version of docs/api/remote-provider.yaml that this package
// and the reference server speak.
const Contract = 1

// Paths of the contract below its base URL. {session} is Spec.Session.
const (
	PathProvider = "/v1/provider"
	PathSessions = "/v1/sessions"
)

// Bounds of what either side reads from the other.
const (
	MaxBody  = 16 << 20 // a create request
	maxAbout = 64 << 10 // GET /v1/provider and errors
	maxCases = 1 << 20  // the answer of a probe
	MaxLine  = 16 << 20 // one line of a run; the last one names every artifact
	MaxChunk = 64 << 10 // output in one line
)

// Beat is how often a run that prints nothing says that it lives; Silent is how
// long either side waits before it takes the other for gone.
const (
	Beat   = 3 * time.Second
	Silent = 20 * time.Second
)

// Lease is how long a sandbox lives that nobody probes or runs.
const Lease = 3 * time.Minute

// States of a session.
const (
	StateCreated = "created"
	StateRunning = "running"
	StateEnded   = "ended"
)

// About describes the machine: GET /v1/provider.
type About struct {
	Contract     int                  `json:"contract"`
	Version      string               `json:"version"` // lower-hex SHA-256 of everything that a report rests on
	Capabilities []sandbox.Capability `json:"capabilities"`
}

// Create asks for a sandbox: POST /v1/sessions.
type Create struct {
	Session   string            `json:"session"`
	Argv      []string          `json:"argv"`
	Env       map[string]string `json:"env,omitempty"`
	Files     map[string][]byte `json:"files,omitempty"` // under /gatehouse, by base name
	Trust     []byte            `json:"trust,omitempty"` // PEM of the session's certificate authority
	TimeoutMS int64             `json:"timeout_ms"`      // 0 = none
	GraceMS   int64             `json:"grace_ms"`        // 0 = the machine's own
	Quota     int64             `json:"quota"`           // bytes, 0 = the machine's own
	Memory    int64             `json:"memory"`          // bytes, 0 = unlimited
	Pids      int64             `json:"pids"`            // 0 = the machine's own
	CPUs      float64           `json:"cpus"`            // 0 = no ceiling
	Unlimited bool              `json:"unlimited"`       // take a machine that can limit nothing
	Proxy     bool              `json:"proxy"`           // set the proxy variables
	Door      *DoorKey          `json:"door,omitempty"`  // nil = the session has no exit
	Probe     sandbox.Challenge `json:"probe"`           // what the probe asks the door for
	Canaries  []string          `json:"canaries,omitempty"`
}

// DoorKey is the way to a session's door, for the shim alone. The agent must
// not be able to read it: whoever shows the key is the session.
type DoorKey struct {
	Address     string `json:"address"`     // host:port that the shim connects to, TLS 1.3
	Name        string `json:"name"`        // name in the door's certificate
	CA          []byte `json:"ca"`          // PEM: the only authority that may have signed it
	Certificate []byte `json:"certificate"` // PEM, of this session
	Key         []byte `json:"key"`         // PEM; its header Gatehouse-Canary is among the canaries
}

// Status says where a session is: the answer of create, status and cancel.
type Status struct {
	Session string `json:"session"`
	State   string `json:"state"`
	End     *Ended `json:"end,omitempty"`
}

// Cases is the answer of POST /v1/sessions/{session}/probe.
type Cases struct {
	Cases []Case `json:"cases"`
}

// Case is one sandbox.Case on the wire.
type Case struct {
	ID       string             `json:"id"`
	Name     string             `json:"name"`
	Outcome  string             `json:"outcome"`
	Evidence string             `json:"evidence"`
	Proves   sandbox.Capability `json:"proves,omitempty"`
}

// Line is one line of the answer of POST /v1/sessions/{session}/run: output, a
// sign of life (no field at all), or the end, which is the last one.
type Line struct {
	Out []byte `json:"out,omitempty"` // standard output and error, in the order they arrive
	End *Ended `json:"end,omitempty"`
}

// Ended says how the agent ended.
type Ended struct {
	Exit      int               `json:"exit"`
	Reason    string            `json:"reason"`
	Detail    string            `json:"detail,omitempty"`
	Final     string            `json:"final,omitempty"`     // the last of standard output
	Artifacts map[string]string `json:"artifacts,omitempty"` // name -> lower-hex SHA-256
	Skipped   []string          `json:"skipped,omitempty"`
}

// Fault is an error on the wire, as RFC 9457 writes it.
type Fault struct {
	Code   string `json:"code"`
	Title  string `json:"title"`
	Hint   string `json:"hint,omitempty"`
	Status int    `json:"status"`
}
