package gatekeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// doors hands out doors that remember what was asked of them.
type doors struct {
	mu     sync.Mutex
	opened []*fakeDoor
	fail   error
	inside Inside
}

type fakeDoor struct {
	spec   DoorSpec
	mu     sync.Mutex
	codes  []string
	closed chan struct{}
	seen   map[string]bool
	inside Inside
}

func (d *doors) Open(_ context.Context, s DoorSpec) (Door, error) {
	if d.fail != nil {
		return nil, d.fail
	}
	door := &fakeDoor{spec: s, closed: make(chan struct{}), seen: map[string]bool{}, inside: d.inside}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened = append(d.opened, door)
	return door, nil
}

func (d *doors) only(t *testing.T) *fakeDoor {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.opened) != 1 {
		t.Fatalf("%d doors", len(d.opened))
	}
	return d.opened[0]
}

func (d *fakeDoor) Listener() net.Listener { return nil }
func (d *fakeDoor) Trust() []byte          { return []byte("a certificate") }
func (d *fakeDoor) Inside() Inside         { return d.inside }
func (d *fakeDoor) Expect([]string)        {}
func (d *fakeDoor) Saw(target string) bool { return d.seen[target] }
func (d *fakeDoor) Close(code string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.codes = append(d.codes, code); len(d.codes) == 1 {
		close(d.closed)
	}
	return nil
}

func withDoors(d *doors) option { return func(w *world) { w.opts.Doors = d } }

func TestSessionHappy(t *testing.T) {
	d := &doors{}
	w := newWorld(t, []string{fixCI}, withDoors(d))
	transcript := filepath.Join(t.TempDir(), "out")
	w.room.run = func(_ context.Context, s sandbox.Spec) (sandbox.End, error) {
		// The receipt that lets it run is durable before it runs.
		if got := w.log.story(s.Session); got != "open admitted, preparing, running" {
			t.Errorf("running after %q", got)
		}
		if err := os.WriteFile(transcript, []byte("hello\n"), 0o600); err != nil {
			t.Error(err)
		}
		return sandbox.End{
			Reason: sandbox.Completed, Wall: time.Second, Transcript: transcript, Final: "done",
			Artifacts: map[string]string{"../odd name": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		}, nil
	}
	id := w.take(failedRun("this"))
	r := w.ended(id)
	w.wantStory(id, happy)
	if r.State != "ended" || r.Reason != "completed" || r.Exit == nil || *r.Exit != 0 || r.Final != "done" || r.WallMS != 1000 || r.Bundle != "fix-ci" {
		t.Errorf("result %+v", r)
	}
	out, err := w.Transcript(id)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if got, err := io.ReadAll(out); err != nil || string(got) != "hello\n" {
		t.Errorf("transcript %q, %v", got, err)
	}
	if _, err := os.Stat(transcript); !errors.Is(err, os.ErrNotExist) {
		t.Error("the transcript is still where the sandbox put it")
	}
	spec := w.room.specs[0]
	if got := strings.Join(spec.Argv, " "); got != "/bin/agent --now" {
		t.Errorf("argv %q", got)
	}
	if spec.Env["GATEHOUSE_TASK"] != "CI failed on acme/shop, run 99." || string(spec.Files["task.md"]) != "CI failed on acme/shop, run 99.\n" {
		t.Errorf("task %q, %q", spec.Env, spec.Files["task.md"])
	}
	if len(spec.Files) != 4 || spec.Timeout != 45*time.Minute || spec.Quota != 10<<30 || string(spec.Trust) != "a certificate" || spec.Witness == nil {
		t.Errorf("spec %+v", spec)
	}
	door := d.only(t)
	if door.codes[0] != "completed" || door.spec.Session != id || door.spec.Subject.Entity != "pr-12" || !strings.Contains(string(door.spec.Policy), `"bundle":"fix-ci"`) {
		t.Errorf("door %+v closed with %q", door.spec, door.codes)
	}
	chain := w.log.receipts(id)
	states := chain[1:4]
	if states[0].State.From != "admitted" || states[1].State.From != "preparing" || states[2].State.From != "running" {
		t.Errorf("states do not follow each other: %+v", states)
	}
	if states[1].State.Evidence.IsZero() || states[1].State.Level != 3 || states[1].Obs.Contract.IsZero() {
		t.Errorf("running rests on nothing: %+v", states[1].State)
	}
	if states[2].State.Evidence.IsZero() {
		t.Error("the ending does not name its result")
	}
	// A name that an agent chose stands in no receipt.
	if c := chain[4].Close; len(c.Out) != 1 || *c.Exit != 0 || c.Count != 5 {
		t.Errorf("close %+v", c)
	} else {
		for label := range c.Out {
			if strings.Contains(label, "odd") {
				t.Errorf("label %q", label)
			}
		}
	}
	if started, open := w.room.count(); started != 1 || open != 0 {
		t.Errorf("%d sandboxes started, %d still open", started, open)
	}
}

// manyArtifacts are n files with a content of their own.
func manyArtifacts(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprint(i)] = fmt.Sprintf("%016x%048x", i, 1)
	}
	return out
}

