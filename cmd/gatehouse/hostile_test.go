package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gatehouse/internal/outside"
)

// grabber opens what it can and holds it: connections, half handshakes, names.
const grabber = `
import socket, threading, time
def hold(i):
    kept = []
    while True:
        try:
            s = socket.create_connection(("listed.test" if i % 2 else "n%d.evil.test" % i, 443 if i % 3 else 80), 2)
            s.send(b"\x16\x03\x01\x02\x00\x01" if i % 3 else b"POST / HTTP/1.1\r\nHost: listed.test\r\nContent-Length: 100\r\n\r\nx")
            kept.append(s)
        except OSError:
            pass
        if len(kept) > 400:
            for s in kept: s.close()
            kept = []
for i in range(64):
    threading.Thread(target=hold, args=(i,), daemon=True).start()
print("grabbing", flush=True)
time.sleep(600)
`

// TestBenchHostileSession reports how long a delivery waits for its answer while
// a session takes all it can get, against the same node without it.
func TestBenchHostileSession(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	acks := func(n *liveNode) float64 {
		var took []float64
		tick := time.NewTicker(25 * time.Millisecond) // within the endpoint's rate
		defer tick.Stop()
		for i := range 200 {
			<-tick.C
			start := time.Now()
			if a, err := n.send(quiet(1000 + i)); err != nil || a.Status != 200 {
				t.Fatalf("delivery: %+v %v", a, err)
			}
			took = append(took, float64(time.Since(start).Microseconds())/1e3)
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	n, _ := hostileNode(t)
	idle := acks(n)
	n.deliver(failure(1))
	n.until("grabbing", func() bool { return strings.Contains(transcripts(t, n), "grabbing") })
	busy := acks(n)
	line, err := json.Marshal(map[string]any{"name": "ingest.ack_p99_under_hostile_session/idle", "ours": busy, "base": idle, "ratio": busy / idle, "unit": "ms"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}

// TestHostileSession: while a session takes all it can get of its door, every
// delivery is answered and every other session reaches what its bundle lists.
func TestHostileSession(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a node and its sandboxes")
	}
	n, served := hostileNode(t)
	n.deliver(failure(1))
	n.until("grabbing", func() bool { return strings.Contains(transcripts(t, n), "grabbing") })
	var posts []post
	for i := range 30 {
		posts = append(posts, quiet(100+i))
	}
	n.deliver(posts...)
	n.deliver(workflowRun(2, "neutral"))
	n.until("served beside it", func() bool { return served.Load() > 0 })
}

// hostileNode starts a node with two bundles: one whose session grabs, one whose
// session asks for one page, which served counts.
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
session: {agent: {command: {argv: [%s]}}, task: go, timeout: 10m}
egress: [{host: listed.test, schemes: [http, https], ports: [80, 443], methods: [GET, POST]}]
`
	n = newLiveNode(t, worldConfig(world), fmt.Sprintf(text, "grab", "failure", fmt.Sprintf(`/usr/bin/python3, "-c", %q`, grabber)),
		fmt.Sprintf(text, "other", "neutral", `curl, "-s", "http://listed.test/other"`))
	n.args = []string{"--dev"}
	n.start()
	return n, served
}
