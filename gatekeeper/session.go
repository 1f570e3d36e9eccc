package gatekeeper

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// States of a session: DESIGN.md section 7. Each change is a receipt before it
// takes effect.
const (
	stateAdmitted  = "admitted"
	statePreparing = "preparing"
	stateRunning   = "running"
	stateEnded     = "ended"
	stateRefused   = "refused"
)

// Endings beside those of sandbox.End.
const (
	reasonNoEffect = "no_effect"
	reasonRevoked  = "revoked"
	reasonFlood    = "receipt_flood"
)

// Time that an ending may take, whatever asked for it.
const (
	startLimit  = 2 * time.Minute  // sandbox start and probe
	runSlack    = 30 * time.Second // beyond the bundle's timeout, before the provider is not waited for
	finishLimit = 30 * time.Second // receipts and files of an ending
)

// end says why a session ends from outside.
type end struct{ reason string }

func (e end) Error() string { return "session " + e.reason }

// session carries one admitted event to its end. Its goroutine alone writes
// its chain.
type session struct {
	g      *Gatekeeper
	id     string
	chain  Chain
	choice bundle.Choice
	made   *prepared
	event  *event.Event
	opened time.Time
	dir    string

	ctx    context.Context // ends when the session must
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the chain is closed

	parent *session // nil for a root
	depth  int      // below the root

	mu       sync.Mutex
	state    string
	door     Door // nil before it is open
	recorder *recorder
	level    int

	children  []*session // started, the oldest first
	places    int        // taken and not started yet
	childless bool       // no further child starts

	asked map[receipts.Hash]struct{} // refusals that its agent asks a reviewer about
}

func newSession(g *Gatekeeper, id string, chain Chain, c bundle.Choice, made *prepared, e *event.Event, now time.Time) *session {
	s := &session{
		g: g, id: id, chain: chain, choice: c, made: made, event: e, opened: now, dir: g.folder(id),
		done: make(chan struct{}), state: stateAdmitted, level: 2,
	}
	s.ctx, s.cancel = context.WithCancelCause(g.base)
	return s
}

// start runs the session on its own goroutine.
func (g *Gatekeeper) start(s *session) {
	life := func() {
		s.run()
		g.fold.closed(s.id)
		g.mu.Lock()
		delete(g.live, s.id)
		g.mu.Unlock()
		s.cancel(nil)
		close(s.done)
	}
	g.mu.Lock()
	g.live[s.id] = s
	closing := g.closing
	if !closing {
		g.running.Go(life)
	}
	g.mu.Unlock()
	if closing {
		life() // it ends at once, and its chain is closed before the caller goes on
	}
}

func (s *session) parentID() string {
	if s.parent == nil {
		return ""
	}
	return s.parent.id
}

func (s *session) stateNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// about reports whether the session works on what scope and id name.
func (s *session) about(scope, id string) bool {
	switch scope {
	case event.StopRepository:
		return s.choice.Subject.Repository == id || s.event.Facts["repository.id"] == id
	case event.StopInstallation:
		return s.event.Facts["installation.id"] == id || s.event.Facts["installation.uuid"] == id
	case event.StopMember:
		return s.event.Actor.ID == id
	case event.StopAgentSession: // a person said stop: IN-22
		return s.event.Facts["agent_session.id"] == id
	case event.StopTeam:
		return s.event.Facts["team.id"] == id
	case event.StopOrganization:
		return s.event.Facts["organization.id"] == id
	}
	return false
}

// run is the session's life. Whatever happens in it, the chain is closed.
func (s *session) run() {
	ended := s.live()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), finishLimit)
	defer cancel()
	s.endChildren(ctx, true)
	if err := s.finish(ctx, ended); err != nil {
		// The chain stays open in the journal; the next start closes it as lost.
		s.g.o.Log.ErrorContext(ctx, "couldn't close a session's chain", slog.String("session", s.id), slog.Any("err", err))
	}
	if ended.state == stateEnded {
		s.streak(ctx, ended.reason)
	}
}

// ending is how a session ended and what it left.
type ending struct {
	state   string // ended | refused
	reason  string
	code    problem.Code // of refused
	detail  string
	sandbox *sandbox.End
}

func (s *session) live() ending {
	key, limit := "", 0
	if c := s.choice.Bundle.Session.Concurrency; c != nil {
		key, limit = s.choice.Bundle.Name+"\x00"+s.choice.Key, c.Max
	}
	queue := s.g.queue
	if s.parent != nil {
		// Children have places of their own: parents that wait for theirs would
		// otherwise hold all of them.
		queue = s.g.below
	}
	leave, err := queue.enter(s.ctx, key, limit)
	if err != nil {
		return s.cut(err)
	}
	defer leave()
	if s.ctx.Err() != nil { // ended while it got its place: nothing may start
		return s.cut(s.ctx.Err())
	}
	ended, err := s.inSandbox()
	if err != nil {
		return s.cut(err)
	}
	return ended
}

