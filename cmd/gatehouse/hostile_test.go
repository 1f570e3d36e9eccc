package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gatehouse/internal/outside"
)

// grabber opens what it can and holds it, a quarter each: connections that say
// nothing, names that nobody has asked for, half handshakes, slow bodies. It says
// how often it has done so and goes on.
const grabber = `
import itertools, os, socket, threading, time
os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"
turn, lock, tried = itertools.count(), threading.Lock(), 0
def take(i):
    if i % 4 == 1:
        socket.getaddrinfo("n%d.evil.test" % i, 443)
        return None
    s = socket.create_connection(("listed.test", 80 if i % 4 == 3 else 443), 0.2)
    if i % 4 == 2:
        s.send(b"\x16\x03\x01\x02\x00\x01")
    if i % 4 == 3:
        s.send(b"POST / HTTP/1.1\r\nHost: listed.test\r\nContent-Length: 100\r\n\r\nx")
    return s
def hold():
    global tried
    kept = []
    while True:
        try:
            s = take(next(turn))
            if s: kept.append(s)
        except OSError:
            pass
        with lock:
            tried += 1
            if tried % 250 == 0: print("grabbed", tried, flush=True)
        if len(kept) > 400:
            for s in kept: s.close()
            kept = []
for i in range(64):
    threading.Thread(target=hold, daemon=True).start()
print("grabbing", flush=True)
time.sleep(7200)
`

// asker asks for one page 200 times, each on a connection of its own, and says
// how long each took, in microseconds.
const asker = `
import http.client, time
took = []
for i in range(200):
    start = time.perf_counter()
    c = http.client.HTTPConnection("listed.test", timeout=60)
    c.request("GET", "/other")
    if c.getresponse().status != 200: raise SystemExit("no page")
    c.close()
    took.append(time.perf_counter() - start)
print("took", *(int(t * 1e6) for t in took), "us", flush=True)
time.sleep(7200) # what a running session says can be read
`

// grabs are what the grabbing sessions of a node have taken, as they said it
// themselves as long as they ran.
type grabs struct {
	*liveNode
	t        *testing.T
	started  int
	said     map[string]int // transcript -> the highest count in it
	running  string         // transcript of the newest, "" once it has ended
	finished []string       // sessions that have ended
}

func newGrabs(t *testing.T, n *liveNode) *grabs {
	return &grabs{liveNode: n, t: t, said: map[string]int{}}
}

// start starts another grabbing session and waits until it has grabbed so often.
func (g *grabs) start(atLeast int) {
	g.t.Helper()
	g.started++
	g.deliver(failure(g.started))
	g.until("grabbing", func() bool {
		g.count()
		return g.running != "" && g.said[g.running] >= atLeast
	})
}

var grabbed = regexp.MustCompile(`(?m)^grabbed (\d+)$`)

// count reads what the sessions said since the last time, and returns how often
// all of them together have grabbed. A session that has ended has no transcript
// here any more.
func (g *grabs) count() (all int) {
	g.t.Helper()
	files, err := filepath.Glob(g.path("state", "transcripts", "*"))
	if err != nil {
		g.t.Fatal(err)
	}
	running := ""
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil && !os.IsNotExist(err) {
			g.t.Fatal(err)
		}
		if !bytes.Contains(b, []byte("grabb")) {
			continue
		}
		if !slices.Contains(g.finished, f) {
			running = f
		}
		for _, m := range grabbed.FindAllSubmatch(b, -1) {
			count, err := strconv.Atoi(string(m[1]))
			if err != nil {
				g.t.Fatal(err)
			}
			g.said[f] = max(g.said[f], count)
		}
	}
	if g.running != "" && running == "" {
		g.finished = append(g.finished, g.running)
	}
	g.running = running
	for _, count := range g.said {
		all += count
	}
	return all
}

