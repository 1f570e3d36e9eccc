package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gatehouse/internal/leak"
)

// tells is a bundle whose agent says a word, keeps it and stays.
const tells = `apiVersion: gatehouse/v1
kind: Bundle
name: tells
mode: shadow
accepts: outsider
match: [{source: github, kinds: [workflow_run.completed], where: {conclusion: failure}}]
session: {agent: {command: {argv: [/bin/sh, -c, "echo %s; echo %[1]s > kept; sleep 600; :"]}}, task: go, timeout: 15m}
`

func found(hits []leak.Hit, where string) bool {
	return slices.ContainsFunc(hits, func(h leak.Hit) bool { return strings.Contains(h.Where, where) })
}

// TestPlantedSecret: the search that every test of this package ends with finds a
// secret of a node in whatever file of it, and finds nothing where there is
// none. A file may hold its own secret and no other one.
func TestPlantedSecret(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a node and its sandboxes")
	}
	n := newLiveNode(t, "connections: [{name: x, kind: http, host: x.good.test, scheme: bearer, credential: \"${file:x.key}\"}]\n", fmt.Sprintf(tells, "nothing"))
	other := unique("file "+n.path("x.key"), "other-")
	n.write("x.key", other)
	n.start()
	n.deliver(failure(1))
	n.until("said", func() bool { return strings.Contains(transcripts(t, n), "nothing") })
	read := func(name string) string {
		b, err := os.ReadFile(n.path(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	hook, mark, seal := string(n.key.Reveal()), read("state/mark.key"), strings.Split(read("state/keys/seal.key"), "\n")[1]
	for name, c := range map[string]struct{ file, more string }{
		"in_the_log":          {"log", "level=INFO msg=" + other + "\n"},
		"base64_in_streams":   {"state/nats/x", "x" + base64.StdEncoding.EncodeToString([]byte("xx"+hook))},
		"url_in_a_note":       {"bundles/note", "https://x.test/?k=" + url.QueryEscape(other)},
		"beside_its_file":     {"main.key.old", hook},
		"under_its_name":      {"state/main.key", hook},
		"in_another's_file":   {"main.key", other},
		"in_the_config":       {"gatehouse.yaml", "# " + other + "\n"},
		"mark_among_blobs":    {"state/blobs/x", mark},
		"key_in_the_journal":  {"state/journal/x", seal},
		"in_a_session":        {"state/sessions/x", hook},
		"key_in_another_file": {"state/keys/node.key", seal},
	} {
		t.Run(name, func(t *testing.T) {
			path := n.path(filepath.FromSlash(c.file))
			was, err := os.ReadFile(path)
			there := err == nil
			if !there && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append(slices.Clone(was), c.more...), 0o600); err != nil {
				t.Fatal(err)
			}
			hits := leaks(t, n.dir)
			if there {
				err = os.Truncate(path, int64(len(was)))
			} else {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(hits) == 0 || slices.ContainsFunc(hits, func(h leak.Hit) bool { return h.Where != path || h.Offset < int64(len(was)) }) {
				t.Errorf("found %v, want what was put into %s at %d", hits, path, len(was))
			}
		})
	}
	if hits := leaks(t, n.dir); len(hits) != 0 {
		t.Errorf("with nothing planted: %v", hits)
	}
}

// TestSpokenSecret: the search sees what a node and its sandboxes make of a
// secret that somebody let them have: the memory of the agent, its files, the
// transcript, what is stored, pages, what a command prints.
func TestSpokenSecret(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a node and its sandboxes")
	}
	planted := unique("planted", "planted-")
	n := newLiveNode(t, "", fmt.Sprintf(tells, planted))
	n.start()
	n.deliver(failure(1))
	n.until("said", func() bool { return strings.Contains(transcripts(t, n), planted) })
	hits := leaks(t, n.dir)
	for _, where := range []string{"/bundles/0.yaml", "/state/transcripts/", "/state/blobs/", "/kept"} {
		if !found(hits, where) {
			t.Errorf("not found in %s but in %v", where, hits)
		}
	}
	inside := 0
	for _, p := range descendants(t, n.cmd.Process.Pid) {
		if m, err := dump(p); err == nil && len(suite.In("memory", m.bytes)) > 0 {
			inside++
		}
	}
	if inside == 0 {
		t.Error("not found in the memory of a sandbox")
	}
	n.until("shown", func() bool { return len(n.sessions()) > 0 }) // views are late
	shown := map[string]bool{}
	n.pages(context.Background(), true, func(where string, b []byte) {
		if len(suite.In(where, b)) > 0 {
			shown[regexp.MustCompile(`/(ui|v1)/[a-z]*`).FindString(where)] = true
		}
	})
	if !shown["/ui/bundles"] {
		t.Errorf("found in the pages %v alone", shown)
	}
	id := n.sessions()[0].ID
	n.gatehouse(exitOK, "session", "kill", id)
	n.until("ended", func() bool { return n.sessions()[0].State == "ended" })
	told := &silent{TB: t}
	out, err := hear(told, exec.Command(binary, "-c", n.path("gatehouse.yaml"), "session", "logs", id)).CombinedOutput()
	if err != nil || told.errors != 1 {
		t.Errorf("%d errors about what a command prints: %v\n%s", told.errors, err, out)
	}
	n.kill()
	if err := os.RemoveAll(n.dir); err != nil { // this test is the one that may leave it
		t.Fatal(err)
	}
}

// TestSuiteSearchesAll: no test of the package makes a folder, or runs gatehouse,
// past the search.
func TestSuiteSearchesAll(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	// The search itself; the folder of the built program, and what a script awaits; a
	// disk that is searched where it is mounted.
	own := map[string]int{"suite_test.go": 2, "script_test.go": 2, "media_test.go": 1}
	past := regexp.MustCompile(`\bt\.TempDir\(\)|\bos\.MkdirTemp\(""|\bexec\.Command(Context)?\(([\w.()]+, )?binary\b`)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for l := range strings.Lines(string(b)) {
			if past.MatchString(l) && !strings.Contains(l, "hear(") {
				found = append(found, strings.TrimSpace(l))
			}
		}
		if len(found) != own[file] {
			t.Errorf("%s goes past the search (use tempDir, shortDir, hear): %q", file, found)
		}
	}
	if len(files) < 60 {
		t.Errorf("only %d files", len(files))
	}
}

// silent counts errors instead of failing.
type silent struct {
	testing.TB
	errors int
}

func (s *silent) Error(...any) { s.errors++ }
