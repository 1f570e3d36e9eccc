//go:build linux

package remoted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/remote"
	"gatehouse/gatekeeper/sandbox/remote/shim"
	"gatehouse/internal/problem"
)

// session is one sandbox of the other machine's sessions.
type session struct {
	s     *Server
	id    string
	life  context.Context // ends when the agent must
	stop  context.CancelFunc
	lease *time.Timer
	gone  chan struct{} // closed when nothing is left

	mu       sync.Mutex
	state    string
	ended    *remote.Ended
	box      sandbox.Sandbox
	door     net.Listener
	shim     *shim.Process
	out      output
	ending   bool
	closeErr error
}

// start makes the door, its shim and the sandbox.
func (x *session) start(ctx context.Context, c *remote.Create) (err error) {
	defer func() {
		x.mu.Lock()
		late := x.ending
		x.mu.Unlock()
		if late { // ended while it started: what end did not see yet goes here
			err = errors.Join(problem.New(problem.SandboxFailed, "the session is over", ""), x.clear())
		}
	}()
	dir := filepath.Join(x.s.o.Dir, x.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("session folder: %w", err)
	}
	spec := sandbox.Spec{
		Session: c.Session, Argv: c.Argv, Env: c.Env, Files: c.Files, Trust: c.Trust, Timeout: time.Duration(c.TimeoutMS) * time.Millisecond, Grace: time.Duration(c.GraceMS) * time.Millisecond,
		Quota: c.Quota, Memory: c.Memory, Pids: c.Pids, CPUs: c.CPUs, Unlimited: c.Unlimited, Proxy: c.Proxy, Output: &x.out,
		Challenge: &c.Probe, Canaries: append(slices.Clone(c.Canaries), x.s.canary.value),
	}
	if c.Door != nil {
		if err := x.openDoor(dir, c.Door); err != nil {
			return err
		}
	}
	x.mu.Lock()
	door := x.door
	x.mu.Unlock()
	box, err := x.s.o.Provider.Start(ctx, spec, door)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.box = box
	x.mu.Unlock()
	return nil
}

// clear closes what the session has by now and removes its folder.
func (x *session) clear() error {
	x.mu.Lock()
	box, door, p := x.box, x.door, x.shim
	x.box, x.door, x.shim = nil, nil, nil
	x.mu.Unlock()
	var errs []error
	if p != nil {
		p.Stop() // the way out first
	}
	if door != nil {
		errs = append(errs, door.Close())
	}
	if box != nil {
		errs = append(errs, box.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Join(x.s.o.Dir, x.id)))...)
}

func (x *session) openDoor(dir string, key *remote.DoorKey) error {
	l, err := sandbox.ListenDoor(filepath.Join(dir, "door.sock"))
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.door = l
	x.mu.Unlock()
	held, ok := l.(interface{ File() (*os.File, error) })
	if !ok {
		return errors.New("a door's listener has no descriptor")
	}
	f, err := held.File()
	if err != nil {
		return fmt.Errorf("door's socket: %w", err)
	}
	defer f.Close()
	p, err := shim.Start(x.s.o.Program, x.s.o.ShimUID, f, key)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.shim = p
	x.mu.Unlock()
	return nil
}

// said is the session's state for the node.
func (x *session) said() remote.Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	return remote.Status{Session: x.id, State: x.state, End: x.ended}
}

// holds reports whether an artifact is one of this session's.
func (x *session) holds(sum string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended == nil {
		return false
	}
	for _, s := range x.ended.Artifacts {
		if s == sum {
			return true
		}
	}
	return false
}

// end removes everything of the session and returns when it is gone. Only the
// first call does; the others wait for it.
func (x *session) end() error {
	x.mu.Lock()
	first := !x.ending
	x.ending = true
	x.mu.Unlock()
	if !first {
		<-x.gone
		return x.closeErr
	}
	x.lease.Stop()
	x.stop()
	errs := []error{x.clear()}
	x.mu.Lock()
	if x.ended != nil {
		x.s.o.Artifacts.release(x.ended.Artifacts)
	}
	x.mu.Unlock()
	if at := x.s.o.Transcripts; at != "" { // a sandbox that only stood has one too
		if err := os.Remove(filepath.Join(at, x.id+".log")); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	x.closeErr = errors.Join(errs...)
	x.s.mu.Lock()
	delete(x.s.sessions, x.id)
	x.s.mu.Unlock()
	close(x.gone)
	x.s.wg.Done()
	return x.closeErr
}

// probe passes on what the provider found, and adds what only this machine can
// see: whose the shim is.
func (s *Server) probe(w http.ResponseWriter, r *http.Request) error {
	x, err := s.find(r)
	if err != nil {
		return err
	}
	box, p := x.started()
	if box == nil {
		return problem.New(problem.Conflict, "the sandbox does not stand", "")
	}
	report, err := box.Probe(r.Context())
	if err != nil {
		return err
	}
	out := remote.Cases{}
	for _, c := range report.Cases {
		out.Cases = append(out.Cases, remote.Case{ID: c.ID, Name: c.Name, Outcome: c.Outcome, Evidence: c.Evidence, Proves: c.Proves})
	}
	if p != nil {
		out.Cases = append(out.Cases, s.shimCase(p))
	}
	x.lease.Reset(remote.Lease)
	return answer(w, http.StatusOK, out)
}

func (x *session) started() (sandbox.Sandbox, *shim.Process) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.box, x.shim
}

