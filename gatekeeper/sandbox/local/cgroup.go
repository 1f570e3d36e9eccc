//go:build linux

package local

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// cgroup is a delegated cgroup v2 folder in which sessions get leaves.
type cgroup struct{ path string }

const cgroupMount = "/sys/fs/cgroup"

// openCgroup opens the folder at path, or, for "", the node's own cgroup when
// systemd marked it as delegated. Nil means none, and that limits need
// sandbox.unlimited: accepted.
func openCgroup(path string) (*cgroup, error) {
	if path == "" {
		own, ok := delegated(cgroupMount)
		if !ok {
			return nil, nil
		}
		if err := makeRoom(own); err != nil {
			return nil, problem.Wrap(err, problem.ProviderCapabilityMissing, "the delegated cgroup cannot be used", "set Delegate=memory pids cpu in the unit")
		}
		path = own
	}
	for _, controller := range []string{"memory", "pids", "cpu"} {
		if err := set(path, "cgroup.subtree_control", "+"+controller); err != nil {
			return nil, problem.Wrap(err, problem.ProviderCapabilityMissing, "the delegated cgroup has no "+controller+" controller", "set Delegate=memory pids cpu in the unit")
		}
	}
	return &cgroup{path}, nil
}

// delegated returns the node's own cgroup if it carries systemd's mark.
func delegated(mount string) (string, bool) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(b)) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path := filepath.Join(mount, own)
			for _, name := range []string{"user.delegate", "trusted.delegate"} {
				mark := make([]byte, 8)
				if n, err := unix.Getxattr(path, name, mark); err == nil && string(mark[:n]) == "1" {
					return path, true
				}
			}
		}
	}
	return "", false
}

// leafPrefix begins the names of session leaves.
const leafPrefix = "session-"

// sweep removes the leaves of sessions whose node is gone: those without a
// folder in run, which is made before the leaf and removed after it.
func (c *cgroup) sweep(run string) error {
	entries, err := os.ReadDir(c.path)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		session, ok := strings.CutPrefix(e.Name(), leafPrefix)
		if !ok || !e.IsDir() {
			continue
		}
		if _, err := os.Stat(filepath.Join(run, session)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		l := &cgroupLeaf{path: filepath.Join(c.path, e.Name())}
		l.kill()
		errs = append(errs, l.remove())
	}
	return errors.Join(errs...)
}

// makeRoom moves the node itself into a leaf, because a cgroup that gives
// controllers to its children may hold no process.
func makeRoom(path string) error {
	node := filepath.Join(path, "node")
	if err := os.Mkdir(node, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return set(node, "cgroup.procs", strconv.Itoa(os.Getpid()))
}

// set writes one of the kernel's files, and never makes one.
func set(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// cgroupLeaf is one session's cgroup.
type cgroupLeaf struct {
	path   string
	dir    *os.File
	limits map[string]string
}

// leaf makes a session's cgroup with its limits set (SB-36, SB-37, SB-40).
func (c *cgroup) leaf(session string, memory, pids int64, cpus float64) (*cgroupLeaf, error) {
	l := &cgroupLeaf{path: filepath.Join(c.path, leafPrefix+session)}
	if err := os.Mkdir(l.path, 0o755); err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	l.limits = map[string]string{
		"pids.max":         strconv.FormatInt(pids, 10),
		"memory.oom.group": "1", // a memory bomb takes its whole session along, not a random part
	}
	if memory > 0 {
		l.limits["memory.max"] = strconv.FormatInt(memory, 10)
		l.limits["memory.swap.max"] = "0"
	}
	if cpus > 0 {
		const period = 100_000 // microseconds
		l.limits["cpu.max"] = fmt.Sprintf("%d %d", int64(math.Ceil(cpus*period)), period)
	}
	for name, value := range l.limits {
		err := set(l.path, name, value)
		if err != nil && name == "memory.swap.max" && errors.Is(err, os.ErrNotExist) {
			delete(l.limits, name) // a kernel without swap accounting has no swap to give
			err = nil
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cgroup: %w", err), os.Remove(l.path))
		}
	}
	dir, err := os.Open(l.path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup: %w", err), os.Remove(l.path))
	}
	l.dir = dir
	return l, nil
}

// prove is the case that only the outside can judge: PID 1 of the sandbox is in
// the leaf, and the kernel holds the limits that were written.
func (l *cgroupLeaf) prove(pidfd int) sandbox.Case {
	c := sandbox.Case{ID: "SB-36", Name: "limits of the session's cgroup", Proves: sandbox.ResourceLimited, Outcome: sandbox.Failed}
	pid, err := pidOf(pidfd)
	if err != nil {
		c.Evidence = "could not run: " + err.Error()
		return c
	}
	procs, err := os.ReadFile(filepath.Join(l.path, "cgroup.procs"))
	if err != nil {
		c.Evidence = "could not run: " + err.Error()
		return c
	}
	if !slices.Contains(strings.Fields(string(procs)), pid) {
		c.Evidence = "PID 1 is not in the session's cgroup"
		return c
	}
	var held []string
	for name, want := range l.limits {
		got, err := os.ReadFile(filepath.Join(l.path, name))
		if err != nil || strings.TrimSpace(string(got)) != want {
			c.Evidence = fmt.Sprintf("%s is %q, not %q: %v", name, strings.TrimSpace(string(got)), want, err)
			return c
		}
		held = append(held, name+" "+want)
	}
	slices.Sort(held)
	c.Outcome, c.Evidence = sandbox.Passed, strings.Join(held, ", ")
	return c
}

// pidOf returns the process id behind a pidfd, as this process sees it.
func pidOf(pidfd int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if pid, ok := strings.CutPrefix(line, "Pid:"); ok {
			return strings.TrimSpace(pid), nil
		}
	}
	return "", errors.New("no process behind the pidfd")
}

// kill ends every process of the leaf at once.
func (l *cgroupLeaf) kill() { _ = set(l.path, "cgroup.kill", "1") }

// remove waits for the dead to leave and removes the leaf.
func (l *cgroupLeaf) remove() error {
	var err error
	if l.dir != nil {
		err = l.dir.Close()
	}
	until := time.Now().Add(killWithin)
	for {
		rm := os.Remove(l.path)
		if rm == nil || errors.Is(rm, os.ErrNotExist) || time.Now().After(until) {
			return errors.Join(err, rm)
		}
		time.Sleep(5 * time.Millisecond) // the kernel tells of an empty cgroup only through its files
	}
}
