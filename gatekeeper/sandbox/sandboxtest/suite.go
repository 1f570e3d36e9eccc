//go:build linux

package sandboxtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// Suite drives one provider through the matrix.
type Suite struct {
	Provider sandbox.Provider
	// Base is what every session starts from: Rootfs, Unlimited and the like.
	// Session, Argv, Output and limits are overwritten.
	Base sandbox.Spec
	// Dir is a folder for doors, closed to the agents' users.
	Dir string
	// Canaries are planted values of the host; see sandbox.Spec.
	Canaries []string
	// Quick leaves out the cases that exhaust something.
	Quick bool
	// Extra are cases that need more than a provider, run after the suite's own:
	// SB-49 needs a whole door.
	Extra []Extra

	mu    sync.Mutex
	count int
}

// within bounds every step; nothing that works comes near it.
const within = time.Minute

// Test runs the suite as subtests named by case.
func Test(t *testing.T, s *Suite) {
	t.Helper()
	for _, c := range s.Run(t.Context()) {
		t.Run(c.ID+"_"+strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) {
			switch c.Outcome {
			case sandbox.Passed, sandbox.Absent:
				t.Logf("%s: %s", c.Outcome, c.Evidence)
			default:
				t.Errorf("%s: %s", c.Outcome, c.Evidence)
			}
		})
	}
}

// Extra is one case that the caller judges. An error is a failed case.
type Extra struct {
	ID, Name string
	Proves   sandbox.Capability
	Judge    func(context.Context) (evidence string, err error)
}

// row is one case that needs more than the probe.
type row struct {
	id, name string
	proves   sandbox.Capability
	heavy    bool
	judge    func(context.Context, *Suite) (evidence string, err error)
}

// errAbsent marks a case whose feature the provider does not declare.
var errAbsent = errors.New("not declared")

// Run runs every case, in order.
func (s *Suite) Run(ctx context.Context) []sandbox.Case {
	remove, err := s.plant()
	if err != nil {
		return []sandbox.Case{{ID: "suite", Name: "plant canaries", Outcome: sandbox.Failed, Evidence: err.Error()}}
	}
	defer remove()
	cases := s.probe(ctx, "no door", false)
	cases = append(cases, s.probe(ctx, "door", true)...)
	all := slices.Clone(rows)
	for _, e := range s.Extra {
		all = append(all, row{e.ID, e.Name, e.Proves, false, func(ctx context.Context, _ *Suite) (string, error) { return e.Judge(ctx) }})
	}
	for _, r := range all {
		if r.heavy && s.Quick {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 3*within)
		c := sandbox.Case{ID: r.id, Name: r.name, Proves: r.proves, Outcome: sandbox.Passed}
		evidence, err := r.judge(ctx, s)
		cancel()
		c.Evidence = evidence
		switch {
		case errors.Is(err, errAbsent):
			c.Outcome, c.Evidence = sandbox.Absent, err.Error()
		case err != nil:
			c.Outcome, c.Evidence = sandbox.Failed, err.Error()
		}
		cases = append(cases, c)
	}
	return cases
}

// plant puts a canary of the suite's own where a secret of the host could lie:
// the node's environment and a file that everybody may read. Spec.Canaries then
// tells each probe what it must find nowhere.
func (s *Suite) plant() (remove func(), err error) {
	canary := "gatehouse-conformance-" + rand.Text()
	f, err := os.CreateTemp("", "gatehouse-conformance-")
	if err != nil {
		return nil, fmt.Errorf("plant a canary: %w", err)
	}
	_, err = f.WriteString(canary)
	if err := errors.Join(err, f.Chmod(0o644), f.Close(), os.Setenv(canaryVariable, canary)); err != nil {
		return nil, fmt.Errorf("plant a canary: %w", err)
	}
	given := s.Canaries
	s.Canaries = append(slices.Clone(given), canary)
	return func() {
		s.Canaries = given
		_ = os.Unsetenv(canaryVariable)
		_ = os.Remove(f.Name())
	}, nil
}