// TestBenchHostileSession reports how long a delivery waits for its answer, and
// how long another session waits for its page, while a session takes all it can
// get, and without it, in turns on one node.
func TestBenchHostileSession(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	const turns, warm = 3, 1000
	n, _ := hostileNode(t)
	run := 1000
	acks := func() (took []float64) {
		tick := time.NewTicker(25 * time.Millisecond) // within the endpoint's rate
		defer tick.Stop()
		for range 200 {
			<-tick.C
			run++
			start := time.Now()
			if a, err := n.send(quiet(run)); err != nil || a.Status != 200 {
				t.Fatalf("delivery: %+v %v", a, err)
			}
			took = append(took, float64(time.Since(start).Microseconds())/1e3)
		}
		return took
	}
	said := regexp.MustCompile(`(?m)^took ([\d ]+) us$`)
	end := func(bundle string) {
		var list struct {
			Items []struct{ ID, Bundle, State string }
		}
		n.until("ended", func() bool {
			if n.client.Get(t.Context(), "/v1/sessions?state=running", nil, &list) != nil {
				return false
			}
			left := 0
			for _, s := range list.Items {
				if s.Bundle == bundle {
					left++
					_ = n.client.Post(t.Context(), "/v1/sessions/"+s.ID+"/kill", nil, nil)
				}
			}
			return left == 0
		})
	}
	pages := func() (took []float64) {
		run++
		n.deliver(workflowRun(run, "neutral"))
		n.until("asked", func() bool {
			m := said.FindStringSubmatch(transcripts(t, n))
			if m == nil {
				return false
			}
			for _, f := range strings.Fields(m[1]) {
				us, err := strconv.ParseFloat(f, 64)
				if err != nil {
					t.Fatal(err)
				}
				took = append(took, us/1e3)
			}
			return true
		})
		end("other")
		return took
	}
	rows := map[string]*[2][]float64{"ingest.ack_p99_under_hostile_session/idle": {}, "door.page_p99_under_hostile_session/idle": {}}
	measure := func(side int) {
		for name, one := range map[string]func() []float64{"ingest.ack_p99_under_hostile_session/idle": acks, "door.page_p99_under_hostile_session/idle": pages} {
			rows[name][side] = append(rows[name][side], one()...)
		}
	}
	g := newGrabs(t, n)
	for range turns {
		measure(1)
		g.start(warm)
		measure(0)
		g.count()
		if g.running == "" {
			t.Fatal("the grabbing session ended before it was measured")
		}
		end("grab")
	}
	at := func(all []float64, percent int) float64 { slices.Sort(all); return all[len(all)*percent/100] }
	for name, row := range rows {
		ours, base := at(row[0], 99), at(row[1], 99)
		t.Logf("%s: p50 %.1f and %.1f ms, p90 %.1f and %.1f, most %.1f and %.1f", name, at(row[0], 50), at(row[1], 50), at(row[0], 90), at(row[1], 90), slices.Max(row[0]), slices.Max(row[1]))
		line, err := json.Marshal(map[string]any{"name": name, "ours": ours, "base": base, "ratio": ours / base, "unit": "ms"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(line))
	}
	t.Logf("grabbed %d times", g.count())
}

// TestHostileSession: while a session takes all it can get of its door, 50,000
// times in the soak, every delivery is answered and every other session reaches
// what its bundle lists. A session whose receipts are used up is ended by the
// node; another one then goes on in its place.
func TestHostileSession(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a node and its sandboxes")
	}
	count := 2500
	if os.Getenv("GATEHOUSE_SOAK") != "" {
		count = 50_000
	}
	n, served := hostileNode(t)
	g := newGrabs(t, n)
	g.start(0)
	n.deliver(workflowRun(2000, "neutral"))
	delivered := 0
	for last, end := 0, time.Now().Add(patience); ; {
		var posts []post
		for range 30 {
			delivered++
			posts = append(posts, quiet(3000+delivered))
		}
		n.deliver(posts...) // fails unless each is answered
		said, all := transcripts(t, n), g.count()
		if strings.Contains(said, "no page") || strings.Contains(said, "Traceback") {
			t.Fatalf("the other session: %s", said)
		}
		if all >= count && strings.Contains(said, "took ") {
			break
		}
		if delivered == 30 {
			n.until("served beside it", func() bool { return served.Load() > 0 })
		}
		if all > last {
			last, end = all, time.Now().Add(patience)
		} else if time.Now().After(end) {
			t.Fatalf("nothing is grabbed any more after %d times of %d", all, count)
		}
		if g.running == "" {
			id := strings.TrimSuffix(filepath.Base(g.finished[len(g.finished)-1]), ".log")
			t.Logf("session %s ended after %d grabs of all sessions", id, all)
			ended := regexp.MustCompile(`"session ended" session=` + id + ` reason=(\w+) `)
			n.until("told why it ended", func() bool {
				log, err := os.ReadFile(n.path("log"))
				m := ended.FindSubmatch(log)
				if m != nil && string(m[1]) != "receipt_flood" {
					t.Fatalf("session %s ended: %s", id, m[1])
				}
				return err == nil && m != nil
			})
			g.start(0)
		}
	}
	if got := served.Load(); got != 200 {
		t.Errorf("another session was served %d of 200 pages", got)
	}
	t.Logf("%d grabs by %d sessions, %d deliveries answered", g.count(), g.started, delivered)
}

// hostileNode starts a node with two bundles: one whose session grabs, one whose
// session asks for a page again and again, which served counts.
func hostileNode(t *testing.T) (n *liveNode, served *atomic.Int64) {
	t.Helper()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skipf("SKIPPED: the hostile session is written in Python: %v", err)
	}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	served = new(atomic.Int64)
	if _, err := world.HTTP("listed.test", netip.MustParseAddr("93.184.216.34"), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			served.Add(1)
		}
	})); err != nil {
		t.Fatal(err)
	}
	const text = `apiVersion: gatehouse/v1
kind: Bundle
name: %s
mode: hard
accepts: outsider
match: [{source: github, kinds: [workflow_run.completed], where: {conclusion: %s}}]
session: {agent: {command: {argv: [/usr/bin/python3, "-c", %q]}}, task: go, timeout: 2h}
egress: [{host: listed.test, schemes: [http, https], ports: [80, 443], methods: [GET, POST]}]
`
	n = newLiveNode(t, worldConfig(world), fmt.Sprintf(text, "grab", "failure", grabber),
		fmt.Sprintf(text, "other", "neutral", asker))
	n.args = []string{"--dev"}
	n.start()
	return n, served
}