// shimCase is RM-01: a shim that runs as the agents' user, or as root, is no
// boundary. Whoever reads its key has the session's door from everywhere.
func (s *Server) shimCase(p *shim.Process) remote.Case {
	c := remote.Case{ID: "RM-01", Name: "the shim's user", Outcome: sandbox.Failed, Proves: sandbox.EnvironmentClean}
	uid, err := userOf(p.PID)
	switch {
	case err != nil:
		c.Evidence = "could not run: " + err.Error()
	case uid == 0:
		c.Evidence = "the shim is root"
	case s.o.Agents(uid):
		c.Evidence = fmt.Sprintf("the shim is user %d, as agents are", uid)
	default:
		c.Outcome, c.Evidence = sandbox.Passed, fmt.Sprintf("user %d, which no agent is", uid)
	}
	return c
}

// userOf returns the real, effective, saved and file system user of a process,
// which must be one.
func userOf(pid int) (uint32, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseUser(string(b))
}

// errShim ends a run whose shim died.
var errShim = errors.New("the shim is gone")

// run streams what the agent prints and ends with its end. The agent lives as
// long as somebody reads.
func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	x, err := s.find(r)
	if err != nil {
		return err
	}
	box, p := x.started()
	x.mu.Lock()
	again := x.state != remote.StateCreated
	if !again && box != nil {
		x.state = remote.StateRunning
	}
	x.mu.Unlock()
	if box == nil || again {
		return problem.New(problem.Conflict, "the sandbox does not stand, or ran already", "")
	}
	x.lease.Stop()
	ctx, stop := context.WithCancelCause(r.Context())
	cancel := func() { stop(nil) }
	defer cancel()
	defer context.AfterFunc(x.life, cancel)()
	if p != nil {
		// A sandbox whose shim is gone has no way out, and nothing else to offer.
		go func() {
			select {
			case <-p.Done():
				stop(errShim)
			case <-ctx.Done():
			}
		}()
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := &lines{w: w, c: http.NewResponseController(w)}
	lines.send(remote.Line{})
	x.out.to(lines)
	beat := time.NewTicker(remote.Beat)
	defer beat.Stop()
	type result struct {
		end sandbox.End
		err error
	}
	done := make(chan result, 1)
	go func() {
		end, err := box.Run(ctx)
		done <- result{end, err}
	}()
	for {
		select {
		case <-beat.C:
			if lines.send(remote.Line{}) != nil {
				cancel()
			}
		case got := <-done:
			if got.end.Reason == sandbox.Cancelled && errors.Is(context.Cause(ctx), errShim) {
				got.end.Reason, got.end.Detail = sandbox.Faulted, "shim" // nobody asked for it
			}
			if x.over(got.end, got.err, lines) != nil || r.Context().Err() != nil {
				_ = x.end() // the node is gone, and nobody fetches what is left
			}
			return nil
		}
	}
}

// over keeps an end, says it, and starts the lease in which its artifacts are
// fetched. The error is of somebody who does not read.
func (x *session) over(end sandbox.End, err error, to *lines) error {
	e := &remote.Ended{Exit: end.Exit, Reason: end.Reason, Detail: end.Detail, Final: end.Final, Artifacts: end.Artifacts, Skipped: end.Skipped}
	if err != nil {
		e.Exit, e.Reason, e.Detail = 128+9, sandbox.Faulted, string(problem.CodeOf(err))
	}
	x.mu.Lock()
	x.state, x.ended = remote.StateEnded, e
	x.mu.Unlock()
	x.lease.Reset(remote.Lease)
	return to.send(remote.Line{End: e})
}

// lines writes the lines of one run.
type lines struct {
	mu sync.Mutex
	w  io.Writer
	c  *http.ResponseController
}

func (l *lines) send(line remote.Line) error {
	raw, err := json.Marshal(line)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.c.SetWriteDeadline(time.Now().Add(remote.Silent)) // a node that does not read is gone
	if _, err := l.w.Write(append(raw, '\n')); err != nil {
		return err
	}
	return l.c.Flush()
}

// output passes on what the agent prints. An error ends the session: nobody is
// there to read it.
type output struct {
	mu    sync.Mutex
	lines *lines
}

func (o *output) to(l *lines) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = l
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	l := o.lines
	o.mu.Unlock()
	if l == nil {
		return len(b), nil // before the run: bubblewrap's own words
	}
	for n := 0; n < len(b); n += remote.MaxChunk {
		if err := l.send(remote.Line{Out: b[n:min(len(b), n+remote.MaxChunk)]}); err != nil {
			return n, err
		}
	}
	return len(b), nil
}
