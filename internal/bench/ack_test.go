package bench

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/ingest"
	"gatehouse/ingest/github"
	"gatehouse/internal/blob"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/secret"
)

// Of each comparison: rounds of each side, in turns, and how long one is.
const (
	rounds   = 3
	roundFor = 2 * time.Second
	hookKey  = "a webhook secret of the benchmark"
)

// TestBenchAck compares durable answers over HTTP at about 8 KiB with the same
// handler publishing to JetStream: with sync always, which is as durable, and
// with the default sync of two minutes, which acknowledges before anything is on
// disk. Verifying, labelling and encoding are the same code on each of these
// sides; Benthos checks the signature and passes the body on. The floor is a
// handler that reads the body and answers: what it takes is HTTP and the
// generator, which share the machine with every side.
func TestBenchAck(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	asServe(t)
	body, err := os.ReadFile("../../ingest/testdata/corpus/github/workflow_job__completed_failure_with-organization.json")
	if err != nil {
		t.Fatal(err)
	}
	sides := []struct{ name, url string }{
		{"ours", journalSide(t)}, {"http_floor", floorSide(t)}, {"jetstream_sync_always", jetstreamSide(t, true)},
		{"jetstream_default_sync", jetstreamSide(t, false)}, {"benthos_sync_always", benthosSide(t)},
	}
	refusesForgery(t, sides[0].url, body)
	refusesForgery(t, sides[len(sides)-1].url, body)
	generators := make([]*generator, len(sides))
	for i, s := range sides {
		generators[i] = newGenerator(t, s.url, body)
	}
	for _, clients := range []int{1, 16, 64} {
		got := make([][]measure, len(sides))
		for range rounds {
			for i, g := range generators {
				got[i] = append(got[i], g.load(t, clients))
			}
		}
		name := fmt.Sprintf("ingest.ack_8KiB_%d_clients", clients)
		if clients == 64 {
			report(t, name+"/goal", "acks/s", median(got[0], perSecond), 5000)
		}
		for i := 1; i < len(sides); i++ {
			name := name + "/" + sides[i].name
			report(t, name, "acks/s", median(got[0], perSecond), median(got[i], perSecond))
			report(t, name+".cpu", "us", median(got[0], cost), median(got[i], cost))
			report(t, name+".p50", "ms", median(got[0], at(50)), median(got[i], at(50)))
			report(t, name+".p99", "ms", median(got[0], at(99)), median(got[i], at(99)))
		}
	}
}

// refusesForgery fails when a side takes a body under a wrong signature: it would
// do less than it is compared for.
func refusesForgery(t *testing.T, url string, body []byte) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {"workflow_job"}, "X-Github-Delivery": {"forged"},
		"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(make([]byte, 32))}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	resp, err := http.DefaultClient.Do(r.WithContext(ctx))
	if err != nil {
		t.Logf("%s: a forged delivery has no answer: %v", url, err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Errorf("%s takes a forged delivery", url)
	}
}

func source(t *testing.T) *github.Source {
	t.Helper()
	s, err := github.New(github.Options{Secrets: []secret.Value{secret.FromString(hookKey)}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asServe gives the run one processor more than there are, as gatehouse serve
// has: cmd/gatehouse/processors.go says why. Every side has it.
func asServe(t *testing.T) {
	t.Helper()
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	before := runtime.GOMAXPROCS(runtime.NumCPU() + 1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// journalSide is Gatehouse's own intake over its journal.
func journalSide(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	in, err := ingest.New(context.Background(), ingest.Options{Journal: j, Blobs: blobs,
		Endpoints: []ingest.Endpoint{{Name: "main", Source: source(t), Rate: 1e9, Burst: 1e9}}})
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, in)
}

// floorSide reads and answers, and does nothing else.
func floorSide(t *testing.T) string {
	t.Helper()
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"accepted"}`)
	}))
}

// jetstreamSide verifies, builds and encodes with the same code, publishes with
// a message id and answers when the stream has acknowledged.
func jetstreamSide(t *testing.T, always bool) string {
	t.Helper()
	ns, err := server.NewServer(&server.Options{JetStream: true, StoreDir: t.TempDir(), DontListen: true, SyncAlways: always, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(time.Minute) {
		t.Fatal("the server is not ready")
	}
	nc, err := nats.Connect("", nats.InProcessServer(ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"gatehouse.v1.events.>"}, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	src := source(t)
	ep := ingest.Endpoint{Name: "main", Source: src}
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, src.Traits().MaxBody))
		var d ingest.Delivery
		if err == nil {
			d, err = src.Verify(r.Header, raw)
		}
		var e *event.Event
		if err == nil {
			e, err = ep.Build(d, raw, time.Now())
		}
		var b []byte
		if err == nil {
			b, err = e.Encode()
		}
		if err == nil {
			_, err = js.Publish(r.Context(), e.Subject(), b, jetstream.WithMsgID(e.ID))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"accepted"}`)
	}))
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := ingest.Server(h)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return "http://" + l.Addr().String() + "/hooks/main"
}

// measure is one round.
type measure struct {
	took    []time.Duration // sorted
	seconds float64
	used    time.Duration // of the processor, by all in this process
}

func perSecond(m measure) float64 { return float64(len(m.took)) / m.seconds }

// cost is the processor time of one, in microseconds.
func cost(m measure) float64 { return float64(m.used.Microseconds()) / float64(len(m.took)) }

func at(percent int) func(measure) float64 {
	return func(m measure) float64 { return float64(m.took[len(m.took)*percent/100]) / 1e6 }
}

func median(list []measure, f func(measure) float64) float64 {
	out := make([]float64, len(list))
	for i, m := range list {
		out[i] = f(m)
	}
	slices.Sort(out)
	return out[len(out)/2]
}

func report(t *testing.T, name, unit string, ours, base float64) {
	t.Helper()
	line, err := json.Marshal(map[string]any{"name": name, "ours": ours, "base": base, "ratio": ours / base, "unit": unit})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}