func TestSessionEndings(t *testing.T) {
	boom := errors.New("boom")
	run := func(e sandbox.End, err error) func(*world) {
		return func(w *world) {
			w.room.run = func(context.Context, sandbox.Spec) (sandbox.End, error) { return e, err }
		}
	}
	cases := map[string]struct {
		set    func(w *world)
		story  string
		reason string
		code   string
	}{
		"no_effect":            {run(sandbox.End{Reason: sandbox.Completed}, nil), "open admitted, preparing, running, ended(no_effect), close no_effect", "no_effect", ""},
		"agent_fails":          {run(sandbox.End{Reason: sandbox.Faulted, Exit: 3}, nil), "open admitted, preparing, running, ended(failed), close failed", "failed", ""},
		"agent_times_out":      {run(sandbox.End{Reason: sandbox.Timeout, Exit: 143}, nil), "open admitted, preparing, running, ended(timeout), close timeout", "timeout", ""},
		"sandbox_vanishes":     {run(sandbox.End{Reason: sandbox.Lost}, nil), "open admitted, preparing, running, ended(lost), close lost", "lost", ""},
		"RC-12_many_artifacts": {run(sandbox.End{Reason: sandbox.Completed, Artifacts: manyArtifacts(300)}, nil), happy, "completed", ""},
		"RC-12_no_exit_code":   {run(sandbox.End{Reason: sandbox.Faulted, Exit: -1}, nil), "open admitted, preparing, running, ended(failed), close failed", "failed", ""},
		"no_reason":            {run(sandbox.End{Reason: "fine"}, nil), "open admitted, preparing, running, ended(failed), close failed", "failed", ""},
		"provider_errs":        {run(sandbox.End{}, boom), "open admitted, preparing, running, ended(failed), close failed", "failed", ""},
		"start_errs": {func(w *world) { w.room.start = func(context.Context, sandbox.Spec) error { return boom } },
			"open admitted, preparing, ended(failed), close failed", "failed", ""},
		"door_errs": {func(w *world) { w.o.Doors.(*doors).fail = boom }, "open admitted, preparing, ended(failed), close failed", "failed", ""},
		"SB_probe_errs": {func(w *world) {
			w.room.probe = func(context.Context) (sandbox.Report, error) { return sandbox.Report{}, boom }
		}, "open admitted, preparing, refused(provider_capability_missing), close refused", "refused", "provider_capability_missing"},
		"SB_probe_leaks": {func(w *world) {
			w.room.probe = func(context.Context) (sandbox.Report, error) {
				r := proving(everything...)
				r.Cases[3].Outcome = sandbox.Failed
				return r, nil
			}
		}, "open admitted, preparing, refused(provider_capability_missing), close refused", "refused", "provider_capability_missing"},
		"SB_probe_silent": {func(w *world) {
			w.room.probe = func(context.Context) (sandbox.Report, error) { return proving(sandbox.EnvironmentClean), nil }
		}, "open admitted, preparing, refused(provider_capability_missing), close refused", "refused", "provider_capability_missing"},
		"SB_absent_is_passed": {func(w *world) {
			w.room.probe = func(context.Context) (sandbox.Report, error) {
				r := proving(everything...)
				r.Cases[3].Outcome = sandbox.Absent
				return r, nil
			}
		}, happy, "completed", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := &doors{}
			w := newWorld(t, []string{fixCI}, withDoors(d))
			c.set(w)
			id := w.take(failedRun("this"))
			r := w.ended(id)
			w.wantStory(id, c.story)
			if r.Reason != c.reason || r.Code != c.code {
				t.Errorf("result %+v", r)
			}
			if _, open := w.room.count(); open != 0 {
				t.Error("a sandbox is left")
			}
			for _, door := range d.opened {
				if len(door.codes) == 0 || door.codes[0] != c.reason {
					t.Errorf("door closed with %q", door.codes)
				}
			}
		})
	}
}

