//go:build linux

package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

var rows = []row{
	{"contract", "exit codes and reasons", "", false, exits},
	{"contract", "order and idempotence", "", false, order},
	{"SB-17", "two sessions at once", sandbox.FilesystemPrivate, false, twoSessions},
	{"SB-34", "links and names in /gatehouse/out", sandbox.FilesystemPrivate, false, outward},
	{"SB-36", "process bomb", sandbox.Unprivileged, true, processBomb},
	{"SB-37", "memory bomb", sandbox.ResourceLimited, true, memoryBomb},
	{"SB-38", "disk bomb", sandbox.FilesystemPrivate, true, diskBomb},
	{"SB-39", "descriptor bomb", sandbox.Unprivileged, true, descriptorBomb},
	{"SB-40", "processor hog", sandbox.Unprivileged, true, hog},
	{"SB-41", "output flood", "", true, flood},
	{"SB-41", "tripwire on the output", "", false, tripwire},
	{"SB-42", "daemons", sandbox.Supervised, false, daemons},
	{"SB-46", "a poisoned cache", sandbox.FilesystemPrivate, false, poisonedCache},
	{"SB-47", "environment of the agent's own tools", sandbox.EnvironmentClean, false, tools},
	{"SB-50", "a door that is gone", sandbox.DoorOnly, false, doorGone},
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func exits(ctx context.Context, s *Suite) (string, error) {
	for script, want := range map[string]sandbox.End{
		"exit 0":                   {Exit: 0, Reason: sandbox.Completed},
		"exit 7":                   {Exit: 7, Reason: sandbox.Faulted},
		"kill -KILL $$":            {Exit: 137, Reason: sandbox.Faulted},
		"trap '' TERM; sleep 1000": {Exit: 137, Reason: sandbox.Timeout},
	} {
		spec := s.spec(sh(script)...)
		if want.Reason == sandbox.Timeout {
			spec.Timeout = time.Second
		}
		end, _, err := s.run(ctx, spec)
		if err != nil {
			return "", fmt.Errorf("%s: %w", script, err)
		}
		if end.Exit != want.Exit || end.Reason != want.Reason {
			return "", fmt.Errorf("%s: exit %d %s, want %d %s", script, end.Exit, end.Reason, want.Exit, want.Reason)
		}
	}
	return "0, 7, a signal and a timeout are told apart", nil
}

func order(ctx context.Context, s *Suite) (string, error) {
	b, err := s.Provider.Start(ctx, s.spec(sh("exit 0")...), nil)
	if err != nil {
		return "", err
	}
	defer b.Close()
	if _, err := b.Run(ctx); err != nil {
		return "", err
	}
	if _, err := b.Run(ctx); err == nil {
		return "", errors.New("a second Run succeeded")
	}
	if _, err := b.Probe(ctx); err == nil {
		return "", errors.New("a Probe after Run succeeded")
	}
	for range 3 {
		if err := b.Close(); err != nil {
			return "", fmt.Errorf("close: %w", err)
		}
	}
	unstarted, err := s.Provider.Start(ctx, s.spec(sh("exit 0")...), nil)
	if err != nil {
		return "", err
	}
	if err := unstarted.Close(); err != nil {
		return "", fmt.Errorf("close before Run: %w", err)
	}
	if _, err := unstarted.Run(ctx); err == nil {
		return "", errors.New("a Run after Close succeeded")
	}
	return "each step once and in order; Close any number of times", nil
}

// twoSessions plants a canary in every writable place of one session and lets
// the probe of another look for it.
func twoSessions(ctx context.Context, s *Suite) (string, error) {
	const canary = "canary-of-the-other-session"
	first := s.spec(sh("for d in /workspace /tmp \"$HOME\" /gatehouse/out /dev/shm; do echo " + canary + " > $d/c; done; echo parked; exec sleep 1000")...)
	first.Files = map[string][]byte{"event.json": []byte(canary)}
	_, end, err := s.park(ctx, first)
	if err != nil {
		return "", err
	}
	defer end()
	second := s.spec(sh("exit 0")...)
	second.Canaries = []string{canary}
	b, stop, err := s.start(ctx, second, true)
	if err != nil {
		return "", err
	}
	defer stop()
	report, err := b.Probe(ctx)
	if err != nil {
		return "", err
	}
	for _, c := range report.Cases {
		if c.Outcome == sandbox.Failed {
			return "", fmt.Errorf("%s %s: %s", c.ID, c.Name, c.Evidence)
		}
	}
	return "the second session's probe finds nothing of the first", nil
}

// others proves that another session starts and runs meanwhile.
func (s *Suite) others(ctx context.Context) error {
	end, out, err := s.run(ctx, s.spec(sh("echo fine")...))
	if err != nil {
		return fmt.Errorf("another session meanwhile: %w", err)
	}
	if end.Exit != 0 || !strings.Contains(out, "fine") {
		return fmt.Errorf("another session meanwhile: exit %d, %q", end.Exit, out)
	}
	return nil
}

// bombed runs a bomb, another session meanwhile, and returns what the bomb got.
func (s *Suite) bombed(ctx context.Context, spec sandbox.Spec) (string, error) {
	line, end, err := s.park(ctx, spec)
	if err != nil {
		return "", err
	}
	defer end()
	return line, s.others(ctx)
}

func processBomb(ctx context.Context, s *Suite) (string, error) {
	spec := s.spec(attempt("bomb", "processes")...)
	spec.Pids = 200
	line, err := s.bombed(ctx, spec)
	if err != nil {
		return "", err
	}
	var n int
	if _, err := fmt.Sscanf(line, "parked %d EAGAIN", &n); err != nil || n < 1 || n >= int(spec.Pids) {
		return "", fmt.Errorf("%d processes and threads allowed: %s", spec.Pids, line)
	}
	return line, nil
}

func memoryBomb(ctx context.Context, s *Suite) (string, error) {
	if !s.Provider.Capabilities()[sandbox.ResourceLimited] {
		return "", fmt.Errorf("%s: %w", sandbox.ResourceLimited, errAbsent)
	}
	spec := s.spec(attempt("bomb", "memory")...)
	spec.Memory = 256 << 20
	end, out, err := s.run(ctx, spec)
	if err != nil {
		return "", err
	}
	if end.Exit != 137 || strings.Contains(out, "parked") {
		return "", fmt.Errorf("exit %d %s, %q", end.Exit, end.Reason, out)
	}
	return "killed inside", s.others(ctx)
}

func diskBomb(ctx context.Context, s *Suite) (string, error) {
	spec := s.spec(sh("i=0; while head -c 4000000 /dev/zero > /workspace/$i; do i=$((i+1)); done")...)
	spec.Quota = 32 << 20
	end, _, err := s.run(ctx, spec)
	if err != nil {
		return "", err
	}
	if end.Exit == 0 || end.Reason == sandbox.Timeout {
		return "", fmt.Errorf("exit %d %s %s", end.Exit, end.Reason, end.Detail)
	}
	return "ended: " + end.Detail, s.others(ctx)
}

func descriptorBomb(ctx context.Context, s *Suite) (string, error) {
	return s.bombed(ctx, s.spec(attempt("bomb", "descriptors")...))
}

func hog(ctx context.Context, s *Suite) (string, error) {
	return s.bombed(ctx, s.spec(attempt("bomb", "hog")...))
}

func flood(ctx context.Context, s *Suite) (string, error) {
	spec := s.spec(sh("head -c 200000000 /dev/zero; printf '\\033[2J\\342\\200\\256end'")...)
	spec.Output = new(count)
	end, _, err := s.run(ctx, spec)
	if err != nil {
		return "", err
	}
	if end.Exit != 0 || end.Dropped == 0 {
		return "", fmt.Errorf("exit %d, %d bytes dropped", end.Exit, end.Dropped)
	}
	return fmt.Sprintf("%d bytes were not kept", end.Dropped), nil
}

type count struct{ n int }

func (c *count) Write(b []byte) (int, error) {
	c.n += len(b)
	return len(b), nil
}

// refuse is a writer that accepts nothing.
type refuse struct{}

func (refuse) Write([]byte) (int, error) { return 0, errors.New("canary") }

func tripwire(ctx context.Context, s *Suite) (string, error) {
	spec := s.spec(sh("echo canary; sleep 1000")...)
	spec.Output = refuse{}
	end, _, err := s.run(ctx, spec)
	if err != nil {
		return "", err
	}
	if end.Reason != sandbox.Faulted || end.Detail != "output" {
		return "", fmt.Errorf("exit %d %s %q", end.Exit, end.Reason, end.Detail)
	}
	return "the session ended", nil
}

// underWay is for how many seconds connections of a dead agent may still be on
// their way: a door that gets no processor has them waiting.
const underWay = 5

// daemons leaves processes that knock at the door for ever, and counts the
// knocks after the end.
func daemons(ctx context.Context, s *Suite) (string, error) {
	const target = "203.0.113.7:7777"
	knock := "while :; do (exec 3<>/dev/tcp/203.0.113.7/7777) 2>/dev/null; done"
	spec := s.spec("/bin/bash", "-c", "trap '' TERM HUP INT; (setsid bash -c '"+knock+"' &) & (setsid setsid bash -c '"+knock+"' &) & sleep 1; exit 0")
	d, err := openDoor(s.Dir, spec.Session)
	if err != nil {
		return "", err
	}
	defer d.close()
	b, err := s.Provider.Start(ctx, spec, d.Listener)
	if err != nil {
		return "", err
	}
	defer b.Close()
	if _, err := b.Run(ctx); err != nil {
		return "", err
	}
	after := d.times(target)
	if after == 0 {
		return "", errors.New("could not run: no daemon ever knocked")
	}
	// What was on its way arrives first; then there must be a second of silence. A
	// daemon that lives knocks hundreds of times a second and gives none.
	for seen, left := after, underWay; ; left-- {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		now := d.times(target)
		if now == seen {
			break
		}
		if left == 0 {
			return "", fmt.Errorf("%d knocks after the end, and no second without one", now-after)
		}
		seen = now
	}
	return fmt.Sprintf("%d knocks before the end, silence after", after), nil
}

// doorGone closes the door under a running agent.
func doorGone(ctx context.Context, s *Suite) (string, error) {
	spec := s.spec("/bin/bash", "-c", "for i in 1 2 3 4 5; do (exec 3<>/dev/tcp/203.0.113.8/443 && head -n 1 <&3) 2>&1; done")
	out := newText()
	spec.Output = out
	d, err := openDoor(s.Dir, spec.Session)
	if err != nil {
		return "", err
	}
	defer d.close()
	b, err := s.Provider.Start(ctx, spec, d.Listener)
	if err != nil {
		return "", err
	}
	defer b.Close()
	d.close()
	if _, err := b.Run(ctx); err != nil {
		return "", err
	}
	if strings.Contains(out.String(), "HTTP/") || !strings.Contains(out.String(), "reset by peer") {
		return "", fmt.Errorf("the agent got %.200q", out.String())
	}
	return "every connection is reset", nil
}
