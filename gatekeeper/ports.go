package gatekeeper

import (
	"context"
	"io"
	"iter"
	"net"
	"time"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/journal"
	"gatehouse/receipts"
)

// Message is one event as it came from the stream. Header is evidence and
// judged like Data.
type Message struct {
	Subject string
	Data    []byte
	Header  map[string]string
}

// Events is the events stream under the consumer that all nodes share.
type Events interface {
	// Work hands each event to fn until ctx ends. nil acknowledges it, an error
	// brings it back later.
	Work(ctx context.Context, fn func(context.Context, Message) error) error
	// Find returns the event whose subject ends in hash, or an error with code
	// not_found.
	Find(ctx context.Context, hash string) (Message, error)
}

// Entry is one key of a bucket at one revision. Created is the store's clock,
// so that two entries' times can be compared whatever the nodes' clocks say.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
	Created  time.Time
}

// KV is a bucket with compare-and-set. Errors are problem.NotFound for a key
// that is not there and problem.Conflict for one that is there already, or has
// another revision.
type KV interface {
	Get(ctx context.Context, key string) (Entry, error)
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	All(ctx context.Context) iter.Seq2[Entry, error]
}

// Notary opens and resumes receipt chains.
type Notary interface {
	// Open writes session.open and returns when it is durable.
	Open(ctx context.Context, session string, o receipts.Open, obs receipts.Obs) (Chain, error)
	// Resume returns the chain of a session that an earlier run left open.
	Resume(session string) (Chain, error)
	// Left lists the sessions that are open in the journal.
	Left() []string
	// Control is the node's own chain.
	Control() Chain
}

// Chain is one session's receipt chain.
type Chain interface {
	// Append writes a receipt whose header the chain fills, and returns when it
	// is durable.
	Append(ctx context.Context, r receipts.Receipt) (receipts.Hash, error)
	// Close writes session.close; nothing may follow. It fills the totals.
	Close(ctx context.Context, c receipts.Close) (receipts.Hash, error)
	// Recorder writes the session's decisions and outcomes as seen from obs.
	Recorder(obs receipts.Obs) enforcers.Recorder
}

// Journal is this node's journal, the only source of what a decision reads.
type Journal interface {
	Groups(from uint64) iter.Seq2[[]journal.Record, error]
}

// Blobs keeps bundle versions under their digest.
type Blobs interface {
	Put(r io.Reader) (sha256hex string, n int64, err error)
	Get(sha256hex string) (io.ReadCloser, error)
}

// Images unpacks container images into root file systems, once and by digest.
type Images interface {
	Rootfs(ctx context.Context, image string) (dir string, err error)
}

// Doors opens the one exit of a session.
type Doors interface {
	Open(ctx context.Context, s DoorSpec) (Door, error)
}

// DoorSpec is what a door must know of its session.
type DoorSpec struct {
	Session  string
	Parent   string         // the session that started it, "" for a root
	Opened   time.Time      //
	Bundle   *bundle.Bundle // in its effective modes
	Digest   [32]byte       // of the bundle
	Policy   []byte         // compiled for this session; the configuration of every enforcer
	Subject  bundle.Subject
	Event    []byte // event.json, for the agent's endpoint
	Recorder enforcers.Recorder
	Dir      string // the session's folder, closed to agents; a place for the socket
}

// Door is an open door.
type Door interface {
	Listener() net.Listener
	sandbox.Witness          // what it met, for the probe
	Trust() []byte           // PEM of the session's certificate authority
	Inside() Inside          // what clients inside need to find their way
	Close(code string) error // cuts everything under way; idempotent
}

// Inside is what a door puts into its sandbox. The agent reads all of it, so it
// holds placeholders and addresses, never a secret.
type Inside struct {
	Env   map[string]string // variables; the session's own win over these
	Files map[string][]byte // under /gatehouse, by base name; event files win over these
	// Mounts are folders that the door's mediators fill while the session runs.
	Mounts []sandbox.Mount
}

// Starter is a Door that has something to do right before the agent starts, once
// the sandbox is proven. It bounds its own time and reports its own failures.
type Starter interface {
	Start(ctx context.Context)
}