// cut words an error that ended a session: what asked for it, or a failure.
func (s *session) cut(err error) ending {
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause
	}
	var e end
	switch {
	case errors.As(err, &e):
		return ending{state: stateEnded, reason: e.reason}
	case errors.Is(err, context.DeadlineExceeded):
		return ending{state: stateEnded, reason: sandbox.Timeout}
	}
	s.g.o.Log.Error("session failed", slog.String("session", s.id), slog.Any("err", err))
	return ending{state: stateEnded, reason: sandbox.Faulted, detail: string(problem.CodeOf(err))}
}

// inSandbox prepares the sandbox, proves it and runs the agent.
func (s *session) inSandbox() (out ending, err error) {
	fence, err := randomHex(8)
	if err != nil {
		return ending{}, err
	}
	give, err := deliver(s.id, fence, s.choice, s.event)
	if err != nil {
		return ending{}, err
	}
	if err := s.move(statePreparing, "", receipts.Hash{}, give.redacted); err != nil {
		return ending{}, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return ending{}, fmt.Errorf("couldn't make the session's folder: %w", err)
	}
	spec := s.spec(give)
	shut, door, err := s.openDoor(give, &spec)
	if err != nil {
		return ending{}, err
	}
	equip(&spec, s.choice.Bundle)
	// The door is closed first in every ending and the moment it is asked for:
	// authority is gone before anything that could be slow.
	stop := context.AfterFunc(s.ctx, func() { shut(s.cut(s.ctx.Err()).reason) })
	defer stop()
	box, err := s.startBox(spec, door)
	if problem.CodeOf(err) == problem.ProviderCapabilityMissing && s.ctx.Err() == nil {
		// What the provider found missing while it started is refused like what the
		// probe would have found.
		shut(stateRefused)
		s.g.o.Log.WarnContext(s.ctx, "the provider cannot give its boundary", slog.String("session", s.id), slog.Any("err", err))
		return s.refused(err.Error(), receipts.Hash{})
	}
	if err != nil {
		shut(s.cut(err).reason)
		return ending{}, err
	}
	defer func() {
		reason := out.reason
		if err != nil {
			reason = s.cut(err).reason
		}
		shut(reason)
		if cerr := box.Close(); cerr != nil {
			s.g.o.Log.Warn("couldn't clean up a sandbox", slog.String("session", s.id), slog.Any("err", cerr))
		}
	}()
	if refused, err := s.prove(box); err != nil || refused.code != "" {
		return refused, err
	}
	return s.agent(box, door, shut)
}

func (s *session) spec(give delivered) sandbox.Spec {
	b := s.choice.Bundle
	return sandbox.Spec{
		Mounts: mountsOf(b), Session: s.id, Argv: checkedOut(b, argv(b, s.choice.Task)), Env: map[string]string{"GATEHOUSE_SESSION": s.id, "GATEHOUSE_TASK": s.choice.Task},
		Files: give.files, Rootfs: rootfsOf(b), Timeout: time.Duration(b.Session.Timeout), Quota: int64(b.Session.Workspace.Quota),
		// Only hard mode asks for limits; in shadow a machine that cannot give them is
		// used without, as the missing capability in the receipts says.
		Unlimited: s.g.o.Unlimited || b.Mode != bundle.Hard,
	}
}

