package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// Options configure a Provider.
type Options struct {
	// URL is the base of the machine's contract, https.
	URL *url.URL
	// Calls carries the short requests, Runs those that last as long as a
	// session. Both are fixed to URL's authority and add the credential.
	Calls, Runs http.RoundTripper
	// Doors is where shims come to; the Provider owns it from New on. Advertise is
	// its address as the other machine reaches it.
	Doors     net.Listener
	Advertise string
	// Transcripts holds <session>.log files.
	Transcripts string
	// TranscriptBytes caps a transcript. 0 = 10 MiB.
	TranscriptBytes int64
	// Put stores one artifact and returns its lower-hex SHA-256 and size. Nil =
	// artifacts are only hashed.
	Put func(io.Reader) (sha256 string, n int64, err error)
}

// Provider starts sandboxes on one other machine. It is safe for concurrent use.
type Provider struct {
	o    Options
	gate *gate

	mu      sync.Mutex
	about   About
	fault   error
	fetched time.Time
}

// Lifetimes of what the machine says about itself: a wrong answer is asked for
// again sooner.
const (
	aboutFor   = 30 * time.Second
	faultFor   = 3 * time.Second
	aboutLimit = 10 * time.Second
)

// New opens the gate. It does not ask the machine anything: a node starts
// without it, and its sessions are refused until it answers.
func New(o Options) (*Provider, error) {
	if o.URL == nil || o.Calls == nil || o.Runs == nil || o.Doors == nil || o.Advertise == "" || o.Transcripts == "" {
		return nil, problem.New(problem.ConfigInvalid, "remote provider: URL, clients, a listener for doors and a folder for transcripts are needed", "")
	}
	if o.TranscriptBytes == 0 {
		o.TranscriptBytes = 10 << 20
	}
	if err := os.MkdirAll(o.Transcripts, 0o700); err != nil {
		return nil, fmt.Errorf("remote provider: %w", err)
	}
	g, err := openGate(o.Doors)
	if err != nil {
		return nil, err
	}
	return &Provider{o: o, gate: g}, nil
}

// Close shuts the gate: no session of this provider has an exit afterwards.
func (p *Provider) Close() error {
	p.gate.close()
	return nil
}

// Name is "remote", as bundles name it.
func (p *Provider) Name() string { return "remote" }

// Distant marks the provider: what its probe says was executed elsewhere.
func (p *Provider) Distant() {}

// Capabilities are what the machine declares; none while it does not answer.
func (p *Provider) Capabilities() map[sandbox.Capability]bool {
	ctx, cancel := context.WithTimeout(context.Background(), aboutLimit)
	defer cancel()
	out := map[sandbox.Capability]bool{}
	about, err := p.describe(ctx)
	if err != nil {
		return out
	}
	for _, c := range about.Capabilities {
		out[c] = true
	}
	return out
}

// Version is the digest that the machine gives of everything it runs.
func (p *Provider) Version() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), aboutLimit)
	defer cancel()
	about, err := p.describe(ctx)
	return about.Version, err
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// describe asks the machine for About, or remembers.
func (p *Provider) describe(ctx context.Context) (About, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := time.Since(p.fetched)
	if !p.fetched.IsZero() && (p.fault == nil && age < aboutFor || p.fault != nil && age < faultFor) {
		return p.about, p.fault
	}
	var about About
	err := p.call(ctx, http.MethodGet, PathProvider, nil, &about, maxAbout)
	switch {
	case err != nil:
	case about.Contract != Contract:
		err = problem.New(problem.ProviderCapabilityMissing, fmt.Sprintf("the remote machine speaks version %d of the contract, this node %d", about.Contract, Contract), "run the same release on both")
	case !digestForm.MatchString(about.Version):
		err = problem.New(problem.ProviderCapabilityMissing, "the remote machine does not say what it runs", "")
	}
	if err != nil {
		about = About{}
	}
	p.about, p.fault, p.fetched = about, err, time.Now()
	return about, err
}