const canaryVariable = "GATEHOUSE_CONFORMANCE_CANARY"

// spec returns a new session's Spec.
func (s *Suite) spec(argv ...string) sandbox.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	spec := s.Base
	spec.Session = fmt.Sprintf("conformance-%d", s.count)
	spec.Argv = argv
	spec.Timeout = within
	spec.Grace = 500 * time.Millisecond
	return spec
}

func attempt(args ...string) []string { return append([]string{sandbox.InitPath, "attempt"}, args...) }

// probe runs the provider's own probe in a session of its own.
func (s *Suite) probe(ctx context.Context, where string, withDoor bool) []sandbox.Case {
	could := func(err error) []sandbox.Case {
		return []sandbox.Case{{ID: "probe", Name: where, Outcome: sandbox.Failed, Evidence: "could not run: " + err.Error()}}
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	spec := s.spec(attempt("inherited")...)
	spec.Canaries = s.Canaries
	b, stop, err := s.start(ctx, spec, withDoor)
	if err != nil {
		return could(err)
	}
	defer stop()
	report, err := b.Probe(ctx)
	if err != nil {
		return could(err)
	}
	if len(report.Cases) == 0 {
		return could(errors.New("the report is empty"))
	}
	for i := range report.Cases {
		report.Cases[i].Name += ", " + where
	}
	return report.Cases
}

// start starts a sandbox, with a refusing door when asked.
func (s *Suite) start(ctx context.Context, spec sandbox.Spec, withDoor bool) (sandbox.Sandbox, func(), error) {
	if !withDoor {
		b, err := s.Provider.Start(ctx, spec, nil)
		if err != nil {
			return nil, nil, err
		}
		return b, func() { _ = b.Close() }, nil
	}
	d, err := openDoor(s.Dir, spec.Session)
	if err != nil {
		return nil, nil, err
	}
	spec.Witness = d
	b, err := s.Provider.Start(ctx, spec, d.Listener)
	if err != nil {
		d.close()
		return nil, nil, err
	}
	return b, func() { _ = b.Close(); d.close() }, nil
}

// run runs one agent to its end.
func (s *Suite) run(ctx context.Context, spec sandbox.Spec) (sandbox.End, string, error) {
	var out text
	if spec.Output == nil {
		spec.Output = &out
	}
	b, stop, err := s.start(ctx, spec, false)
	if err != nil {
		return sandbox.End{}, "", err
	}
	defer stop()
	end, err := b.Run(ctx)
	return end, out.String(), err
}

// park starts an agent that prints a line with "parked" and then holds on. It
// returns the line; end ends the session.
func (s *Suite) park(ctx context.Context, spec sandbox.Spec) (line string, end func(), err error) {
	out := newText()
	spec.Output = out
	b, stop, err := s.start(ctx, spec, false)
	if err != nil {
		return "", nil, err
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan sandbox.End, 1)
	go func() {
		e, _ := b.Run(running)
		done <- e
	}()
	over := func() {
		cancel()
		stop()
		<-done
	}
	select {
	case line := <-out.parked:
		return line, over, nil
	case e := <-done:
		done <- e
		over()
		return "", nil, fmt.Errorf("the agent ended: exit %d %s %s", e.Exit, e.Reason, e.Detail)
	case <-ctx.Done():
		over()
		return "", nil, ctx.Err()
	}
}

// text collects output and finds the line with "parked".
type text struct {
	mu     sync.Mutex
	all    strings.Builder
	found  bool
	parked chan string
}

func newText() *text { return &text{parked: make(chan string, 1)} }

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all.Len() < 1<<20 {
		t.all.Write(b)
	}
	if t.parked != nil && !t.found {
		for line := range strings.Lines(t.all.String()) {
			if strings.HasPrefix(line, "parked") && strings.HasSuffix(line, "\n") {
				t.found = true
				t.parked <- strings.TrimSpace(line)
				break
			}
		}
	}
	return len(b), nil
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}
