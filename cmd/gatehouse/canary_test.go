//go:build linux

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gatehouse/internal/api"
	"gatehouse/internal/outside"
)

// canaries are unique secrets, one for each store of a node, in the forms in
// which they could show.
type canaries map[string][]byte // name -> value

func (c canaries) in(b []byte) (names []string) {
	for name, v := range c {
		for _, form := range [][]byte{v, []byte(base64.RawStdEncoding.EncodeToString(v)), []byte(hex.EncodeToString(v)), []byte(url.QueryEscape(string(v)))} {
			if bytes.Contains(b, form) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// TestCanaries is M-22 for a whole session: a secret in every store that a node
// has, a client that uses one of them and another that dies of a signal, and then
// everything that is inside or came out is searched: the memory of every process
// of the sandbox, dumped from outside while it runs, their environments and
// arguments, files, cores, what they printed, the node's log, its state, metrics
// and what the API shows, receipts.
func TestCanaries(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a node and its sandbox")
	}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	w := newRegistryWorldIn(t, world)
	secrets := canaries{"connection": []byte(w.canary), "file": []byte("file-canary-" + rand.Text()), "environment": []byte("env-canary-" + rand.Text())}
	const agent = `curl -s https://` + packagesHost + `/maven/acme/lib.txt; echo "token $ACME_TOKEN" | tee kept; (ulimit -c unlimited; sh -c 'kill -SEGV $$'); ls; echo ready; sleep 300`
	n := newLiveNode(t, worldConfig(world)+fmt.Sprintf(`connections:
  - {name: packages, kind: http, host: %s, scheme: bearer, credential: "${secret:packages}"}
  - {name: forge, kind: http, host: %s, scheme: header, header: X-Token, credential: "${file:forge.key}"}
  - {name: other, kind: http, host: %s, scheme: query, query: k, credential: "${env:CANARY_IN_ENV}"}
`, packagesHost, forgeHost, openHost), fmt.Sprintf(`apiVersion: gatehouse/v1
kind: Bundle
name: canaries
mode: hard
accepts: outsider
match: [{source: github, kinds: [workflow_run.completed], where: {conclusion: failure}}]
session:
  agent: {command: {argv: ["sh", "-c", %q]}}
  task: go
  timeout: 10m
egress:
  - {host: %s, connection: packages, env: ACME_TOKEN}
  - {host: %s, connection: forge, env: FORGE_TOKEN}
  - {host: %s, connection: other}
`, agent, packagesHost, forgeHost, openHost))
	t.Setenv("CANARY_IN_ENV", string(secrets["environment"]))
	secrets["webhook"] = n.key.Reveal()
	n.write("forge.key", string(secrets["file"]))
	n.write("ca.pem", string(world.CA()))
	config, err := os.ReadFile(n.path("gatehouse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n.write("gatehouse.yaml", strings.Replace(string(config), "dev: {", "dev: {ca: ca.pem, ", 1))
	w.setSecret(t, n.path("gatehouse.yaml"))
	n.args = []string{"--dev"}
	n.start()
	ids := n.deliver(failure(1))
	n.until("at work", func() bool { return strings.Contains(transcripts(t, n), "ready") })
	said := transcripts(t, n)
	if !strings.Contains(said, "java from "+packagesHost) || !strings.Contains(said, "token gatehouse_ph_") {
		t.Fatalf("the session did not do its work:\n%s", said)
	}

	placeholder := []byte(said[strings.Index(said, "gatehouse_ph_"):][:len("gatehouse_ph_")+26])
	search := func(where string, b []byte) {
		for _, name := range secrets.in(b) {
			t.Errorf("the %s canary is in %s", name, where)
		}
	}
	processes := descendants(t, n.cmd.Process.Pid)
	if len(processes) < 3 {
		t.Fatalf("only %d processes of the sandbox were found", len(processes))
	}
	known := false
	for _, p := range processes {
		memory, err := dump(p)
		if errors.Is(err, fs.ErrPermission) {
			t.Skipf("SKIPPED: this user may not read a sandbox's memory: %v", err)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			t.Fatalf("process %d: %v", p, err)
		}
		search(fmt.Sprintf("the memory of %s", memory.name), memory.bytes)
		known = known || bytes.Contains(memory.bytes, placeholder)
	}
	// The same search finds what is there: the placeholder inside, the credential
	// in the node itself.
	if !known {
		t.Error("the placeholder was found in no process: the dumps are no dumps")
	}
	own, err := dump(n.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if len(secrets.in(own.bytes)) == 0 {
		t.Error("no canary was found in the node's memory: the search finds nothing")
	}

	// While the session runs, its folders are there.
	files := searchTree(t, n.path("state"), search)
	if files < 10 {
		t.Errorf("only %d files of the state folder were searched", files)
	}
	for _, path := range []string{"/metrics", "/readyz", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=2"} {
		search("http://private"+path, get(t, "http://"+n.private+path))
	}
	for _, path := range []string{"/v1/status", "/v1/sessions", "/v1/events", "/v1/events/" + url.PathEscape(ids[0])} {
		var answer any
		n.until("shown at "+path, func() bool { return n.client.Get(t.Context(), path, nil, &answer) == nil }) // views are late
		search(path, fmt.Append(nil, answer))
	}
	search("the transcript", []byte(said))
	pages := crawl(t, n, search)
	for _, want := range []string{"/ui/sessions/", "/ui/events/", "/ui/bundles/canaries", "/ui/receipts/", "/ui/settings"} {
		if !slices.ContainsFunc(pages, func(p string) bool { return strings.HasPrefix(p, want) && p != want }) && !slices.Contains(pages, want) {
			t.Errorf("no page under %s was searched, only %q", want, pages)
		}
	}
	search("config print", []byte(n.gatehouse(exitOK, "config", "print")))
	search("secret list", []byte(n.gatehouse(exitOK, "secret", "list")))
	n.stop()
	searchTree(t, n.path("state"), search)
	log, err := os.ReadFile(n.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	search("the node's log", log)
	if sent := w.at[packagesHost].sent(); len(sent) != 1 || sent[0] != "Bearer "+w.canary {
		t.Errorf("the registry was sent %q", sent)
	}
}

// crawl logs in with a one-time link, follows every link of the pages and returns
// which it came to.
func crawl(t *testing.T, n *liveNode, search func(where string, b []byte)) (pages []string) {
	t.Helper()
	var link api.Link
	if err := n.client.Post(t.Context(), "/v1/login-links", nil, &link); err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	defer browser.CloseIdleConnections()
	open := func(address string) []byte {
		res, err := browser.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", address, res.Status)
		}
		return b
	}
	open(link.URL)
	const most = 300
	known := map[string]bool{}
	for todo := []string{"/ui/"}; len(todo) > 0 && len(pages) < most; todo = todo[1:] {
		body := open("http://" + n.operator + todo[0])
		search("the page "+todo[0], body)
		pages = append(pages, todo[0])
		for _, m := range pageLink.FindAllSubmatch(body, -1) {
			if to := html.UnescapeString(string(m[1])); !known[to] && !strings.HasSuffix(to, "/live") {
				known[to] = true
				todo = append(todo, to)
			}
		}
	}
	return pages
}

// pageLink finds where a page leads by a link.
var pageLink = regexp.MustCompile(`href="(/ui/[^"#]*)`)

func get(t *testing.T, address string) []byte {
	t.Helper()
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// searchTree searches every plain file of a folder and returns how many there
// are. The store's identity is the one thing that is kept as it is.
func searchTree(t *testing.T, root string, search func(where string, b []byte)) (files int) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil // a session's files go while it is looked at
		}
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files++
		if strings.HasPrefix(d.Name(), "core") {
			t.Errorf("%s is a core", path)
		}
		search(path, b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

// descendants returns the processes below one.
func descendants(t *testing.T, pid int) (all []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, child)
				all = append(all, descendants(t, child)...)
			}
		}
	}
	return all
}

// memory is what a process holds: its mapped memory that can be read, its
// environment and its arguments.
type memory struct {
	name  string
	bytes []byte
}

func dump(pid int) (memory, error) {
	at := func(name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }
	name, err := os.ReadFile(at("comm"))
	if err != nil {
		return memory{}, err
	}
	m := memory{name: strings.TrimSpace(string(name))}
	for _, f := range []string{"environ", "cmdline"} {
		b, err := os.ReadFile(at(f))
		if err != nil {
			return m, err
		}
		m.bytes = append(m.bytes, b...)
	}
	maps, err := os.ReadFile(at("maps"))
	if err != nil {
		return m, err
	}
	mem, err := os.Open(at("mem"))
	if err != nil {
		return m, err
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || mode[0] != 'r' || mode[1] != 'w' || to-from > 256<<20 {
			continue // programs and libraries hold what the disk does
		}
		b := make([]byte, to-from)
		k, _ := mem.ReadAt(b, int64(from)) // a hole in a mapping is no memory
		m.bytes = append(m.bytes, b[:k]...)
	}
	return m, nil
}