// Start asks the machine for a sandbox and gives its shim a key to the door.
func (p *Provider) Start(ctx context.Context, s sandbox.Spec, door net.Listener) (sandbox.Sandbox, error) {
	lack := func(what string) error {
		return problem.New(problem.ProviderCapabilityMissing, "provider remote "+what, "name another provider in the bundle")
	}
	switch {
	case len(s.Mounts) > 0:
		return nil, lack("shows nothing of this machine's files")
	case s.Rootfs != "" && s.Rootfs != "host":
		return nil, lack("brings its own root file system")
	}
	socket, err := sandbox.DoorSocket(door)
	if err != nil {
		return nil, err
	}
	if _, err := p.describe(ctx); err != nil {
		return nil, unreachable(err)
	}
	b := &box{p: p, spec: s, plan: sandbox.NewPlan(), withDoor: socket != "", leave: func() {}, closed: make(chan struct{})}
	c := Create{
		Session: s.Session, Argv: s.Argv, Env: s.Env, Files: s.Files, Trust: s.Trust, TimeoutMS: s.Timeout.Milliseconds(), GraceMS: s.Grace.Milliseconds(),
		Quota: s.Quota, Memory: s.Memory, Pids: s.Pids, CPUs: s.CPUs, Unlimited: s.Unlimited, Proxy: s.Proxy,
		Probe: sandbox.Challenge{Targets: b.plan.Targets, Name: b.plan.Name}, Canaries: s.Canaries,
	}
	if b.withDoor {
		canary := "gatehouse-door-key-" + rand.Text()
		if c.Door, b.leave, err = p.gate.admit(s.Session, socket, p.o.Advertise, canary); err != nil {
			return nil, err
		}
		// The canary lies in the key's own file: where the agent finds it, it finds
		// the key.
		c.Canaries = append(append([]string{}, c.Canaries...), canary)
	}
	if b.log, err = newTranscript(p.o.Transcripts, s.Session, p.o.TranscriptBytes, s.Output); err != nil {
		b.leave()
		return nil, err
	}
	var status Status
	if err := p.call(ctx, http.MethodPost, PathSessions, c, &status, maxAbout); err != nil {
		_ = b.Close() // it may exist although its answer was lost
		return nil, unreachable(err)
	}
	if status.Session != s.Session || status.State != StateCreated {
		_ = b.Close()
		return nil, problem.New(problem.SandboxFailed, "the remote machine answered about another sandbox", "")
	}
	return b, nil
}

// unreachable gives an error of the transport a code of this package; what the
// machine said itself has one.
func unreachable(err error) error {
	switch problem.CodeOf(err) {
	case problem.ProviderCapabilityMissing, problem.AgentNotFound, problem.SandboxFailed, problem.Conflict:
		return err
	}
	return problem.Wrap(err, problem.SandboxFailed, "the remote machine does not answer", "gatehouse conformance run --provider remote says what is wrong")
}

// call makes one request and decodes its answer.
func (p *Provider) call(ctx context.Context, method, path string, body, answer any, limit int64) error {
	resp, err := p.request(ctx, p.o.Calls, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, limit)).Decode(answer); err != nil {
		return fmt.Errorf("the remote machine's answer: %w", err)
	}
	return nil
}

// request makes one request. An answer other than 2xx is an error.
func (p *Provider) request(ctx context.Context, via http.RoundTripper, method, path string, body any) (*http.Response, error) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("remote provider: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, p.o.URL.JoinPath(path).String(), bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("remote provider: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := via.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, said(resp)
}

// known are the codes that the machine may use in its own name.
var known = map[string]problem.Code{
	string(problem.ProviderCapabilityMissing): problem.ProviderCapabilityMissing, string(problem.AgentNotFound): problem.AgentNotFound,
	string(problem.SandboxFailed): problem.SandboxFailed, string(problem.Conflict): problem.Conflict, string(problem.NotFound): problem.NotFound,
}

// said is a refusal of the machine. Its words are another machine's: bounded,
// and of one line.
func said(resp *http.Response) error {
	var f Fault
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxAbout)).Decode(&f)
	code, ok := known[f.Code]
	if !ok {
		return problem.New(problem.SandboxFailed, fmt.Sprintf("the remote machine answered %d", resp.StatusCode), "")
	}
	return problem.New(code, "the remote machine: "+line(f.Title), line(f.Hint))
}

// line bounds a text of the other machine: one printable line.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "")
	}
	return s
}
