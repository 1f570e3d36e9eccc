//go:build linux

package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// Probe runs the negative cases where the agent will be, and completes them
// with what only the outside can see.
func (b *box) Probe(ctx context.Context) (sandbox.Report, error) {
	report := sandbox.Report{Provider: b.p.Name(), At: time.Now().UTC()}
	if err := b.enter("probe"); err != nil {
		return report, err
	}
	defer b.active.Done()
	stop := context.AfterFunc(ctx, b.kill) // a probe that hangs is a sandbox that ends
	defer stop()
	plan, done, err := b.plan()
	if err != nil {
		return report, probeFailed(err)
	}
	defer done()
	if err := sandbox.Send(b.control, sandbox.ToInit{Control: true}); err != nil {
		return report, probeFailed(err)
	}
	controls, err := b.await(func(m sandbox.FromInit) bool { return m.Ran })
	if err != nil {
		return report, probeFailed(err)
	}
	plan.Controls = controls.Controls
	if err := sandbox.Send(b.room, sandbox.ToRoom{Probe: &plan}); err != nil {
		return report, probeFailed(err)
	}
	answer, err := b.answer()
	if err != nil {
		return report, probeFailed(err)
	}
	report.Cases = answer.Cases
	if plan.Door {
		report.Cases = sandbox.Witnessed(b.spec.Witness, plan.Targets, answer.Cases)
	}
	report.Cases = append(report.Cases, kernelUser(b.init))
	if b.group != nil {
		report.Cases = append(report.Cases, b.group.prove(int(b.initfd.Fd())))
	}
	return report, nil
}

// kernelUser is what only the outside can see: the user that the sandbox is for
// the kernel. As 0 it could name a core handler that the host runs as root.
func kernelUser(init int) sandbox.Case {
	c := sandbox.Case{ID: "SB-31", Name: "the sandbox's user for the kernel", Proves: sandbox.Unprivileged, Outcome: sandbox.Failed}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", init))
	var inside, outside, count uint32
	if err == nil {
		_, err = fmt.Sscan(string(b), &inside, &outside, &count)
	}
	switch {
	case err != nil:
		c.Evidence = "could not run: " + err.Error()
	case outside == 0 || count != 1:
		c.Evidence = fmt.Sprintf("%d users from %d on", count, outside)
	default:
		c.Outcome, c.Evidence = sandbox.Passed, "one user, and not 0"
	}
	return c
}

func probeFailed(err error) error {
	return problem.Wrap(err, problem.SandboxFailed, "the probe could not run", "")
}

// plan describes the session to the probe. done closes the listeners that the
// probe must not reach.
func (b *box) plan() (plan sandbox.Plan, done func(), err error) {
	plan = sandbox.NewPlan()
	if c := b.spec.Challenge; c != nil {
		plan.Targets, plan.Name = c.Targets, c.Name
	}
	plan.Door = b.socket != ""
	plan.Canaries = b.spec.Canaries
	plan.Outside = []string{b.p.o.Run, b.p.o.Transcripts}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		plan.Outside = append(plan.Outside, home)
	}
	if plan.Host, err = os.Hostname(); err != nil {
		return plan, nil, err
	}
	var open []net.Listener
	done = func() {
		for _, l := range open {
			l.Close()
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := listenApart(addr)
		if err != nil {
			continue // a machine without that family; none at all is a failed case
		}
		open = append(open, l)
		plan.Ports = append(plan.Ports, l.Addr().(*net.TCPAddr).AddrPort().Port())
	}
	if b.spec.Witness != nil && plan.Door {
		b.spec.Witness.Expect(sandbox.Nonces(plan.Targets))
	}
	return plan, done, nil
}

// listenApart listens on a port on which gatehouse-init does not wait inside:
// SB-20 takes an answer there for the host's.
func listenApart(addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil || !sandbox.OwnPort(l.Addr().(*net.TCPAddr).AddrPort().Port()) {
		return l, err
	}
	defer l.Close() // while it is held the kernel gives out another one
	return listenApart(addr)
}
