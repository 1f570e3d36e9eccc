package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/model"
	"gatehouse/enforcers/spend"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// What a stream of the benchmark is: 200 events a second for as long as a round,
// or 50 where there are so many streams that 200 would be more than the client
// and the provider alone can do.
const (
	sseEvery  = 5 * time.Millisecond
	sseRarely = 20 * time.Millisecond
	sseFor    = 3 * time.Second
	sseRamp   = 3 * time.Millisecond
	modelHost = "api.anthropic.com"
	perDoor   = 50 // streams of one session
)

const sseAsk = `{"model":"claude-sonnet-4-5","max_tokens":16384,"stream":true,"messages":[{"role":"user","content":"go"}]}`

// sseSide is one way to the provider.
type sseSide struct {
	name string
	ask  func(ctx context.Context, stream int) (*http.Response, error)
	pid  int // of the process that it runs in, 0 = this one
}

// TestBenchModelStream compares what a stream of a model's answer takes longer
// through the mediator than directly: receipts on the disk, the worst case held,
// usage read as it passes. The bases hold nothing, record nothing and check
// nothing.
func TestBenchModelStream(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	w := newSSEWorld(t)
	for _, streams := range []int{50, 500} {
		if w.every = sseEvery; streams > 50 {
			w.every = sseRarely
		}
		sides := []sseSide{w.direct(), w.ours(t, streams), w.reverse(t)}
		if p, ok := w.portkey(t); ok {
			sides = append(sides, p)
		}
		got := make([][]sseRun, len(sides))
		for range rounds {
			for i, s := range sides {
				got[i] = append(got[i], w.run(t, s, streams))
			}
		}
		of := func(i int, f func(sseRun) float64) float64 {
			all := make([]float64, len(got[i]))
			for k, r := range got[i] {
				all[k] = f(r)
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		for _, m := range []struct {
			name, unit string
			of         func(sseRun) float64
			goal       float64
		}{
			{"first_event_p50", "ms", func(r sseRun) float64 { return r.first }, 5},
			{"event_p50", "us", func(r sseRun) float64 { return r.p50 }, 100},
			{"event_p99", "us", func(r sseRun) float64 { return r.p99 }, 0},
			{"cpu_per_event", "us", func(r sseRun) float64 { return r.cpu }, 0},
			{"rss_per_stream", "KiB", func(r sseRun) float64 { return r.rss }, 64},
		} {
			direct := of(0, m.of)
			name := fmt.Sprintf("model.sse_%d_streams.%s_added", streams, m.name)
			ours := of(1, m.of) - direct
			for i := 2; i < len(sides); i++ {
				report(t, name+"/"+sides[i].name, m.unit, ours, of(i, m.of)-direct)
			}
			if m.goal > 0 && streams == 50 {
				report(t, name+"/goal", m.unit, ours, m.goal)
			}
		}
		report(t, fmt.Sprintf("model.sse_%d_streams.events/direct", streams), "events/s", of(1, func(r sseRun) float64 { return r.rate }), of(0, func(r sseRun) float64 { return r.rate }))
	}
}

// sseRun is one round of one side.
type sseRun struct{ first, p50, p99, cpu, rate, rss float64 }

type sseWorld struct {
	*outsideWorld
	local string        // of the provider, for those who dial it themselves
	plain string        // the same without TLS
	every time.Duration // between two events; changed while nothing streams
	epoch time.Time
	nth   atomic.Int64 // stream of a run
}

func newSSEWorld(t testing.TB) *sseWorld {
	w := &sseWorld{outsideWorld: newOutsideWorld(t), every: sseEvery, epoch: time.Now()}
	h := http.HandlerFunc(w.serveSSE)
	if _, err := w.HTTPS(modelHost, netip.MustParseAddr("93.184.216.50"), h); err != nil {
		t.Fatal(err)
	}
	w.local = w.Upstreams()["93.184.216.50:443"]
	plain := httptest.NewServer(h)
	t.Cleanup(plain.Close)
	w.plain = plain.URL
	return w
}

// serveSSE streams events that carry the time they were written at. The moments
// of the streams are spread over the time between two events, and in the same
// way for every side: left to when their requests arrive, ten of fifty streams
// would write at once, and a side whose requests wait for a disk would have it
// easier.
func (s *sseWorld) serveSSE(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind, rest string) {
		fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,\"sent\":%d%s}\n\n", kind, kind, time.Now().UnixNano(), rest)
		w.(http.Flusher).Flush()
	}
	send("message_start", `,"message":{"model":"claude-sonnet-4-5","usage":{"input_tokens":10,"output_tokens":1}}`)
	const golden = 0.6180339887498949 // its multiples are spread, however many there are
	_, phase := math.Modf(golden * float64(s.nth.Add(1)))
	due := s.epoch.Add(time.Since(s.epoch).Truncate(s.every) + time.Duration(phase*float64(s.every)))
	tick := time.NewTimer(0)
	defer tick.Stop()
	for end := time.Now().Add(sseFor); time.Now().Before(end); {
		for due = due.Add(s.every); time.Until(due) < 0; due = due.Add(s.every) {
		}
		tick.Reset(time.Until(due))
		select {
		case <-tick.C:
			send("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"a few words "}`)
		case <-r.Context().Done():
			return
		}
	}
	send("message_delta", `,"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":600}`)
	send("message_stop", "")
}

// run opens all streams and reads them to their ends.
func (w *sseWorld) run(t testing.TB, s sseSide, streams int) sseRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var took, firsts []float64
	var wg sync.WaitGroup
	errs := make(chan error, streams)
	w.nth.Store(0)
	debug.FreeOSMemory()
	idle := resident(t, s.pid)
	before, began := s.cpu(t), time.Now()
	for i := range streams {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * sseRamp) // sessions do not all begin in one moment
			all, first, err := readSSE(ctx, s, i)
			for tries := 0; err != nil && len(all) < 2 && tries < 3; tries++ {
				all, first, err = readSSE(ctx, s, i) // a stream that ended as it began: ReverseProxy has some
			}
			if err != nil {
				errs <- fmt.Errorf("%s: %w", s.name, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			took, firsts = append(took, all...), append(firsts, first)
		})
	}
	// Memory is looked at when every stream is under way and none has ended.
	time.Sleep(time.Duration(streams)*sseRamp + (sseFor-time.Duration(streams)*sseRamp)/2)
	steady := resident(t, s.pid)
	wg.Wait()
	close(errs)
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	slices.Sort(took)
	slices.Sort(firsts)
	n := float64(len(took))
	return sseRun{
		first: firsts[len(firsts)/2] / 1e6, p50: took[len(took)/2] / 1e3, p99: took[len(took)*99/100] / 1e3,
		cpu: (s.cpu(t) - before).Seconds() * 1e6 / n, rss: (steady - idle) / float64(streams), rate: n / time.Since(began).Seconds(),
	}
}

