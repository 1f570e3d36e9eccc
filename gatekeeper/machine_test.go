package gatekeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// script makes sandboxes whose agents end when the test says, as it says.
type script struct {
	mu      sync.Mutex
	running map[string]chan sandbox.End
	started *sync.Cond
}

func newScript() *script {
	s := &script{running: map[string]chan sandbox.End{}}
	s.started = sync.NewCond(&s.mu)
	return s
}

func (s *script) run(ctx context.Context, spec sandbox.Spec) (sandbox.End, error) {
	ch := make(chan sandbox.End, 1)
	s.mu.Lock()
	s.running[spec.Session] = ch
	s.started.Broadcast()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.running, spec.Session)
		s.mu.Unlock()
	}()
	select {
	case e := <-ch:
		if e.Reason == "err" {
			return sandbox.End{}, errors.New("the provider broke")
		}
		return e, nil
	case <-ctx.Done():
		return sandbox.End{Reason: sandbox.Cancelled, Exit: 143}, nil
	}
}

func (s *script) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for id := range s.running {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// stories are all chains that a session may have.
var stories = allStories()

func allStories() map[string]bool {
	stories := map[string]bool{}
	for _, end := range []string{"completed", "no_effect", "failed", "timeout", "cancelled", "revoked", "lost"} {
		stories["open admitted, preparing, running, ended("+end+"), close "+end] = true
	}
	for _, end := range []string{"failed", "cancelled", "revoked", "lost"} {
		stories["open admitted, ended("+end+"), close "+end] = true
		stories["open admitted, preparing, ended("+end+"), close "+end] = true
	}
	stories["open admitted, preparing, refused(provider_capability_missing), close refused"] = true
	return stories
}

// Whatever comes, in whatever order: each chain is one of the stories, no limit
// is passed, every door and sandbox is closed, and a restart leaves nothing
// open.
func TestMachine(t *testing.T) {
	src := strings.Replace(plus("fix-ci", "per_entity: 5/24h\n"), "timeout: 45m", "concurrency: {key: repository.id, max: 2}", 1)
	rapid.Check(t, func(rt *rapid.T) {
		d := &doors{}
		w := newWorld(t, []string{src}, withDoors(d), func(w *world) { w.opts.Running = 3 })
		defer w.log.j.Close()
		s := newScript()
		var leak atomic.Bool
		w.room.run = s.run
		w.room.probe = func(context.Context) (sandbox.Report, error) {
			r := proving(everything...)
			if leak.Load() {
				r.Cases[0].Outcome = sandbox.Failed
			}
			return r, nil
		}
		n := 0
		var mine []string
		rt.Repeat(map[string]func(*rapid.T){
			"event": func(rt *rapid.T) {
				n++
				id := w.take(failedRun(fmt.Sprint(n)))
				mine = append(mine, id)
			},
			"again": func(rt *rapid.T) {
				if n == 0 {
					rt.Skip("no event yet")
				}
				k := rapid.IntRange(1, n).Draw(rt, "event")
				before := len(w.log.chains)
				w.take(failedRun(fmt.Sprint(k)))
				if len(w.log.chains) != before {
					rt.Fatal("an event that came again made a chain")
				}
			},
			"finish": func(rt *rapid.T) {
				ids := s.ids()
				if len(ids) == 0 {
					rt.Skip("nothing runs")
				}
				id := rapid.SampledFrom(ids).Draw(rt, "session")
				end := sandbox.End{Reason: rapid.SampledFrom([]string{sandbox.Completed, sandbox.Faulted, sandbox.Timeout, sandbox.Lost, "err"}).Draw(rt, "end")}
				if rapid.Bool().Draw(rt, "artifact") {
					end.Artifacts = map[string]string{"x": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
				}
				s.mu.Lock()
				ch := s.running[id]
				s.mu.Unlock()
				if ch == nil {
					rt.Skip("it ended meanwhile")
				}
				ch <- end
				w.ended(id)
			},
			"kill": func(rt *rapid.T) {
				if len(mine) == 0 {
					rt.Skip("no session yet")
				}
				id := rapid.SampledFrom(mine).Draw(rt, "session")
				end := rapid.SampledFrom([]func(context.Context, string) error{w.Kill, w.Revoke}).Draw(rt, "how")
				if err := end(t.Context(), id); err != nil && problem.CodeOf(err) != problem.NotFound {
					rt.Fatal(err)
				}
			},
			"leak":  func(*rapid.T) { leak.Store(!leak.Load()) },
			"later": func(*rapid.T) { w.store.pass(13 * 60 * 60 * 1e9) },
			"restart": func(rt *rapid.T) {
				w.Close()
				w.start()
				if left := w.log.Left(); len(left) != 0 {
					rt.Fatalf("open after a restart: %v", left)
				}
			},
			"": func(rt *rapid.T) {
				w.room.mu.Lock()
				most := w.room.most
				w.room.mu.Unlock()
				if most > 2 {
					rt.Fatalf("%d sandboxes of one key at a time", most)
				}
			},
		})
		w.Close()
		for _, id := range mine {
			story := w.log.story(id)
			if !stories[story] && !strings.HasPrefix(story, "open refused ") {
				rt.Errorf("chain of %s: %s", id, story)
			}
		}
		if left := w.log.Left(); len(left) != 0 {
			rt.Errorf("chains left open: %v", left)
		}
		if _, open := w.room.count(); open != 0 {
			rt.Errorf("%d sandboxes left", open)
		}
		for _, door := range d.opened {
			if len(door.codes) != 1 {
				rt.Errorf("a door was closed %d times", len(door.codes))
			}
		}
	})
}
