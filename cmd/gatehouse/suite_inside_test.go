package main

import (
	"context"
	"encoding/json"
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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatehouse/internal/api"
)

// What a look at one node may take; the rest of it was looked at elsewhere.
const (
	lookPages  = 60
	lookMemory = 1 << 30
	lookTime   = 20 * time.Second
)

// look searches what is there of a node only as long as it runs: the memory,
// environment and arguments of every process in its sandboxes, the folders of
// sessions, what its listeners answer. With browse somebody logs in and follows
// every link, which leaves its receipts. A node that does not answer any more is
// searched as far as it does.
func (n *liveNode) look(browse bool) {
	n.t.Helper()
	if n.cmd == nil {
		return
	}
	select {
	case <-n.exited:
		return
	default:
	}
	learn(n.path("gatehouse.yaml"))
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	search := func(where string, b []byte) {
		n.t.Helper()
		for _, hit := range suite.In(where, b) {
			n.t.Error(hit)
		}
	}
	held, processes := int64(0), 0
	for _, p := range descendants(n.t, n.cmd.Process.Pid) {
		m, err := dump(p)
		if err != nil {
			continue // it has ended, or this user may not look
		}
		if held += int64(len(m.bytes)); held > lookMemory {
			break
		}
		processes++
		search(fmt.Sprintf("the memory of %s, process %d of a sandbox", m.name, p), m.bytes)
	}
	if processes > 0 { // else all is there when the test is over
		for _, hit := range leaks(n.t, n.dir) {
			n.t.Error(hit)
		}
	}
	pages := n.pages(ctx, browse, search)
	tally.Lock()
	defer tally.Unlock()
	tally.nodes++
	tally.pages += pages
	tally.processes += processes
	tally.memory += held
	tally.took += time.Since(start)
}

// pages searches what the node's listeners answer and returns how many answers
// there were.
func (n *liveNode) pages(ctx context.Context, browse bool, search func(where string, b []byte)) (count int) {
	plain := &http.Client{}
	defer plain.CloseIdleConnections()
	open := func(c *http.Client, address string) []byte {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil
		}
		res, err := c.Do(req)
		if err != nil {
			return nil
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(res.Body, 8<<20))
		count++
		search(address, b)
		return b
	}
	for _, path := range []string{"/metrics", "/readyz", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"} {
		open(plain, "http://"+n.private+path)
	}
	for _, path := range []string{"/v1/status", "/v1/sessions", "/v1/events"} {
		var answer json.RawMessage
		if n.client.Get(ctx, path, nil, &answer) == nil {
			count++
			search(path, answer)
		}
	}
	var link api.Link
	jar, err := cookiejar.New(nil)
	if err != nil || !browse || n.client.Post(ctx, "/v1/login-links", nil, &link) != nil {
		return count
	}
	if u, err := url.Parse(link.URL); err == nil {
		for _, v := range u.Query() {
			known("login link", []byte(v[0]))
		}
	}
	browser := &http.Client{Jar: jar}
	defer browser.CloseIdleConnections()
	open(browser, link.URL)
	if u, err := url.Parse("http://" + n.operator); err == nil {
		for _, c := range jar.Cookies(u) {
			known("login cookie "+c.Name, []byte(c.Value))
		}
	}
	seen := map[string]bool{}
	for todo, most := []string{"/ui/"}, count+lookPages; len(todo) > 0 && count < most && ctx.Err() == nil; todo = todo[1:] {
		for _, m := range pageLink.FindAllSubmatch(open(browser, "http://"+n.operator+todo[0]), -1) {
			if to := html.UnescapeString(string(m[1])); !seen[to] && !strings.HasSuffix(to, "/live") {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return count
}

// mounted reports whether a folder is a disk of its own.
func mounted(dir string) bool {
	in, err1 := os.Stat(dir)
	over, err2 := os.Stat(filepath.Dir(dir))
	if err1 != nil || err2 != nil {
		return false
	}
	a, ok1 := in.Sys().(*syscall.Stat_t)
	b, ok2 := over.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && a.Dev != b.Dev
}

// descendants returns the processes below one.
func descendants(t testing.TB, pid int) (all []int) {
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

// noProcess reports whether a process is not there any more.
func noProcess(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