func TestCompatibilityLowersTheLevel(t *testing.T) {
	for name, leak := range map[string]bool{"leaking": true, "not_leaking": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{plus("fix-ci", "credentials: {compatibility: {reason: x, expires: 2026-12-31}}\n")})
			w.room.probe = func(context.Context) (sandbox.Report, error) {
				r := proving(everything...)
				if leak {
					r.Cases[0].Outcome = sandbox.Failed
				}
				return r, nil
			}
			id := w.take(failedRun("this"))
			w.ended(id)
			w.wantStory(id, happy)
			if got := w.log.receipts(id)[2].State.Level; got != 1 {
				t.Errorf("level %d", got)
			}
		})
	}
}

// Shadow needs no cgroup; hard mode runs without one only if the node says so.
func TestUnlimitedIsWritten(t *testing.T) {
	cases := map[string]struct {
		mode     string
		accepted bool
		want     bool
	}{
		"shadow":        {"shadow", false, true},
		"hard":          {"hard", false, false},
		"hard_accepted": {"hard", true, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{plus("fix-ci", "mode: "+c.mode+"\n")}, func(w *world) { w.opts.Unlimited = c.accepted })
			w.ended(w.take(failedRun("this")))
			if got := w.room.specs[0].Unlimited; got != c.want {
				t.Errorf("unlimited %v, want %v", got, c.want)
			}
		})
	}
}

func TestMountsReachTheSandbox(t *testing.T) {
	w := newWorld(t, []string{strings.Replace(fixCI, "session: {", "session: {mounts: [{source: /srv/tools, path: /opt/tools}], ", 1)})
	w.ended(w.take(failedRun("this")))
	if got := w.room.specs[0].Mounts; len(got) != 1 || got[0] != (sandbox.Mount{Source: "/srv/tools", Path: "/opt/tools"}) {
		t.Errorf("mounts %+v", got)
	}
}

func TestLevels(t *testing.T) {
	cases := map[string]struct {
		report  sandbox.Report
		door    bool
		distant bool
		want    int
	}{
		"all":             {proving(everything...), true, false, 3},
		"no_exit":         {proving(sandbox.NetworkClosed), false, false, 3},
		"door_open":       {proving(sandbox.NetworkClosed), true, false, 2},
		"network_open":    {proving(sandbox.DoorOnly), true, false, 2},
		"nothing":         {sandbox.Report{}, false, false, 2},
		"distant_all":     {proving(everything...), true, true, 2},
		"distant_no_exit": {proving(sandbox.NetworkClosed), false, true, 2},
		"distant_silent":  {sandbox.Report{}, true, true, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := levelOf(c.report, c.door, false, c.distant); got != c.want {
				t.Errorf("level %d, want %d", got, c.want)
			}
		})
	}
}

