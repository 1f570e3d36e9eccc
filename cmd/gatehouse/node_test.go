package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatehouse/internal/api"
	"gatehouse/internal/outside"
	"gatehouse/internal/secret"
)

// patience bounds every wait of these tests, on a busy machine too.
const patience = 3 * time.Minute

// liveNode is a node as users run it: the real binary over a folder of files.
type liveNode struct {
	t                        testing.TB
	dir                      string
	hooks, operator, private string
	key                      secret.Value
	args                     []string // of serve
	pre                      []string // program that starts the node, as setpriv does

	cmd    *exec.Cmd
	exited chan struct{}
	client *api.Client
}

// newLiveNode writes the files of a node: config is appended to listeners and
// the one endpoint, "main".
func newLiveNode(t testing.TB, config string, bundles ...string) *liveNode {
	t.Helper()
	return newLiveNodeOn(t, nodeDir(t), config, bundles...)
}

func nodeDir(t testing.TB) string {
	t.Helper()
	return shortDir(t, "gatehouse-node-")
}

// newLiveNodeOn is newLiveNode in a folder that the caller made.
func newLiveNodeOn(t testing.TB, dir, config string, bundles ...string) *liveNode {
	t.Helper()
	return newNamedNode(t, dir, "node-1", config, bundles...)
}

// newNamedNode is newLiveNodeOn for one of several nodes.
func newNamedNode(t testing.TB, dir, name, config string, bundles ...string) *liveNode {
	t.Helper()
	var err error
	n := &liveNode{t: t, dir: dir}
	t.Cleanup(func() {
		n.look(true)
		n.kill()
		if mounted(dir) { // nothing is there any more when the test is over
			for _, hit := range leaks(t, dir) {
				t.Error(hit)
			}
		}
		if t.Failed() {
			if b, err := os.ReadFile(n.path("log")); err == nil {
				t.Logf("the node said:\n%s", b[max(0, len(b)-8000):])
			}
		}
	})
	// The users that sessions run under must be able to pass through.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if _, err := initNode(dir, "test.gatehouse.example/"+name); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(n.path("main.key"))
	if err != nil {
		t.Fatal(err)
	}
	n.key = secret.FromString(strings.TrimSpace(string(key)))
	for _, addr := range []*string{&n.hooks, &n.operator, &n.private} {
		if *addr, err = freeAddr(); err != nil {
			t.Fatal(err)
		}
	}
	n.write("gatehouse.yaml", fmt.Sprintf(`node: %s
listen: {hooks: %q, operator: %q, private: %q}
endpoints: [{name: main, source: github, secrets: ["${file:main.key}"]}]
repositories: [{id: "1", name: acme/shop}]
sandbox: {unlimited: accepted}
%s`, name, n.hooks, n.operator, n.private, config))
	if err := os.Remove(n.path("bundles/fix-failing-ci.yaml")); err != nil {
		t.Fatal(err)
	}
	for i, b := range bundles {
		n.write(fmt.Sprintf("bundles/%d.yaml", i), b)
	}
	n.client = api.NewClient(n.path("state", socketName))
	t.Cleanup(n.client.Close)
	return n
}

func (n *liveNode) path(elem ...string) string {
	return filepath.Join(append([]string{n.dir}, elem...)...)
}