// openDoor opens the session's exit, nil when the node has none to give. shut
// closes it with a reason, the first time it is called.
func (s *session) openDoor(give delivered, spec *sandbox.Spec) (shut func(reason string), door Door, err error) {
	if s.g.o.Doors == nil {
		return func(string) {}, nil, nil
	}
	s.recorder = newRecorder(s.chain.Recorder(s.doorObs()))
	door, err = s.g.o.Doors.Open(s.ctx, DoorSpec{
		Session: s.id, Bundle: s.choice.Bundle, Digest: s.made.digest, Policy: s.made.policy, Subject: s.choice.Subject,
		Event: give.files[fileEventJSON], Recorder: s.recorder, Dir: s.dir, Opened: s.opened, Parent: s.parentID(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("couldn't open the door: %w", err)
	}
	s.doorOpened(door)
	spec.Trust, spec.Witness, spec.Proxy = door.Trust(), door, true
	// What the session itself gives wins: a mediator can't take its place.
	inside := door.Inside()
	spec.Env, spec.Files = under(spec.Env, inside.Env), under(spec.Files, inside.Files)
	spec.Mounts = append(spec.Mounts, inside.Mounts...)
	var once sync.Once
	return func(reason string) {
		once.Do(func() {
			s.endChildren(s.ctx, false)
			if err := door.Close(reason); err != nil {
				s.g.o.Log.Warn("couldn't close a door", slog.String("session", s.id), slog.Any("err", err))
			}
		})
	}, door, nil
}

// under returns top laid over base.
func under[V any](top, base map[string]V) map[string]V {
	out := make(map[string]V, len(top)+len(base))
	maps.Copy(out, base)
	maps.Copy(out, top)
	return out
}

func (s *session) doorObs() receipts.Obs {
	return receipts.Obs{Point: pointDoor, Kind: "egress-proxy", Level: s.level, Mediation: "sole", Contract: s.made.contract}
}

func (s *session) startBox(spec sandbox.Spec, door Door) (sandbox.Sandbox, error) {
	ctx, cancel := context.WithTimeout(s.ctx, startLimit)
	defer cancel()
	spec.Mounts = append(spec.Mounts, cachesOf(s.choice.Bundle, s.g.o.Caches)...)
	if r := s.choice.Bundle.Session.Rootfs; r.Kind == rootfsImage {
		var err error
		if spec.Rootfs, err = s.g.o.Images.Rootfs(ctx, r.Value); err != nil {
			return nil, err
		}
	}
	if door == nil {
		return s.made.provider.Start(ctx, spec, nil)
	}
	return s.made.provider.Start(ctx, spec, door.Listener())
}

// prove runs the probe before the agent and holds it against what the bundle
// needs. In hard mode, credential_free and required a missing capability or
// any case that failed refuses the session; compatibility goes on at level 1.
func (s *session) prove(box sandbox.Sandbox) (ending, error) {
	ctx, cancel := context.WithTimeout(s.ctx, startLimit)
	defer cancel()
	report, err := box.Probe(ctx)
	if err != nil {
		if s.ctx.Err() != nil {
			return ending{}, err
		}
		// A probe that could not run has proven nothing.
		report = sandbox.Report{Provider: s.made.provider.Name(), At: s.g.o.Clock(), Cases: []sandbox.Case{{ID: "probe", Outcome: sandbox.Failed, Evidence: "could not run"}}}
		s.g.o.Log.Error("the probe could not run", slog.String("session", s.id), slog.Any("err", err))
	}
	evidence, err := s.keep("probe.json", report)
	if err != nil {
		return ending{}, err
	}
	for _, c := range report.Cases {
		if c.Outcome == sandbox.Failed {
			s.g.o.Log.Error("a case of the probe failed", slog.String("session", s.id), slog.String("case", c.ID), slog.String("evidence", c.Evidence))
		}
	}
	lack := lacks(report, s.g.needs(s.choice.Bundle))
	weaker := s.choice.Bundle.Credentials.Weaker != nil && s.choice.Bundle.Mode != bundle.Hard
	if lack != "" && !weaker {
		return s.refused(lack, evidence)
	}
	_, distant := s.made.provider.(sandbox.Distant)
	s.setLevel(levelOf(report, s.g.o.Doors != nil, weaker, distant))
	return ending{}, s.move(stateRunning, "", evidence, nil)
}

// refused ends a session whose provider lacks what its bundle needs.
func (s *session) refused(lack string, evidence receipts.Hash) (ending, error) {
	return ending{state: stateRefused, reason: stateRefused, code: problem.ProviderCapabilityMissing, detail: lack},
		s.move(stateRefused, string(problem.ProviderCapabilityMissing), evidence, nil)
}

// lacks names the first case or capability that a report does not prove.
func lacks(r sandbox.Report, need []sandbox.Capability) string {
	for _, c := range r.Cases {
		if c.Outcome == sandbox.Failed {
			return c.ID
		}
	}
	proven := r.Proven()
	for _, c := range need {
		if !proven[c] {
			return string(c)
		}
	}
	return ""
}

// levelOf is the observation level that a probe's report supports. What a
// distant machine says of its own probe is never worth more than 2, and nothing
// when it made no attempt at all.
func levelOf(r sandbox.Report, door, weaker, distant bool) int {
	proven := r.Proven()
	switch {
	case distant && len(r.Cases) == 0:
		return 0
	case weaker || lacks(r, nil) != "":
		return 1
	case distant:
		return 2
	case proven[sandbox.NetworkClosed] && (!door || proven[sandbox.DoorOnly]):
		return 3 // per this probe, executed by this node
	}
	return 2
}

func (s *session) setLevel(level int) {
	s.level = level
	if s.recorder != nil {
		s.recorder.swap(s.chain.Recorder(s.doorObs()))
	}
}

// agent runs the agent to its end, its timeout, or the session's.
func (s *session) agent(box sandbox.Sandbox, door Door, shut func(string)) (ending, error) {
	if first, ok := door.(Starter); ok {
		first.Start(s.ctx)
	}
	s.recorder.begin()
	timeout := time.Duration(s.choice.Bundle.Session.Timeout)
	ctx, cancel := context.WithTimeout(s.ctx, timeout+runSlack)
	defer cancel()
	// A timed out agent is asked to go before it is killed; it does that without the door.
	late := time.AfterFunc(timeout, func() { shut(sandbox.Timeout) })
	defer late.Stop()
	ran := make(chan struct{})
	defer close(ran)
	context.AfterFunc(ctx, func() {
		select {
		case <-ran:
		case <-time.After(runSlack): // a provider that does not come back
			_ = box.Close()
		}
	})
	end, err := box.Run(ctx)
	if err != nil {
		return ending{}, err
	}
	out := ending{state: stateEnded, reason: end.Reason, detail: end.Detail, sandbox: &end}
	switch {
	case s.ctx.Err() != nil:
		out.reason = s.cut(s.ctx.Err()).reason
	case ctx.Err() != nil:
		out.reason = sandbox.Timeout
	case !slices.Contains([]string{sandbox.Completed, sandbox.Faulted, sandbox.Timeout, sandbox.Cancelled, sandbox.Lost}, end.Reason):
		out.reason, out.detail = sandbox.Faulted, "the provider gave no reason"
	case end.Reason == sandbox.Completed && len(end.Artifacts) == 0 && !s.recorder.effect():
		// An agent that says it is done and did nothing is its own ending.
		out.reason = reasonNoEffect
	}
	return out, s.take(&end)
}

// take moves the transcript out of the sandbox's reach.
func (s *session) take(e *sandbox.End) error {
	if e.Transcript == "" {
		return nil
	}
	to := filepath.Join(s.dir, transcriptFile)
	if e.Transcript == to {
		return nil
	}
	if err := move(e.Transcript, to); err != nil {
		return fmt.Errorf("couldn't keep the transcript: %w", err)
	}
	e.Transcript = to
	return nil
}

// move changes the state: the receipt is durable before anything follows it.
func (s *session) move(to, reason string, evidence receipts.Hash, redacted map[string]uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), finishLimit)
	defer cancel()
	s.mu.Lock()
	from := s.state
	s.mu.Unlock()
	if !next(from, to) {
		return fmt.Errorf("session %s cannot go from %s to %s", s.id, from, to)
	}
	obs := s.g.obs(s.made)
	obs.Level = s.level
	if _, err := s.chain.Append(ctx, receipts.Receipt{
		Type: receipts.TypeSessionState, State: &receipts.State{From: from, To: to, Reason: reason, Evidence: evidence, Level: s.level}, Obs: &obs, Red: redacted,
	}); err != nil {
		return fmt.Errorf("couldn't write a state of session %s: %w", s.id, err)
	}
	s.mu.Lock()
	s.state = to
	s.mu.Unlock()
	return nil
}

