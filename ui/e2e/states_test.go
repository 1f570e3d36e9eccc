package e2e_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatehouse/enforcers/spend"
	"gatehouse/gatekeeper"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/ui"
)

// noon is when the pages of these tests are looked at.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// TestStates looks at what a node that works does not show: faults, gaps, refusals,
// what is kept blocked, quarantine, a provider that fails, and a node where nothing
// has happened. The pages are real; behind them stands what a test can make up.
func TestStates(t *testing.T) {
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
	w := newWorld(t)
	full, empty := httptest.NewServer(w.pages(t, w.view)), httptest.NewServer(nowhere(t))
	defer full.Close()
	defer empty.Close()
	args := []string{"states.mjs", full.URL, empty.URL}
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		args = append(args, dir)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Env = append(os.Environ(), "E2E_MODULES="+abs)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.HasSuffix(out, []byte("\nok\n")) {
		t.Fatal(err)
	}
}

// nowhere is a node on which nothing has happened.
func nowhere(t *testing.T) http.Handler {
	v := view.New(nil, view.Options{})
	w := &world{view: v, quiet: true}
	return w.pages(t, v)
}

// pages serves the pages over a world. Two cookies choose who looks and how the
// node is: as=viewer, as=stale, node=ill.
func (w *world) pages(t *testing.T, v *view.View) http.Handler {
	t.Helper()
	has := func(r *http.Request, name, value string) bool {
		c, err := r.Cookie(name)
		return err == nil && c.Value == value
	}
	well := ui.Node{Name: "node-1", Version: "v1.0.0", Started: noon.Add(-9 * time.Hour)}
	ill := well
	ill.Dev = true
	ill.Weaker = []string{"legacy-agent", "release-notes"}
	ill.Faults = []string{
		"A credential of session 01jca0000000000000000000012 could not be revoked: its platform does not answer.",
		"So many records wait for the streams that no delivery is taken.",
	}
	build := func(n ui.Node) http.Handler {
		u, err := ui.New(ui.Options{
			View: v, Do: w, Changes: decided{w}, Review: w, Inventory: w, Clock: func() time.Time { return noon },
			Node: func() ui.Node { return n },
			Budget: func(id string) (spend.Budget, bool) {
				return spend.Budget{Limit: 5_000_000_000, Spent: 4_125_000_000, Held: 875_000_000, Frozen: "cap_reached"}, id == sessionRunning
			},
			Who: func(r *http.Request) ui.Person {
				p := ui.Person{By: gatekeeper.By{Name: "ann@example.com", Via: "ui"}, CSRF: "token-1", May: func(ui.Act) error { return nil }}
				switch {
				case has(r, "as", "viewer"):
					p.May = func(ui.Act) error {
						return problem.New(problem.Forbidden, "the role viewer may not do that", "ask somebody who is reviewer, approver or operator")
					}
				case has(r, "as", "stale"):
					p.May = func(ui.Act) error {
						return problem.New(problem.LoginAgain, "this needs a login that is minutes old", "log in again")
					}
				}
				return p
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	good, bad := build(well), build(ill)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if has(r, "node", "ill") {
			bad.ServeHTTP(rw, r)
			return
		}
		good.ServeHTTP(rw, r)
	})
}

// stranger is a megabyte that somebody else wrote.
var stranger = strings.Repeat(hostile, 1+(1<<20)/len(hostile))