// readSSE reads one stream and returns what each event took, and the first
// event from the moment of asking, in nanoseconds.
func readSSE(ctx context.Context, s sseSide, stream int) (all []float64, first float64, err error) {
	asked := time.Now()
	resp, err := s.ask(ctx, stream)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return nil, 0, fmt.Errorf("%d %s", resp.StatusCode, b)
	}
	ended := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		_, rest, ok := bytes.Cut(lines.Bytes(), []byte(`"sent":`))
		if !ok {
			continue
		}
		now := time.Now()
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		sent, err := strconv.ParseInt(string(rest[:digits]), 10, 64)
		if err != nil {
			return nil, 0, err
		}
		if first == 0 {
			first = float64(now.Sub(asked))
		}
		all = append(all, float64(now.UnixNano()-sent))
		ended = ended || bytes.Contains(lines.Bytes(), []byte("message_stop"))
	}
	if !ended {
		return all, 0, fmt.Errorf("a stream broke off after %d events and %s", len(all), time.Since(asked))
	}
	return all, first, nil
}

func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpu is the processor time of this process, client and provider included, and
// of the one that the side runs in.
func (s sseSide) cpu(t testing.TB) time.Duration {
	t.Helper()
	if s.pid == 0 {
		return cpu(t)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(b, []byte(") "))
	fields := bytes.Fields(rest)
	const user, system, tick = 11, 12, 10 * time.Millisecond // behind the name; USER_HZ is 100 on Linux
	other := time.Duration(0)
	for _, i := range []int{user, system} {
		n, err := strconv.Atoi(string(fields[i]))
		if err != nil {
			t.Fatal(err)
		}
		other += time.Duration(n) * tick
	}
	return cpu(t) + other
}

// resident is the memory in KiB that this process has in use, and the other one
// that a side runs in.
func resident(t testing.TB, pid int) float64 {
	t.Helper()
	total := 0.0
	for _, name := range []string{"self", strconv.Itoa(pid)} {
		if name == "0" {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := bytes.Cut(b, []byte("VmRSS:"))
		n, err := strconv.ParseFloat(string(bytes.Fields(rest)[0]), 64)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

// pidOf finds the process that has an argument.
func pidOf(t *testing.T, argument string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err == nil && slices.ContainsFunc(bytes.Split(b, []byte{0}), func(a []byte) bool { return string(a) == argument }) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no process has the argument %s", argument)
	return 0
}

// asking posts the benchmark's call to a URL.
func asking(c *http.Client, url string, header ...string) func(context.Context, int) (*http.Response, error) {
	return func(ctx context.Context, _ int) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(sseAsk))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return c.Do(r)
	}
}

// transport dials the provider itself, by its own name.
func (w *sseWorld) transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", w.local)
		},
		TLSClientConfig: &tls.Config{RootCAs: w.roots, ServerName: modelHost}, MaxIdleConnsPerHost: 1000,
	}
}