// Whatever ends a session from outside, its door is closed while the agent may
// still be running: authority does not wait for a process to go.
func TestEndingsFromOutside(t *testing.T) {
	cases := map[string]struct {
		end    func(w *world, id string) error
		reason string
	}{
		"kill":   {func(w *world, id string) error { return w.Kill(w.t.Context(), id) }, "cancelled"},
		"revoke": {func(w *world, id string) error { return w.Revoke(w.t.Context(), id) }, "revoked"},
		"flood": {func(w *world, id string) error {
			w.Flood(id)
			_, err := w.Wait(w.t.Context(), id)
			return err
		}, "receipt_flood"},
		"M-04_an_answer_held_the_credential": {func(w *world, id string) error {
			w.Tripped(id)
			_, err := w.Wait(w.t.Context(), id)
			return err
		}, "revoked"},
		"stop": {func(w *world, _ string) error { w.Close(); return nil }, "lost"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := &doors{inside: Inside{
				Env:   map[string]string{"ACME_TOKEN": "gatehouse_ph_1", "GATEHOUSE_SESSION": "another"},
				Files: map[string][]byte{"NOTES.md": []byte("hello"), fileEventJSON: []byte("{}")},
			}}
			w := newWorld(t, []string{fixCI}, withDoors(d))
			started := make(chan string, 1)
			w.room.run = func(ctx context.Context, s sandbox.Spec) (sandbox.End, error) {
				if s.Env["ACME_TOKEN"] != "gatehouse_ph_1" || s.Env["GATEHOUSE_SESSION"] != s.Session ||
					string(s.Files["NOTES.md"]) != "hello" || len(s.Files[fileEventJSON]) < 3 {
					t.Errorf("inside: %v, %d files", s.Env, len(s.Files))
				}
				started <- s.Session
				<-ctx.Done()
				select {
				case <-d.only(t).closed:
				case <-time.After(patience):
					t.Error("the door waited for the agent")
				}
				return sandbox.End{Reason: sandbox.Cancelled, Exit: 143}, nil
			}
			id := w.take(failedRun("this"))
			<-started
			if live := w.Sessions(); len(live) != 1 || live[0].ID != id || live[0].State != "running" || live[0].Bundle != "fix-ci" {
				t.Errorf("live %+v", live)
			}
			if err := c.end(w, id); err != nil {
				t.Fatal(err)
			}
			w.wantStory(id, "open admitted, preparing, running, ended("+c.reason+"), close "+c.reason)
			if codes := d.only(t).codes; codes[0] != c.reason || len(codes) != 1 {
				t.Errorf("door closed with %q", codes)
			}
			if err := w.Kill(t.Context(), id); problem.CodeOf(err) != problem.NotFound {
				t.Errorf("killing an ended session: %v", err)
			}
		})
	}
}

// A provider that does not honour the timeout is not waited for: the door is
// closed at the timeout, by Gatehouse's own clock.
func TestTimeoutClosesTheDoor(t *testing.T) {
	d := &doors{}
	w := newWorld(t, []string{strings.Replace(fixCI, "45m", "20ms", 1)}, withDoors(d))
	w.room.run = func(context.Context, sandbox.Spec) (sandbox.End, error) {
		select {
		case <-d.only(t).closed:
		case <-time.After(patience):
			t.Error("the door is open after the timeout")
		}
		return sandbox.End{Reason: sandbox.Timeout, Exit: 137}, nil
	}
	id := w.take(failedRun("this"))
	if r := w.ended(id); r.Reason != "timeout" {
		t.Errorf("ended %s", r.Reason)
	}
	if codes := d.only(t).codes; codes[0] != "timeout" {
		t.Errorf("door closed with %q", codes)
	}
}