func (n *liveNode) write(name, content string) {
	n.t.Helper()
	if err := os.WriteFile(n.path(name), []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// start runs the node and waits until it is ready.
func (n *liveNode) start() {
	n.t.Helper()
	n.launch()
	n.until("ready", func() bool {
		select {
		case <-n.exited:
			n.t.Fatalf("the node ended: %v", n.cmd.ProcessState)
		default:
		}
		return n.status().Ready
	})
}

// launch runs the node.
func (n *liveNode) launch() {
	n.t.Helper()
	log, err := os.OpenFile(n.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	argv := append(append(append([]string{}, n.pre...), binary, "-c", n.path("gatehouse.yaml"), "serve"), n.args...)
	n.cmd = exec.Command(argv[0], argv[1:]...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	learn(n.path("gatehouse.yaml"))
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	cmd, exited := n.cmd, make(chan struct{})
	n.exited = exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
}

// kill is kill -9, and returns when the process is gone.
func (n *liveNode) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.exited
	n.cmd = nil
}

// stop is an orderly end, which must be one.
func (n *liveNode) stop() {
	n.t.Helper()
	n.look(false)
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	n.ended()
}

// ended waits until the node has ended by itself, with success.
func (n *liveNode) ended() {
	n.t.Helper()
	select {
	case <-n.exited:
	case <-time.After(patience):
		n.t.Fatal("the node does not stop")
	}
	if !n.cmd.ProcessState.Success() {
		n.t.Fatalf("the node ended with %v", n.cmd.ProcessState)
	}
	n.cmd = nil
}

// status is what the node says of itself, the zero value when it says nothing.
func (n *liveNode) status() (s api.Status) {
	_ = n.client.Get(n.t.Context(), "/v1/status", nil, &s)
	return s
}

// until polls; patience is a safety net, not a measurement.
func (n *liveNode) until(what string, ok func() bool) {
	n.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("never %s; status %+v", what, n.status())
		}
	}
}

// settled waits until each of the events has a session and none of its
// sessions goes on, as long as the node gets on with what it has before them.
func (n *liveNode) settled(ids ...string) {
	n.t.Helper()
	over := func(id string) bool {
		var e struct{ Sessions []struct{ State string } }
		if err := n.client.Get(n.t.Context(), "/v1/events/"+url.PathEscape(id), nil, &e); err != nil || len(e.Sessions) == 0 {
			return false
		}
		for _, s := range e.Sessions {
			if s.State != "ended" && s.State != "refused" {
				return false
			}
		}
		return true
	}
	for _, id := range ids {
		const several = 10 // a node that only ever writes is not getting on
		end, last, durable := time.Now().Add(patience), time.Now().Add(several*patience), uint64(0)
		for !over(id) {
			s := n.status()
			if now := time.Now(); s.Bus.Durable > durable && now.Before(last) {
				durable, end = s.Bus.Durable, now.Add(patience)
			} else if now.After(end) {
				n.t.Fatalf("never settled with %s; status %+v", id, s)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// post is one delivery, the same bytes under the same id however often it is sent.
type post struct {
	id   string
	body []byte
}

// failure is a delivery that the bundle takes, quiet one that none takes.
func failure(run int) post { return workflowRun(run, "failure") }
func quiet(run int) post   { return workflowRun(run, "success") }

// workflowRun is a small delivery of its own branch, so that no loop guard
// counts it with another.
func workflowRun(run int, conclusion string) post {
	return post{id: newUUID(), body: fmt.Appendf(nil, `{"action":"completed","workflow_run":{"id":%[1]d,"name":"ci","head_branch":"b%[1]d","head_sha":"3484a3fb816e0859fd6e1cea078d76385ff50625","event":"push","status":"completed","conclusion":%[2]q,"workflow_id":%[1]d,"run_number":1,"run_attempt":1,"pull_requests":[],"head_repository":{"id":1,"full_name":"acme/shop"},"actor":{"id":5,"login":"a","type":"User"},"triggering_actor":{"id":5,"login":"a","type":"User"}},"workflow":{"id":%[1]d},"repository":{"id":1,"full_name":"acme/shop","private":false,"visibility":"public","owner":{"id":9,"login":"acme","type":"Organization"}},"sender":{"id":5,"login":"a","type":"User"}}`, run, conclusion)}
}

// send posts p once and returns the event's id when the node answered 200.
func (n *liveNode) send(p post) (answer, error) {
	return delivery{URL: "http://" + n.hooks + "/hooks/main", Source: "github", Kind: "workflow_run", ID: p.id, Secret: n.key, Body: p.body}.send(n.t.Context())
}

// deliver posts each until it is answered 200, and returns the event ids.
func (n *liveNode) deliver(posts ...post) []string {
	n.t.Helper()
	ids := make([]string, len(posts))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i, p := range posts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if a, err := n.send(p); err == nil && a.Status == 200 {
					ids[i] = a.ID
					return
				}
			}
			n.t.Errorf("delivery %s is never answered 200", p.id)
		})
	}
	wg.Wait()
	return ids
}

// worldConfig sends a node that runs with --dev into a fake outside.
func worldConfig(world *outside.World) string {
	var upstreams []string
	for public, local := range world.Upstreams() {
		upstreams = append(upstreams, fmt.Sprintf("%q: %q", public, local))
	}
	return fmt.Sprintf("dev: {upstreams: {%s}, dns: %q}\n", strings.Join(upstreams, ", "), world.DNS.Addr())
}

// listedWorld is an outside with one site, listed.test.
func listedWorld(t testing.TB) (*outside.World, *outside.Site) {
	t.Helper()
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	site, err := world.HTTP("listed.test", netip.MustParseAddr("93.184.216.34"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("listed\n"))
	}))
	if err != nil {
		t.Fatal(err)
	}
	return world, site
}

// gatehouse runs a verb beside the node and returns what it printed.
func (n *liveNode) gatehouse(want int, args ...string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	if len(args) == 2 && args[0] == "backup" {
		backedUp(args[1], n.path("state"))
	}
	cmd := hear(n.t, exec.CommandContext(ctx, binary, append([]string{"-c", n.path("gatehouse.yaml")}, args...)...))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		n.t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != want {
		n.t.Fatalf("gatehouse %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, out.String(), errs.String())
	}
	return out.String() + errs.String()
}