func (w *sseWorld) direct() sseSide {
	return sseSide{name: "direct", ask: asking(&http.Client{Transport: w.transport()}, "https://"+modelHost+"/v1/messages")}
}

// reverse is the standard library's proxy: plain HTTP on the inside, as our base
// URL is, TLS on the outside.
func (w *sseWorld) reverse(t testing.TB) sseSide {
	t.Helper()
	target := &url.URL{Scheme: "https", Host: modelHost}
	p := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = modelHost }, Transport: w.transport(), ErrorLog: log.New(io.Discard, "", 0)}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return sseSide{name: "ReverseProxy", ask: asking(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}, s.URL+"/v1/messages")}
}

// portkey is @portkey-ai/gateway 1.15.2, which reaches the provider without TLS.
func (w *sseWorld) portkey(t *testing.T) (sseSide, bool) {
	t.Helper()
	tools, err := filepath.Abs(filepath.Join("..", "..", ".tools"))
	if err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(tools, "portkey", "node_modules", "@portkey-ai", "gateway", "build", "start-server.js")
	if _, err := os.Stat(server); err != nil {
		fmt.Println("BENCH SKIPS portkey: npm couldn't bring @portkey-ai/gateway")
		return sseSide{}, false
	}
	node := filepath.Join(tools, "node-22", "bin", "node") // brought by scripts/clients; a clone may have none yet
	if _, err := os.Stat(node); err != nil {
		node = "node"
	}
	host, port := free(t)
	if process(t, "portkey", net.JoinHostPort(host, port), node, server, "--headless", "--port="+port) == nil {
		return sseSide{}, false
	}
	s := sseSide{name: "portkey", pid: pidOf(t, "--port="+port), ask: asking(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}, "http://"+net.JoinHostPort(host, port)+"/v1/messages",
		"X-Portkey-Provider", "anthropic", "X-Portkey-Custom-Host", w.plain+"/v1", "X-Api-Key", benchToken, "Anthropic-Version", "2023-06-01")}
	if _, _, err := readSSE(t.Context(), s, 0); err != nil {
		fmt.Printf("BENCH SKIPS portkey: it streams no answer: %v\n", err)
		return sseSide{}, false
	}
	return s, true
}

