//go:build linux

package probe

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// verdict is what one attempt found.
type verdict struct {
	outcome  string
	evidence string
}

func passed(format string, args ...any) verdict {
	return verdict{sandbox.Passed, fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) verdict {
	return verdict{sandbox.Failed, fmt.Sprintf(format, args...)}
}

func absent(format string, args ...any) verdict {
	return verdict{sandbox.Absent, fmt.Sprintf(format, args...)}
}

// attempt is one row of the matrix.
type attempt struct {
	id, name string
	proves   sandbox.Capability
	try      func(*place) verdict
}

// place is where the attempts are made.
type place struct {
	sandbox.Plan
}

// Run makes every attempt in the calling process.
func Run(plan sandbox.Plan) []sandbox.Case {
	p := &place{plan}
	var cases []sandbox.Case
	for _, table := range [][]attempt{processes, syscalls, network, files} {
		for _, a := range table {
			cases = append(cases, a.run(p))
		}
	}
	return cases
}

// run makes one attempt. One that panics could not be made.
func (a attempt) run(p *place) (c sandbox.Case) {
	c = sandbox.Case{ID: a.id, Name: a.name, Proves: a.proves}
	defer func() {
		if r := recover(); r != nil {
			c.Outcome, c.Evidence = sandbox.Failed, fmt.Sprintf("could not run: %v", r)
		}
	}()
	v := a.try(p)
	c.Outcome, c.Evidence = v.outcome, v.evidence
	return c
}

// refusal reports whether err is how a boundary says no.
func refusal(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS)
}

// gone reports whether err says that there is nothing to reach.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

// name shortens an error to its errno.
func name(err error) string {
	if err == nil {
		return "ok"
	}
	var e unix.Errno
	if errors.As(err, &e) {
		if n := unix.ErrnoName(e); n != "" {
			return n
		}
	}
	return err.Error()
}

// several judges attempts that stand or fall together: a success or a surprise
// makes the whole failed.
type several struct {
	done  map[string][]string // what was tried, by how it was refused
	order []string            // of the keys of done
	bad   []string
}

// refused notes one attempt that must be refused, or find nothing.
func (s *several) refused(what string, err error) {
	s.note(what, err, refusal(err) || gone(err))
}

func (s *several) note(what string, err error, ok bool) {
	answer := name(err)
	if !ok {
		s.bad = append(s.bad, what+" "+answer)
		return
	}
	if s.done == nil {
		s.done = make(map[string][]string)
	}
	if len(s.done[answer]) == 0 {
		s.order = append(s.order, answer)
	}
	s.done[answer] = append(s.done[answer], what)
}

// must notes a control.
func (s *several) must(what string, err error) {
	if err != nil {
		s.bad = append(s.bad, "control "+what+" "+name(err))
	}
}

func (s *several) verdict() verdict {
	if len(s.bad) > 0 {
		return failed("%s", strings.Join(s.bad, ", "))
	}
	if len(s.done) == 0 {
		return failed("could not run: nothing was tried")
	}
	var parts []string
	for _, answer := range s.order {
		parts = append(parts, answer+": "+strings.Join(s.done[answer], " "))
	}
	return passed("%s", strings.Join(parts, "; "))
}
