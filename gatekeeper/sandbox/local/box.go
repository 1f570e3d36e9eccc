//go:build linux

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// startWithin bounds the time from starting bubblewrap to a waiting room. It is
// about a hundred times what an idle machine needs.
const startWithin = 30 * time.Second

// box is one sandbox.
type box struct {
	p      *Provider
	spec   sandbox.Spec
	socket string // of the door; "" = none

	layout layout
	lock   *os.File // of the session's folder
	user   uint32   // bare user of a root node's session; 0 = the ordinary user that the node is
	uid    *uidLock // of user; nil for an ordinary user
	group  *cgroupLeaf
	log    *transcript

	bwrap    *os.Process   // or podman
	gone     chan struct{} // closed when it is gone
	init     int           // process id of PID 1 inside; initfd says whether it still is that
	initfd   *os.File      // pidfd of PID 1 inside
	info     *os.File      // bubblewrap's word on PID 1
	channels []io.Closer   // control, room and info
	calls    net.Listener  // for the channels of a container; nil: they are handed on
	control  *net.UnixConn
	room     *net.UnixConn
	orders   *sandbox.Reader // of room

	events   chan sandbox.FromInit // from PID 1; closed at the end of the channel
	pumps    sync.WaitGroup        // output and control readers
	mu       sync.Mutex
	began    string // "", "probe" or "run": what was called so far
	closing  bool
	active   sync.WaitGroup // Probe and Run, which Close waits for
	killOnce sync.Once
	rmOnce   sync.Once
	rmErr    error
}

// start brings the sandbox up. On error the caller closes b, whatever was
// reached.
func (b *box) start(ctx context.Context) error {
	if err := b.prepare(); err != nil {
		return err
	}
	if err := b.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	stop := context.AfterFunc(ctx, b.kill)
	defer stop()
	if err := b.greet(); err != nil {
		b.kill()
		b.pumps.Wait() // so that standard error is complete
		var f *faultError
		if ctx.Err() != nil {
			return problem.Wrap(ctx.Err(), problem.SandboxFailed, "the sandbox did not start in time", "")
		} else if errors.As(err, &f) {
			return f.explain()
		}
		return explainStart(b.log.said(), err)
	}
	return nil
}

// prepare makes what exists before any process: folders, user, cgroup.
func (b *box) prepare() (err error) {
	p := b.p
	dir := filepath.Join(p.o.Run, b.spec.Session)
	if b.lock, err = makeFolder(p.o.Run, dir); err != nil {
		return fmt.Errorf("session folder: %w", err)
	}
	b.layout = newLayout(dir)
	owner := -1
	if p.root {
		if b.user, b.uid, err = p.uids.take(); err != nil {
			return err
		}
		owner = int(b.user)
	}
	for _, d := range b.layout.writable() {
		if err := os.Mkdir(d, 0o700); err != nil {
			return fmt.Errorf("session folder: %w", err)
		}
		if err := os.Lchown(d, owner, owner); err != nil {
			return fmt.Errorf("session folder: %w", err)
		}
	}
	for _, d := range []string{b.layout.files, b.layout.etc, filepath.Join(b.layout.files, filepath.Base(sandbox.Out))} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("session folder: %w", err)
		}
	}
	for name, content := range b.spec.Files {
		if err := os.WriteFile(filepath.Join(b.layout.files, name), content, 0o644); err != nil {
			return fmt.Errorf("session folder: %w", err)
		}
	}
	if err := makeEtc(b.layout.etc, b.spec.Rootfs, b.spec.Trust, b.socket != ""); err != nil {
		return err
	}
	if err := errors.Join(readable(b.layout.files), readable(b.layout.etc)); err != nil {
		return fmt.Errorf("session folder: %w", err)
	}
	if b.spec.Rootfs != "host" && !p.init.static {
		return problem.New(problem.SandboxFailed, "gatehouse-init needs the host's libraries, which this rootfs does not have", "build with CGO_ENABLED=0 (make build)")
	}
	if b.socket != "" && p.root {
		// Connecting needs write permission; inside only this user can see it.
		if err := os.Lchown(b.socket, owner, owner); err != nil {
			return fmt.Errorf("door's socket: %w", err)
		}
	}
	if p.cgroup != nil {
		if b.group, err = p.cgroup.leaf(b.spec.Session, b.spec.Memory, b.spec.Pids, b.spec.CPUs); err != nil {
			return err
		}
	}
	b.log, err = newTranscript(p.o.Transcripts, b.spec.Session, p.o.TranscriptBytes, b.spec.Output)
	return err
}