// ours opens enough sessions, each with a door, a budget and a chain on the
// disk.
func (w *sseWorld) ours(t testing.TB, streams int) sseSide {
	t.Helper()
	h, err := wasm.NewHost(t.Context(), wasm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	keys, err := notary.NewKeys("gatehouse.example/bench")
	if err != nil {
		t.Fatal(err)
	}
	n := notary.New(notary.Options{Node: "bench", Keys: keys, Budget: notary.Budget{Receipts: 1 << 40, Refusals: 1 << 40}})
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	var clients []*http.Client
	for i := range (streams + perDoor - 1) / perDoor {
		clients = append(clients, w.session(t, h, n, fmt.Sprintf("bench-%d", i)))
	}
	return sseSide{name: "gatehouse", ask: func(ctx context.Context, stream int) (*http.Response, error) {
		return asking(clients[stream%len(clients)], "http://"+door.Reserved+"/m/main/v1/messages")(ctx, stream)
	}}
}

// session opens one session's door and returns a client inside.
func (w *sseWorld) session(t testing.TB, h *wasm.Host, n *notary.Notary, id string) *http.Client {
	t.Helper()
	policy := []byte(`{"egress":[{"host":"` + modelHost + `","id":"models[0]","methods":[],"paths":[],"ports":[443],"schemes":["https"]}],` +
		`"models":[{"allow":["claude-*"],"connection":"main","max_output_tokens":16384}],"spend":{"limit":9007199254740991,"per_day":0}}`)
	m, err := h.Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var bound []enforcers.Bound
	for _, name := range []string{"egress", "git", "spend"} {
		e, err := m.Enforcer(t.Context(), wasm.Configure(policy, wasm.BuiltinParams(name)))
		if err != nil {
			t.Fatal(err)
		}
		bound = append(bound, enforcers.Bound{Enforcer: e, Mode: receipts.Hard, Builtin: true})
	}
	grants, err := enforcers.Grants(policy)
	if err != nil {
		t.Fatal(err)
	}
	conn := model.Connection{Name: "main", Provider: "anthropic"}
	inject, err := model.Injector(conn, func(context.Context) (secret.Value, error) { return secret.FromString(benchToken), nil })
	if err != nil {
		t.Fatal(err)
	}
	dev := &upstream.Dev{Upstreams: map[netip.AddrPort]netip.AddrPort{}, DNS: netip.MustParseAddrPort(w.DNS.Addr()), Roots: w.roots}
	for from, to := range w.Upstreams() {
		dev.Upstreams[netip.MustParseAddrPort(from)] = netip.MustParseAddrPort(to)
	}
	up, err := upstream.New(upstream.Options{Dev: dev, Inject: inject})
	if err != nil {
		t.Fatal(err)
	}
	ledger := spend.New(spend.Options{})
	if err := ledger.Open(spend.Session{ID: id, Bundle: "bench", Limit: 1<<53 - 1}); err != nil {
		t.Fatal(err)
	}
	prices, err := spend.Prices()
	if err != nil {
		t.Fatal(err)
	}
	mediator, err := model.New(model.Options{
		Session: id, Connections: []model.Connection{conn}, Allowed: []model.Allowed{{Connection: "main", Models: []string{"claude-*"}, MaxOutput: 16384}},
		Ledger: ledger, Prices: prices,
	})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := n.Open(t.Context(), id, receipts.Open{State: "admitted", Bundle: "bench", Mode: receipts.Hard, Policy: "credential_free"},
		receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
	if err != nil {
		t.Fatal(err)
	}
	gate := enforcers.NewGate(enforcers.GateOptions{
		Session: id, Mode: receipts.Hard, Policy: enforcers.Policy{Enforcers: bound, Grants: grants},
		Recorder: chain.Recorder(receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"}), Dev: true,
	})
	ca, err := door.NewCA(id)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "door.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := door.Open(context.Background(), l, gate, door.Options{Up: up, CA: ca, Routes: mediator.Routes()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close(enforcers.CodeRevoked)
		_ = up.Close()
	})
	proxy := &url.URL{Scheme: "http", Host: "door"}
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(proxy),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}, MaxIdleConnsPerHost: perDoor,
	}}
}
