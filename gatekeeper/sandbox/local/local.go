//go:build linux

package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// Defaults of a Spec and of Options.
const (
	DefaultQuota      = 10 << 30
	DefaultPids       = 4096
	DefaultGrace      = 2 * time.Second
	DefaultTranscript = 10 << 20
)

// Options configure a Provider.
type Options struct {
	// Run holds one folder per session while it lives. It is made, mode 0700,
	// when missing, and swept of sessions whose node is gone.
	Run string
	// Transcripts holds <session>.log files, which outlive their session. Empty
	// = the folder transcripts beside Run.
	Transcripts string
	// UIDs are the bare user ids that sessions run under when Gatehouse is root
	// (sandbox.uids). Zero = 610000-610999. Unused for an ordinary user, whose
	// sessions all run under that user's own id.
	UIDs UIDRange
	// InitPath is the gatehouse-init program. Empty = the file gatehouse-init
	// beside this executable, or else this executable itself, whose main must
	// then call initd.Main first.
	InitPath string
	// Bwrap is the bubblewrap program. Empty = bwrap in PATH.
	Bwrap string
	// Podman is the podman program. With it, sandboxes are containers of podman's,
	// without a network, and the provider's name is oci; Bwrap and Cgroup are not
	// used. The node must be root.
	Podman string
	// Cgroup is a delegated cgroup v2 folder. Empty = the node's own cgroup when
	// it carries the delegation mark of systemd.
	Cgroup string
	// TranscriptBytes caps a transcript. 0 = 10 MiB.
	TranscriptBytes int64
	// Put stores one artifact and returns its lower-hex SHA-256 and size
	// (blob.Store.Put). Nil = artifacts are only hashed.
	Put func(io.Reader) (sha256 string, n int64, err error)
}

// UIDRange is an inclusive range of user ids.
type UIDRange struct{ First, Last uint32 }

// Provider starts local sandboxes. It is safe for concurrent use.
type Provider struct {
	o      Options
	root   bool    // Gatehouse itself is kernel uid 0
	init   program // gatehouse-init, as placed in Run
	podman *podman // nil: bubblewrap
	uids   *uidPool
	cgroup *cgroup // nil: no delegation
}

// New checks the machine and returns a Provider. What is missing on the machine
// is an error with the code provider_capability_missing and a hint.
func New(o Options) (*Provider, error) {
	if o.Run == "" {
		return nil, problem.New(problem.ConfigInvalid, "local provider: no run folder", "set state: in the configuration")
	}
	run, err := filepath.Abs(o.Run)
	if err != nil {
		return nil, fmt.Errorf("local provider: run folder: %w", err)
	}
	o.Run = run
	if o.Transcripts == "" {
		o.Transcripts = filepath.Join(filepath.Dir(run), "transcripts")
	}
	if o.UIDs == (UIDRange{}) {
		o.UIDs = UIDRange{610000, 610999}
	}
	if o.UIDs.First == 0 || o.UIDs.Last < o.UIDs.First {
		return nil, problem.New(problem.ConfigInvalid, fmt.Sprintf("sandbox.uids %d-%d is not a range without 0", o.UIDs.First, o.UIDs.Last), "use a range of unused ids, for example 610000-610999")
	}
	if o.TranscriptBytes == 0 {
		o.TranscriptBytes = DefaultTranscript
	}
	p := &Provider{root: os.Geteuid() == 0, uids: newUIDPool(o.UIDs)}
	if o.Podman != "" {
		p.podman, err = newPodman(o.Podman, o.Run)
	} else {
		o.Bwrap, err = checkMachine(o.Bwrap)
	}
	if err != nil {
		return nil, err
	}
	p.o = o
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{o.Run, 0o700}, {o.Transcripts, 0o700}} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return nil, fmt.Errorf("local provider: %w", err)
		}
	}
	if err := os.Chmod(o.Run, 0o700); err != nil {
		return nil, fmt.Errorf("local provider: %w", err)
	}
	if err := sweep(o.Run); err != nil {
		return nil, fmt.Errorf("local provider: sweep %s: %w", o.Run, err)
	}
	if p.init, err = placeInit(o.InitPath, o.Run); err != nil {
		return nil, err
	}
	if p.podman != nil {
		return p, nil
	}
	if p.cgroup, err = openCgroup(o.Cgroup); err != nil {
		return nil, err
	}
	if p.cgroup != nil {
		if err := p.cgroup.sweep(o.Run); err != nil {
			return nil, fmt.Errorf("local provider: sweep cgroup: %w", err)
		}
	}
	return p, nil
}