// makeFolder makes a session's folder with its lock held. The run folder's own
// lock keeps a starting node from sweeping it in between.
func makeFolder(run, dir string) (*os.File, error) {
	guard, err := lockRun(run, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil, problem.New(problem.Conflict, "a sandbox of this session exists already", "")
		}
		return nil, err
	}
	return lockFolder(dir)
}

func (b *box) launch() error {
	l := launch{program: b.p.o.Bwrap, uid: b.user, sources: sources{staged: b.p.root, stage: stage}}
	if p := b.p.podman; p != nil {
		calls, err := b.listen()
		if err != nil {
			return err
		}
		b.calls, b.channels = calls, append(b.channels, calls)
		l.program, l.env, l.asRoot, l.sources.stage = p.program, p.env(), true, podmanStage
		if l.args, err = p.args(b, b.p.init.path, &l.sources); err != nil {
			return err
		}
	} else {
		done, err := b.channel(&l)
		if err != nil {
			return err
		}
		defer done()
		if l.args, err = bwrapArgs(b.layout, b.spec.Rootfs, b.spec.Mounts, b.p.init.path, b.socket, &l.sources); err != nil {
			return err
		}
	}
	if b.group != nil {
		l.cgroup = b.group.dir
	}
	for _, out := range []struct {
		end    **os.File
		stderr bool
	}{{&l.stdout, false}, {&l.stderr, true}} {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		defer w.Close()
		*out.end = w
		if l.uid != 0 {
			// /dev/stdout inside reopens the pipe, which asks for its owner.
			if err := w.Chown(int(l.uid), int(l.uid)); err != nil {
				r.Close()
				return fmt.Errorf("output pipe: %w", err)
			}
		}
		b.pumps.Go(func() {
			defer r.Close()
			_, _ = io.Copy(b.log.stream(out.stderr), r) // until the last writer inside is dead
		})
	}
	process, done, err := l.start()
	if err != nil {
		return problem.Wrap(err, problem.SandboxFailed, filepath.Base(l.program)+" did not start", "")
	}
	b.bwrap, b.gone = process, make(chan struct{})
	go func() {
		<-done
		close(b.gone)
	}()
	return nil
}

// channel makes the channels that bubblewrap hands on. done closes its ends of
// them here.
func (b *box) channel(l *launch) (done func(), err error) {
	defer func() {
		if err != nil {
			closeAll(l.extra)
		}
	}()
	// The parent's ends are close-on-exec, so no other child holds them open.
	for _, c := range []struct {
		name string
		conn **net.UnixConn
	}{{"control", &b.control}, {"room", &b.room}} {
		ours, theirs, err := socketPair(c.name)
		if err != nil {
			return nil, err
		}
		*c.conn, b.channels, l.extra = ours, append(b.channels, ours), append(l.extra, theirs)
	}
	b.orders = sandbox.NewReader(b.room)
	info, infoIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b.info, b.channels, l.extra = info, append(b.channels, info), append(l.extra, infoIn)
	return func() { closeAll(l.extra) }, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func socketPair(name string) (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%s channel: %w", name, err)
	}
	theirs = os.NewFile(uintptr(fds[1]), name)
	f := os.NewFile(uintptr(fds[0]), name)
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("%s channel: %w", name, err)
	}
	return c.(*net.UnixConn), theirs, nil
}

