//go:build linux

package local

import (
	"context"
	"errors"
	"io"
	"net"

	"gatehouse/gatekeeper/sandbox"
)

// Options configure a Provider.
type Options struct {
	// Run holds one folder per session while it lives. It is made 0711.
	Run string
	// Transcripts holds <session>.log files, which outlive their session.
	// Empty = Run/../transcripts.
	Transcripts string
	// UIDs are the bare user ids that sessions run under when Gatehouse is root
	// (sandbox.uids). Zero = 610000-610999. Unused for an ordinary user.
	UIDs UIDRange
	// InitPath is the gatehouse-init program. Empty = the file gatehouse-init
	// beside this executable, or else this executable itself, whose main must
	// then call initd.Main first.
	InitPath string
	// Bwrap is the bubblewrap program. Empty = bwrap in PATH.
	Bwrap string
	// Cgroup is a delegated cgroup v2 folder. Empty = the node's own cgroup when
	// it carries the delegation mark of systemd.
	Cgroup string
	// TranscriptBytes caps a transcript. 0 = 10 MiB.
	TranscriptBytes int64
	// Put stores one artifact and returns its lower-hex SHA-256 (blob.Store.Put).
	// Nil = artifacts are only hashed.
	Put func(io.Reader) (sha256 string, n int64, err error)
}

// UIDRange is an inclusive range of user ids.
type UIDRange struct{ First, Last uint32 }

// Provider is the local provider.
type Provider struct{ o Options }

// New checks the machine and returns a Provider.
func New(o Options) (*Provider, error) { return &Provider{o: o}, nil }

// Name returns "local".
func (p *Provider) Name() string { return "local" }

// Capabilities returns what this provider declares on this machine.
func (p *Provider) Capabilities() map[sandbox.Capability]bool { return nil }

// Start prepares one sandbox.
func (p *Provider) Start(context.Context, sandbox.Spec, net.Listener) (sandbox.Sandbox, error) {
	return nil, errors.New("local: under construction")
}