func TestQueueByConcurrencyKey(t *testing.T) {
	w := newWorld(t, []string{strings.Replace(plus("fix-ci", "per_entity: 9/24h\n"), "timeout: 45m", "concurrency: {key: repository.id, max: 1}", 1)})
	started := make(chan string, 3)
	w.room.run = waits(started)
	first := w.take(failedRun("one"))
	<-started
	second, third := w.take(failedRun("two")), w.take(failedRun("three"))
	w.wantStory(second, "open admitted")
	// A session that waits can be ended too, and nothing of it ever starts.
	if err := w.Kill(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	w.wantStory(second, "open admitted, ended(cancelled), close cancelled")
	if err := w.Kill(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if got := <-started; got != third {
		t.Errorf("%s started, want %s", got, third)
	}
	if err := w.Kill(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	if n, _ := w.room.count(); n != 2 || w.room.most != 1 {
		t.Errorf("%d sandboxes, %d at a time", n, w.room.most)
	}
}

// If a receipt cannot be written, what it stands for does not happen.
func TestReceiptsComeFirst(t *testing.T) {
	full := errors.New("the journal is full")
	cases := map[string]struct {
		refuse  func(r *receipts.Receipt) bool
		started bool
	}{
		"open":      {func(r *receipts.Receipt) bool { return r.Type == receipts.TypeSessionOpen }, false},
		"preparing": {func(r *receipts.Receipt) bool { return r.State != nil && r.State.To == "preparing" }, false},
		"running":   {func(r *receipts.Receipt) bool { return r.State != nil && r.State.To == "running" }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{fixCI})
			ran := false
			w.room.run = func(context.Context, sandbox.Spec) (sandbox.End, error) { ran = true; return sandbox.End{}, nil }
			w.log.refuse = func(r *receipts.Receipt) error {
				if c.refuse(r) {
					return full
				}
				return nil
			}
			err := w.handle(t.Context(), w.log.message(failedRun("this")))
			id := w.sessionOf(eventHash("github:main:this"))
			if name == "open" {
				if !errors.Is(err, full) {
					t.Errorf("handle: %v", err)
				}
				w.log.refuse = nil
				// The event comes again and is admitted under the same claim.
				if again := w.take(failedRun("this")); again != id {
					t.Errorf("session %s, claimed as %s", again, id)
				}
				w.ended(id)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r := w.ended(id); r.Reason != "failed" {
				t.Errorf("ended %s", r.Reason)
			}
			if n, open := w.room.count(); (n > 0) != c.started || open != 0 || ran {
				t.Errorf("%d sandboxes started, %d left, agent ran %v", n, open, ran)
			}
		})
	}
}

func TestRetry(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	first := w.take(failedRun("this"))
	w.ended(first)
	second, err := w.Retry(t.Context(), first)
	if err != nil || second.Code != "" || second.Session == first {
		t.Fatalf("%+v, %v", second, err)
	}
	w.ended(second.Session)
	open := w.log.receipts(second.Session)[0].Open
	if open.Facts["retry_of"] != first || open.Event != "github:main:this" {
		t.Errorf("session.open %+v", open)
	}
	t.Run("a_refusal_once_mended", func(t *testing.T) {
		refused := w.take(failedRun("other", branch("gatehouse/x")))
		w.wantStory(refused, "open refused self_caused, close refused")
		again, err := w.Retry(t.Context(), refused)
		if err != nil || again.Code != "" {
			t.Fatalf("a person's word counts: %+v, %v", again, err)
		}
		w.ended(again.Session)
	})
	t.Run("judged_again", func(t *testing.T) {
		refused := w.take(failedRun("third", func(e *event.Event) { e.Facts["conclusion"] = "success" }))
		again, err := w.Retry(t.Context(), refused)
		if err != nil || again.Code != problem.NoMatch {
			t.Errorf("%+v, %v", again, err)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		if _, err := w.Retry(t.Context(), "nothing"); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("error %v", err)
		}
	})
	t.Run("still_running", func(t *testing.T) {
		started := make(chan string, 1)
		w.room.run = waits(started)
		w.store.pass(48 * time.Hour)
		id := w.take(failedRun("fourth"))
		<-started
		if _, err := w.Retry(t.Context(), id); problem.CodeOf(err) != problem.Conflict {
			t.Errorf("error %v", err)
		}
		if err := w.Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRedeliverCounts(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	w.ended(w.take(failedRun("this")))
	for range 2 {
		a, err := w.Redeliver(t.Context(), "github:main:this")
		if err != nil || a.Code != "" {
			t.Fatalf("%+v, %v", a, err)
		}
		w.ended(a.Session)
	}
	if a, err := w.Redeliver(t.Context(), "github:main:this"); err != nil || a.Code != problem.PerEntity {
		t.Errorf("the loop guard is passed by redelivery: %+v, %v", a, err)
	}
	if _, err := w.Redeliver(t.Context(), "github:main:never"); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("error %v", err)
	}
}

func TestResultOfNothing(t *testing.T) {
	w := newWorld(t, nil)
	for _, id := range []string{"", "..", "../../etc/passwd", "01jz0000000000000000000000"} {
		if _, err := w.Result(id); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := w.Transcript(id); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestRecorderCountsEffects(t *testing.T) {
	w := newWorld(t, nil)
	c := w.log.chain("effects")
	if _, err := w.log.Open(t.Context(), "effects", receipts.Open{State: "admitted"}, receipts.Obs{Point: "x", Kind: "x", Mediation: "sole"}); err != nil {
		t.Fatal(err)
	}
	r := newRecorder(c.Recorder(receipts.Obs{Point: "door", Kind: "egress-proxy", Mediation: "sole"}))
	act := func(kind enforcers.Kind, method string, passed bool, effect enforcers.Effect, out string) {
		a := &enforcers.Action{ID: "a", Kind: kind}
		if method != "" {
			a.HTTP = &enforcers.HTTP{Method: method}
		}
		d := &enforcers.Decision{Verdict: enforcers.Verdict{Effect: effect}, Passed: passed, Mode: receipts.Shadow}
		leaf, err := r.Decision(t.Context(), a, d, true)
		if err != nil {
			t.Fatal(err)
		}
		if out != "" {
			r.Outcome(leaf, enforcers.Outcome{Effect: out})
		}
	}
	act(enforcers.HTTPRequest, "GET", true, enforcers.Allow, enforcers.Forwarded)
	act(enforcers.HTTPRequest, "POST", false, enforcers.Deny, "")
	act(enforcers.HTTPRequest, "POST", true, enforcers.Allow, enforcers.NotForwarded)
	if r.effect() {
		t.Error("reading, a refusal and an undelivered request are an effect")
	}
	act(enforcers.HTTPRequest, "POST", true, enforcers.Deny, enforcers.Forwarded) // a would-block
	act(enforcers.GitPush, "", true, enforcers.Allow, enforcers.Unknown)
	if got, want := r.counts(), (Counts{Allowed: 3, Denied: 1, WouldBlock: 1, Effects: 2}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// TestDrain: nothing new starts, what runs comes to its own end.
func TestDrain(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	started := make(chan string, 1)
	w.room.run = waits(started)
	id := w.take(failedRun("running"))
	<-started
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := w.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("drained with a session running: %v", err)
	}
	late := failedRun("late")
	if err := w.handle(t.Context(), w.log.message(late)); problem.CodeOf(err) != problem.Draining {
		t.Errorf("an event while draining: %v", err)
	}
	if _, err := w.Redeliver(t.Context(), late.ID); problem.CodeOf(err) != problem.Draining {
		t.Errorf("a redelivery while draining: %v", err)
	}
	if _, claimed := w.store.bucket("claims").keys[eventHash(late.ID)]; claimed {
		t.Error("a draining node claims events")
	}
	drained := make(chan error, 1)
	go func() { drained <- w.Drain(t.Context()) }()
	if err := w.Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if n := len(w.Sessions()); n != 0 {
		t.Errorf("%d sessions after the drain", n)
	}
}