// greet talks to PID 1 until the room waits for orders.
func (b *box) greet() error {
	if b.calls != nil {
		if err := b.accept(b.calls); err != nil {
			return err
		}
	}
	lines := sandbox.NewReader(b.control)
	if err := b.hello(lines); err != nil {
		return err
	}
	err := sandbox.Send(b.control, sandbox.ToInit{Setup: &sandbox.Setup{
		Version:  sandbox.ControlVersion,
		Door:     b.socket != "",
		MaxPids:  uint64(b.spec.Pids),
		MaxFiles: maxFiles,
		MaxFile:  uint64(b.spec.Quota),
	}})
	if err != nil {
		return err
	}
	b.events = make(chan sandbox.FromInit, 4) // ready, controls, exit and a fault
	b.pumps.Go(func() {
		defer close(b.events)
		for {
			var m sandbox.FromInit
			if lines.Next(&m) != nil {
				return
			}
			select {
			case b.events <- m:
			default: // more than PID 1 ever says
				return
			}
		}
	})
	if _, err := b.await(func(m sandbox.FromInit) bool { return m.Ready }); err != nil {
		return err
	}
	answer, err := b.answer()
	if err == nil && !answer.Ready {
		err = errors.New("the room answered out of turn")
	}
	return err
}

// maxFiles is the agent's RLIMIT_NOFILE, when the node's own limit is not less.
const maxFiles = 1 << 16

// hello learns which process PID 1 is and hears its first line.
func (b *box) hello(lines *sandbox.Reader) error {
	var m sandbox.FromInit
	if p := b.p.podman; p != nil {
		// The container's process is known once it runs.
		if err := lines.Next(&m); err != nil {
			return fmt.Errorf("gatehouse-init said nothing: %w", err)
		}
		pid, fd, err := p.initOf(b)
		if err != nil {
			return err
		}
		b.known(pid, fd)
		return checkHello(m)
	}
	var info struct {
		Child int `json:"child-pid"`
	}
	err := json.NewDecoder(io.LimitReader(b.info, 4<<10)).Decode(&info)
	if err != nil {
		return fmt.Errorf("bubblewrap said nothing: %w", err)
	}
	fd, err := unix.PidfdOpen(info.Child, 0)
	if err != nil {
		return fmt.Errorf("pidfd of PID 1: %w", err)
	}
	// Should the id have been reused in between, its parent is somebody else.
	if ppid, err := parentOf(info.Child); err != nil || ppid != b.bwrap.Pid {
		unix.Close(fd)
		return fmt.Errorf("PID 1 is gone: %w", err)
	}
	b.known(info.Child, fd)
	if err := lines.Next(&m); err != nil {
		return fmt.Errorf("gatehouse-init said nothing: %w", err)
	}
	return checkHello(m)
}

// known notes which process PID 1 is.
func (b *box) known(pid, fd int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.init, b.initfd = pid, os.NewFile(uintptr(fd), "pidfd")
}

func checkHello(m sandbox.FromInit) error {
	if m.Hello != sandbox.ControlVersion {
		return &faultError{sandbox.Fault{Step: sandbox.StepVersion, Text: fmt.Sprintf("gatehouse-init speaks control version %d", m.Hello)}}
	}
	return nil
}

func parentOf(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0, errors.New("short stat")
	}
	return strconv.Atoi(fields[1])
}

// await returns the first event that want accepts; a fault or the end of the
// channel is an error.
func (b *box) await(want func(sandbox.FromInit) bool) (sandbox.FromInit, error) {
	for m := range b.events {
		switch {
		case m.Fault != nil:
			return m, &faultError{*m.Fault}
		case want(m):
			return m, nil
		}
	}
	// The room says by itself why it could not be reached.
	if answer, err := b.answer(); err == nil && answer.Fault != nil {
		return sandbox.FromInit{}, &faultError{*answer.Fault}
	}
	return sandbox.FromInit{}, errInitGone
}

var errInitGone = errors.New("gatehouse-init is gone")

// answer reads one answer of the room. io.EOF means that it became the agent,
// or is gone.
func (b *box) answer() (sandbox.FromRoom, error) {
	var m sandbox.FromRoom
	if err := b.orders.Next(&m); err != nil {
		return m, err
	}
	if m.Fault != nil {
		return m, &faultError{*m.Fault}
	}
	return m, nil
}

