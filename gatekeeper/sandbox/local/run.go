//go:build linux

package local

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// Run runs the agent and returns how it ended, with nothing of it alive.
func (b *box) Run(ctx context.Context) (sandbox.End, error) {
	if err := b.enter("run"); err != nil {
		return sandbox.End{}, err
	}
	defer b.active.Done()
	began := time.Now()
	agent := sandbox.Agent{Argv: b.spec.Argv, Env: environment(&b.spec, b.socket != ""), Dir: sandbox.Workspace}
	if err := sandbox.Send(b.room, sandbox.ToRoom{Run: &agent}); err != nil {
		return sandbox.End{}, b.vanished(err)
	}
	if _, err := b.answer(); err == nil {
		return sandbox.End{}, b.vanished(errors.New("the room answered out of turn"))
	} else if !errors.Is(err, io.EOF) {
		b.kill()
		var f *faultError
		if errors.As(err, &f) {
			return sandbox.End{}, f.explain()
		}
		return sandbox.End{}, b.vanished(err)
	}
	end := b.supervise(ctx)
	b.kill()
	b.pumps.Wait()
	end.Wall = time.Since(began)
	return end, b.finish(&end)
}

func (b *box) vanished(err error) error {
	b.kill()
	return explainStart(b.log.said(), err)
}

// supervise waits for the first of: the agent's exit, its timeout, ctx, a limit,
// or the death of PID 1.
func (b *box) supervise(ctx context.Context) sandbox.End {
	watch, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	w := watcher{dirs: b.layout.writable(), limit: b.spec.Quota, init: b.init}
	b.pumps.Go(func() { over <- w.run(watch) })
	defer stop()

	var timeout <-chan time.Time
	if b.spec.Timeout > 0 {
		t := time.NewTimer(b.spec.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	gone := b.gone
	for {
		select {
		case <-gone:
			// Who carries the output is dead. bubblewrap takes PID 1 along, podman does
			// not; an end that PID 1 said before still counts.
			gone = nil
			_ = unix.PidfdSendSignal(int(b.initfd.Fd()), unix.SIGKILL, nil, 0)
		case m, ok := <-b.events:
			switch {
			case !ok:
				return b.lost()
			case m.Exit != nil && *m.Exit == 0:
				return sandbox.End{Reason: sandbox.Completed}
			case m.Exit != nil:
				return sandbox.End{Exit: *m.Exit, Reason: sandbox.Faulted}
			}
		case <-timeout:
			return b.terminate(sandbox.Timeout, "")
		case <-ctx.Done():
			return b.terminate(sandbox.Cancelled, "")
		case <-b.log.tripped:
			return sandbox.End{Exit: 128 + 9, Reason: sandbox.Faulted, Detail: "output"} // no grace for a tripwire
		case err := <-over:
			if err != nil {
				return b.terminate(sandbox.Faulted, err.Error())
			}
		}
	}
}

// lost says whose fault the end of PID 1 is: Close's, or something else's.
func (b *box) lost() sandbox.End {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return sandbox.End{Exit: 128 + 9, Reason: sandbox.Cancelled}
	}
	return sandbox.End{Exit: 128 + 9, Reason: sandbox.Faulted, Detail: "init"}
}

// terminate asks everything inside to end and gives it the grace period.
func (b *box) terminate(reason, detail string) sandbox.End {
	end := sandbox.End{Exit: 128 + 9, Reason: reason, Detail: detail}
	if sandbox.Send(b.control, sandbox.ToInit{Terminate: true}) != nil {
		return end
	}
	grace := time.NewTimer(b.spec.Grace)
	defer grace.Stop()
	for {
		select {
		case m, ok := <-b.events:
			if ok && m.Exit != nil {
				end.Exit = *m.Exit
				return end
			} else if !ok {
				return end
			}
		case <-grace.C:
			return end
		}
	}
}

// finish fills in what the dead sandbox leaves.
func (b *box) finish(end *sandbox.End) error {
	end.Transcript = b.log.path
	end.Dropped = b.log.dropped
	end.Final = strings.ToValidUTF8(string(b.log.final), "\uFFFD")
	var err error
	end.Artifacts, end.Skipped, err = collect(b.layout.out, b.p.o.Put)
	return errors.Join(err, b.log.close())
}