// next is the state machine.
func next(from, to string) bool {
	switch from {
	case stateAdmitted:
		return to == statePreparing || to == stateEnded
	case statePreparing:
		return to == stateRunning || to == stateRefused || to == stateEnded
	case stateRunning:
		return to == stateEnded
	}
	return false
}

// finish keeps the result and closes the chain.
func (s *session) finish(ctx context.Context, e ending) error {
	result := s.result(e)
	evidence, err := s.keep(resultFile, result)
	if err != nil {
		s.g.o.Log.ErrorContext(ctx, "couldn't keep a session's result", slog.String("session", s.id), slog.Any("err", err))
	}
	if s.stateNow() != stateRefused {
		if err := s.move(stateEnded, e.reason, evidence, nil); err != nil {
			return err
		}
	}
	c := receipts.Close{Reason: e.reason}
	if e.sandbox != nil {
		// A close is never lost to a provider's odd number.
		if exit := int64(e.sandbox.Exit); exit >= 0 && exit <= 255 {
			c.Exit = &exit
		}
		c.Out = artifactDigests(e.sandbox.Artifacts)
	}
	if _, err := s.chain.Close(ctx, c); err != nil {
		return err
	}
	s.g.o.Log.InfoContext(ctx, "session ended", slog.String("session", s.id), slog.String("reason", e.reason), slog.String("detail", e.detail))
	return nil
}

// keep writes a JSON file of the session's folder and returns its digest.
func (s *session) keep(name string, v any) (receipts.Hash, error) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return receipts.Hash{}, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return receipts.Hash{}, err
	}
	if err := os.WriteFile(filepath.Join(s.dir, name), append(raw, '\n'), 0o600); err != nil {
		return receipts.Hash{}, fmt.Errorf("couldn't keep %s: %w", name, err)
	}
	return sha256.Sum256(append(raw, '\n')), nil
}