// Name returns "local", or "oci" with podman.
func (p *Provider) Name() string {
	if p.podman != nil {
		return "oci"
	}
	return "local"
}

// Version is the digest of gatehouse-init, of bubblewrap or podman and its
// runtime, and of the kernel's release.
func (p *Provider) Version() (string, error) {
	h := sha256.New()
	programs := []string{p.init.path, p.o.Bwrap}
	if p.podman != nil {
		programs = []string{p.init.path, p.podman.program, p.podman.runtime}
	}
	for _, path := range programs {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("local provider: version: %w", err)
		}
		_, err = io.Copy(h, f)
		_ = f.Close()
		if err != nil {
			return "", fmt.Errorf("local provider: version: %w", err)
		}
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("local provider: version: %w", err)
	}
	h.Write(u.Release[:])
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Capabilities returns what this provider declares on this machine.
func (p *Provider) Capabilities() map[sandbox.Capability]bool {
	return map[sandbox.Capability]bool{
		sandbox.NetworkClosed:     true,
		sandbox.DoorOnly:          true,
		sandbox.EnvironmentClean:  true,
		sandbox.FilesystemPrivate: true,
		sandbox.ProcessesPrivate:  true,
		sandbox.Unprivileged:      true,
		sandbox.SyscallsFiltered:  true,
		sandbox.VsockClosed:       true,
		sandbox.Supervised:        true,
		sandbox.ResourceLimited:   p.cgroup != nil,
	}
}

var (
	sessionForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	envForm     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	fileForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// validate refuses a Spec that this provider would have to interpret.
func validate(s *sandbox.Spec) error {
	bad := func(msg string) error { return problem.New(problem.ConfigInvalid, "sandbox: "+msg, "") }
	switch {
	case !sessionForm.MatchString(s.Session):
		return bad("session id is not lower-case letters, digits and dashes")
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return bad("empty command")
	case s.Quota < 0 || s.Memory < 0 || s.Pids < 0 || s.CPUs < 0 || s.Timeout < 0 || s.Grace < 0:
		return bad("negative limit")
	case s.Rootfs != "" && s.Rootfs != "host" && !filepath.IsAbs(s.Rootfs):
		return bad("rootfs is neither host nor an absolute folder")
	}
	for _, a := range s.Argv {
		if strings.ContainsRune(a, 0) {
			return bad("command holds a NUL byte")
		}
	}
	for k, v := range s.Env {
		if !envForm.MatchString(k) || strings.ContainsRune(v, 0) {
			return bad("malformed environment variable")
		}
	}
	for name := range s.Files {
		if !fileForm.MatchString(name) || name == filepath.Base(sandbox.Out) {
			return bad("file name is not a plain base name")
		}
	}
	if err := checkMounts(s.Mounts); err != nil {
		return err
	}
	if s.Rootfs == "" {
		s.Rootfs = "host"
	}
	if s.Quota == 0 {
		s.Quota = DefaultQuota
	}
	if s.Pids == 0 {
		s.Pids = DefaultPids
	}
	if s.Grace == 0 {
		s.Grace = DefaultGrace
	}
	return nil
}

// Start prepares one sandbox. It refuses with provider_capability_missing when
// the machine cannot give the whole boundary.
func (p *Provider) Start(ctx context.Context, s sandbox.Spec, door net.Listener) (sandbox.Sandbox, error) {
	if err := validate(&s); err != nil {
		return nil, err
	}
	socket, err := sandbox.DoorSocket(door)
	if err != nil {
		return nil, err
	}
	if p.cgroup == nil && !s.Unlimited {
		return nil, problem.New(problem.ProviderCapabilityMissing,
			"no delegated cgroup: memory, processes and processor time cannot be limited",
			"run gatehouse as a systemd service with Delegate=yes, or write sandbox: {unlimited: accepted}")
	}
	b := &box{p: p, spec: s, socket: socket}
	if err := b.start(ctx); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}
