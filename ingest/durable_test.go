package ingest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gatehouse/ingest"
	"gatehouse/internal/blob"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
)

// childEnv makes the test binary serve an intake out of a folder until killed.
const childEnv = "GATEHOUSE_TEST_INGEST_DIR"

func serveChild(dir string) error {
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{SegmentBytes: 1 << 20})
	if err != nil {
		return err
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		return err
	}
	src, err := githubSource(key1)
	if err != nil {
		return err
	}
	in, err := ingest.New(context.Background(), ingest.Options{Journal: j, Blobs: blobs,
		Endpoints: []ingest.Endpoint{{Name: "main", Source: src, Rate: 1e6, Burst: 1e6}}})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return ingest.Server(in).Serve(l)
}

// runs is the full count with GATEHOUSE_SOAK, a twentieth of it otherwise.
func runs(full int) int {
	if os.Getenv("GATEHOUSE_SOAK") != "" {
		return full
	}
	return full / 20
}

// acked are the delivery ids that were answered 200.
type acked struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (a *acked) add(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids[id] = true
}

func (a *acked) copy() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]bool{}
	for id := range a.ids {
		out[id] = true
	}
	return out
}

// load sends distinct deliveries from several clients until one fails. note is
// called after each 200.
func load(t *testing.T, n *node, clients int, body []byte, a *acked, note func(total int)) *sync.WaitGroup {
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for c := range clients {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("c%d-%d-%s", c, i, freshID())
				r := n.request(delivery{id: id, body: bytes.Replace(body, []byte("totally"), []byte(id), 1)})
				resp, err := n.client.Do(r)
				if err != nil {
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 || err != nil {
					return
				}
				a.add(id)
				mu.Lock()
				total++
				now := total
				mu.Unlock()
				note(now)
			}
		})
	}
	return &wg
}

// stored counts the events by delivery id.
func stored(t *testing.T, j *journal.Journal) map[string]int {
	t.Helper()
	out := map[string]int{}
	for group, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group {
			e, err := event.Decode(r.Data)
			if err != nil {
				t.Fatal(err)
			}
			out[e.Delivery]++
		}
	}
	return out
}

func compare(t *testing.T, acked map[string]bool, got map[string]int) {
	t.Helper()
	for id := range acked {
		if got[id] != 1 {
			t.Errorf("delivery %s was answered 200 and is stored %d times", id, got[id])
		}
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("delivery %s is stored %d times", id, n)
		}
	}
}

// IN-01: a killed process loses nothing that it acknowledged.
func TestKilled(t *testing.T) {
	t.Run("IN-03_killed", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts processes")
		}
		body := corpus(t, "github/issue_comment__created.json")
		for run := range runs(100) {
			t.Run(fmt.Sprintf("IN-01 run %d", run), func(t *testing.T) {
				dir := t.TempDir()
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), childEnv+"="+dir)
				cmd.Stderr = os.Stderr
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				url, err := bufio.NewReader(out).ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
				n := &node{t: t, url: strings.TrimSpace(url), client: client}
				a := &acked{ids: map[string]bool{}}
				after := 20 + rand.IntN(300)
				wg := load(t, n, 8, body, a, func(total int) {
					if total == after {
						_ = cmd.Process.Kill()
					}
				})
				wg.Wait()
				_ = cmd.Wait()
				client.CloseIdleConnections()
				j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer j.Close()
				if len(a.copy()) < after {
					t.Fatalf("only %d acknowledged", len(a.copy()))
				}
				compare(t, a.copy(), stored(t, j))
			})
		}
	})
}

// IN-02: a power cut keeps everything that was acknowledged before it, and a
// restarted node knows it: IN-03.
func TestPowerCut(t *testing.T) {
	body := corpus(t, "github/issue_comment__created.json")
	for run := range runs(100) {
		t.Run(fmt.Sprintf("IN-02 run %d", run), func(t *testing.T) {
			fs := &faultfs.FS{}
			n := start(t, nodeOptions{fs: fs, segment: 256 << 10, endpoints: []ingest.Endpoint{{Name: "main", Source: gh(t, key1), Rate: 1e6, Burst: 1e6}}})
			a := &acked{ids: map[string]bool{}}
			var before map[string]bool
			var after *faultfs.FS
			cut := 10 + rand.IntN(100)
			wg := load(t, n, 8, body, a, func(total int) {
				if total == cut {
					before = a.copy()
					after = fs.Crash(rand.New(rand.NewPCG(uint64(run), 1)))
					go n.stop()
				}
			})
			wg.Wait()
			n.stop()
			j, err := journal.Open(filepath.Join(n.dir, "journal"), journal.Options{FS: after, SegmentBytes: 256 << 10})
			if err != nil {
				t.Fatal(err)
			}
			got := stored(t, j)
			_ = j.Close()
			compare(t, before, got)
			again := start(t, nodeOptions{fs: after, segment: 256 << 10, dir: n.dir})
			for id := range before {
				r := again.send(delivery{id: id, body: bytes.Replace(body, []byte("totally"), []byte(id), 1)})
				if r.Status != "duplicate" {
					t.Errorf("IN-03: %s answered %s after the restart", id, r.raw)
				}
				break
			}
		})
	}
}

// IN-13, IN-14: neither a credential in the body nor a header that is not on
// the list reaches the disk or the log.
func TestCanaries(t *testing.T) {
	t.Run("IN-14_secret_bearing_headers", func(t *testing.T) {
		var log bytes.Buffer
		n := start(t, nodeOptions{log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		ping := bytes.Replace(corpus(t, "github/ping__default.json"), []byte(`"config":{`), []byte(`"config":{"secret":"canary-body",`), 1)
		large := bytes.Replace(ping, []byte(`"zen":"`), []byte(`"zen":"`+strings.Repeat("long ", 120_000)), 1)
		twin := bytes.Replace(ping, []byte(`"zen":"`), []byte(`"ZEN":1,"zen":"`), 1)
		canaries := map[string][]string{"Authorization": {"canary-header"}, "Cookie": {"canary-header"}, "X-Hub-Signature": {"sha1=canary-header"}, "X-Any": {"canary-header"}}
		for name, body := range map[string][]byte{"small": ping, "large": large, "twin": twin} {
			if !bytes.Contains(body, []byte("canary-body")) {
				t.Fatalf("%s holds no canary", name)
			}
			if a := n.send(delivery{body: body, kind: "ping", header: canaries}); a.code != 200 {
				t.Fatalf("%s answered %d %s", name, a.code, a.raw)
			}
		}
		if a := n.send(delivery{body: ping, key: "another secret, which nobody set", header: canaries}); a.code != 401 || strings.Contains(a.raw, "canary") {
			t.Errorf("answered %d %s", a.code, a.raw)
		}
		if got := len(n.events()); got != 3 {
			t.Fatalf("stored %d events, want 3", got)
		}
		n.stop()
		if log.Len() == 0 {
			t.Error("nothing was logged")
		}
		files := 0
		err := filepath.WalkDir(n.dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			files++
			b, err := os.ReadFile(path)
			if bytes.Contains(b, []byte("canary")) {
				t.Errorf("IN-13, IN-14: %s holds a canary", path)
			}
			return err
		})
		if err != nil || files < 3 {
			t.Errorf("looked at %d files: %v", files, err)
		}
		if bytes.Contains(log.Bytes(), []byte("canary")) || bytes.Contains(log.Bytes(), []byte(key1)) {
			t.Errorf("IN-14: the log holds a canary: %s", log.Bytes())
		}
	})
}