// faultError is a Fault of the inside.
type faultError struct{ sandbox.Fault }

func (f *faultError) Error() string { return f.Step + ": " + f.Text }

// explain names what the machine lacks.
func (f *faultError) explain() error {
	cause := errors.New(f.Error())
	lack := func(msg, hint string) error {
		return problem.Wrap(cause, problem.ProviderCapabilityMissing, msg, hint)
	}
	switch f.Step {
	case sandbox.StepVersion:
		return problem.Wrap(cause, problem.SandboxFailed, "gatehouse and gatehouse-init are of different builds", "run make build and install both")
	case sandbox.StepLoopback:
		return lack("the sandbox's loopback cannot be set up", "")
	case sandbox.StepCapture:
		return lack("connections cannot be captured for the door", hintNft)
	case sandbox.StepUserns:
		return lack("the agent's user namespace cannot be made", hintSysctl)
	case sandbox.StepDrop, sandbox.StepFilter:
		return lack("the agent's rights cannot be taken away", hintSeccomp)
	case sandbox.StepExec:
		return problem.Wrap(cause, problem.AgentNotFound, "the agent's program does not start inside the sandbox", "install it under /usr on this machine, or name a rootfs that has it")
	}
	return problem.Wrap(cause, problem.SandboxFailed, "the sandbox did not start", "")
}

// enter records that step begins, each of which may happen once and in order.
func (b *box) enter(step string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	order := []string{"", "probe", "run"}
	if b.closing || slices.Index(order, step) <= slices.Index(order, b.began) {
		return fmt.Errorf("local: %s after %s or Close", step, b.began)
	}
	b.began = step
	b.active.Add(1)
	return nil
}

// kill ends every process of the sandbox. It returns when they are dead or,
// should the kernel refuse, after killWithin.
func (b *box) kill() {
	b.killOnce.Do(func() {
		b.mu.Lock()
		initfd, channels := b.initfd, b.channels
		b.mu.Unlock()
		if b.group != nil {
			b.group.kill()
		}
		if initfd != nil {
			_ = unix.PidfdSendSignal(int(initfd.Fd()), unix.SIGKILL, nil, 0)
		}
		for _, c := range channels {
			_ = c.Close() // PID 1 ends on this too
		}
		if initfd != nil {
			// PID 1 counts as ended only once all of its namespace is.
			waitPidfd(int(initfd.Fd()), killWithin)
		}
		if b.bwrap != nil {
			if b.p.podman != nil {
				b.drain()
			}
			_ = b.bwrap.Kill()
			<-b.gone
		}
	})
}

// drain waits for podman, which carries the container's output and its own last
// words, to end by itself once the container has: its PID 1 is dead, or ends
// because its channels are closed.
func (b *box) drain() {
	t := time.NewTimer(drainWithin)
	defer t.Stop()
	select {
	case <-b.gone:
	case <-t.C:
	}
}

const killWithin = 10 * time.Second

func waitPidfd(fd int, within time.Duration) {
	until := time.Now().Add(within)
	for left := within; left > 0; left = time.Until(until) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 || (err != nil && !errors.Is(err, unix.EINTR)) {
			return
		}
	}
}

// Close kills what is left and removes every trace but the transcript.
func (b *box) Close() error {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.kill()
	b.active.Wait()
	b.pumps.Wait()
	b.rmOnce.Do(func() { b.rmErr = b.remove() })
	return b.rmErr
}

func (b *box) remove() error {
	var errs []error
	if b.log != nil {
		errs = append(errs, b.log.close())
	}
	if b.initfd != nil {
		errs = append(errs, b.initfd.Close())
	}
	if b.group != nil {
		errs = append(errs, b.group.remove())
	}
	if b.p.podman != nil && b.bwrap != nil {
		errs = append(errs, b.p.podman.remove(b.spec.Session))
	}
	if b.lock != nil {
		errs = append(errs, removeAll(filepath.Dir(b.lock.Name())), b.lock.Close())
	}
	if b.uid != nil {
		errs = append(errs, b.uid.Close())
	}
	return errors.Join(errs...)
}
