package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/enforcers/spend"
	"gatehouse/gatekeeper"
	"gatehouse/internal/bus"
	"gatehouse/internal/view"
	"gatehouse/receipts"
	"gatehouse/ui"
)

// liveSession is the session that grows.
const liveSession = "01JCA000000000000000000001"

// growth is one session's stream as a page sees it: receipts come when the test
// wants, at a rate that no agent in a sandbox could hold.
type growth struct {
	t    *testing.T
	view *view.View

	noted chan string

	mu   sync.RWMutex
	msgs []bus.Msg
	prev receipts.Hash
}

func newGrowth(t *testing.T) *growth {
	g := &growth{t: t, noted: make(chan string, 10)}
	g.view = view.New(g, view.Options{})
	g.add(receipts.Receipt{Type: receipts.TypeSessionOpen, Open: &receipts.Open{
		State: "admitted", Event: "github:main:d1", Bundle: "fix", Digest: receipts.Hash{1}, Mode: receipts.Shadow, Policy: "credential_free", Provider: "local", Floor: "member", Points: []string{"door"}, Keyset: receipts.Hash{2},
	}})
	return g
}

// add puts one receipt on the stream.
func (g *growth) add(r receipts.Receipt) {
	obs := receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"}
	g.mu.Lock()
	r.V, r.Log, r.Session, r.Seq, r.Prev, r.Epoch, r.T, r.Obs = 1, "gatehouse.example/node-1", liveSession, uint64(len(g.msgs)), g.prev, 1, time.Now(), &obs
	if r.Seq == 0 {
		r.Prev = receipts.Genesis(r.Log, r.Session, r.Open.Keyset)
	}
	data, err := r.Encode()
	if err != nil {
		g.t.Error(err)
	}
	g.prev = receipts.Leaf(data)
	m := bus.Msg{Stream: bus.Sessions, Seq: r.Seq + 1, Subject: "gatehouse.v1.sessions." + liveSession, Data: data}
	g.msgs = append(g.msgs, m)
	g.mu.Unlock()
	g.view.Fold(m)
}

func (g *growth) deny() {
	n := len(g.msgs)
	g.add(receipts.Receipt{
		Type: receipts.TypeDecision,
		Act:  &receipts.Act{ID: fmt.Sprint(liveSession, "-", n), Kind: "http.request", Scheme: "https", Host: fmt.Sprintf("host-%d.example.net", n), Port: 443, Method: "GET"},
		Dec:  &receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Shadow, Passed: true, Rule: "gate.default_deny", Reason: "not_listed"},
	})
}

func (g *growth) Read(_ context.Context, _, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	g.mu.RLock()
	msgs := g.msgs[min(max(from, 1)-1, uint64(len(g.msgs))):]
	g.mu.RUnlock()
	return func(yield func(bus.Msg, error) bool) {
		for _, m := range msgs {
			if m.Subject == filter && !yield(m, nil) {
				return
			}
		}
	}
}

func (g *growth) Follow(ctx context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	return g.Read(ctx, stream, filter, from)
}

// A node that does nothing else.
type (
	commands struct{ ui.Commands }
	changes  struct {
		ui.Changes
		noted chan string
	}
	reviewer  struct{ ui.Reviewer }
	inventory struct{ ui.Inventory }
)

// What the agent left, and the note that somebody looked.
func (commands) Artifacts(context.Context, string) ([]ui.Artifact, error) {
	return []ui.Artifact{{Name: "<b>\u202ereport.txt", SHA256: strings.Repeat("ab", 32)}}, nil
}

func (c changes) Note(_ context.Context, step, bundle, subject string, by gatekeeper.By) error {
	c.noted <- fmt.Sprint(step, " ", bundle, " ", subject, " by ", by.Name)
	return nil
}

// serve serves the pages over a session that grows.
func (g *growth) serve() *httptest.Server {
	u, err := ui.New(ui.Options{
		View: g.view, Do: commands{}, Changes: changes{noted: g.noted}, Review: reviewer{}, Inventory: inventory{},
		Budget: func(string) (spend.Budget, bool) {
			return spend.Budget{Limit: 5_000_000_000, Spent: 1_250_000_000, Held: 500_000_000}, true
		},
		Node: func() ui.Node { return ui.Node{Name: "node-1"} },
		Who: func(*http.Request) ui.Person {
			return ui.Person{By: gatekeeper.By{Name: "ann", Via: "ui"}, May: func(ui.Act) error { return nil }}
		},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return httptest.NewServer(g.control(u))
}

// control lets the browser's script say what happens next, and waits until it
// has: POST /deny/N, POST /end.
func (g *growth) control(pages http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/ui/", pages)
	mux.HandleFunc("POST /deny/{n}", func(_ http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscan(r.PathValue("n"), &n); err != nil {
			g.t.Error(err)
		}
		for range n {
			g.deny()
		}
	})
	// 1,000 a second for ten seconds.
	mux.HandleFunc("POST /flood", func(http.ResponseWriter, *http.Request) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range 1000 {
			for range 10 {
				g.deny()
			}
			<-tick.C
		}
	})
	mux.HandleFunc("POST /end", func(http.ResponseWriter, *http.Request) {
		exit := int64(0)
		g.add(receipts.Receipt{Type: receipts.TypeSessionClose, Close: &receipts.Close{Reason: "completed", Exit: &exit, Out: map[string]receipts.Hash{"artifact.abababababababab": {0xab}}}})
	})
	return mux
}

// TestLiveTail watches a session's page while its chain grows.
func TestLiveTail(t *testing.T) { watch(t, "") }

// TestBenchLive prints, when GATEHOUSE_BENCH=1, how far the page is behind a chain
// that grows by 1,000 receipts a second, and how long the page is busy.
func TestBenchLive(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	for line := range bytes.Lines(watch(t, "1")) {
		if bytes.HasPrefix(line, []byte("{")) {
			fmt.Printf("%s", line)
		}
	}
}

func watch(t *testing.T, bench string) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	if _, err := os.Stat(filepath.Join(modules, "installed")); err != nil {
		t.Skip("NOT TESTED: run scripts/browser, or make test-ui")
	}
	abs, err := filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}
	g := newGrowth(t)
	srv := g.serve()
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "live.mjs", srv.URL, liveSession, bench)
	cmd.Env = append(os.Environ(), "E2E_MODULES="+abs)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.HasSuffix(out, []byte("\nok\n")) {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := fmt.Sprint(len(g.noted), " ", <-g.noted); got != "1 reveal fix "+liveSession+" by ann" {
		t.Errorf("the notes: %s", got)
	}
	return out
}
