package bench

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
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
// sides; Benthos checks the signature and passes the body on.
func TestBenchAck(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	body, err := os.ReadFile("../../ingest/testdata/corpus/github/workflow_job__completed_failure_with-organization.json")
	if err != nil {
		t.Fatal(err)
	}
	sides := []struct{ name, url string }{
		{"ours", journalSide(t)}, {"jetstream_sync_always", jetstreamSide(t, true)}, {"jetstream_default_sync", jetstreamSide(t, false)},
		{"benthos_sync_always", benthosSide(t)},
	}
	refusesForgery(t, sides[0].url, body)
	refusesForgery(t, sides[len(sides)-1].url, body)
	for _, clients := range []int{1, 16, 64} {
		got := make([][]measure, len(sides))
		for range rounds {
			for i, s := range sides {
				got[i] = append(got[i], load(t, s.url, body, clients))
			}
		}
		for i := 1; i < len(sides); i++ {
			name := fmt.Sprintf("ingest.ack_8KiB_%d_clients/%s", clients, sides[i].name)
			report(t, name, "acks/s", median(got[0], perSecond), median(got[i], perSecond))
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
}

func perSecond(m measure) float64 { return float64(len(m.took)) / m.seconds }

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

// sent numbers the deliveries of the whole run, so that none is a repetition.
var sent atomic.Int64

// load posts for a while from several clients. Every delivery has a body and an
// id of its own.
func load(t *testing.T, url string, base []byte, clients int) measure {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var m measure
	began := time.Now()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var mine []time.Duration
			for time.Since(began) < roundFor {
				id := fmt.Sprintf("2%08d", sent.Add(1)) // a JSON number has no leading zero
				body := bytes.Replace(base, []byte("289782451"), []byte(id), 1)
				sum := hmac.New(sha256.New, []byte(hookKey))
				sum.Write(body)
				r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header = http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {"workflow_job"}, "X-Github-Delivery": {id},
					"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(sum.Sum(nil))}}
				start := time.Now()
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				answer, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				mine = append(mine, time.Since(start))
				// Benthos answers 200 without a word.
				if resp.StatusCode != http.StatusOK || len(answer) > 0 && !bytes.Contains(answer, []byte(`"accepted"`)) {
					t.Errorf("answered %d %s", resp.StatusCode, answer)
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			m.took = append(m.took, mine...)
		})
	}
	wg.Wait()
	m.seconds = time.Since(began).Seconds()
	if len(m.took) == 0 {
		t.Fatal("nothing was answered")
	}
	slices.Sort(m.took)
	return m
}

func report(t *testing.T, name, unit string, ours, base float64) {
	t.Helper()
	line, err := json.Marshal(map[string]any{"name": name, "ours": ours, "base": base, "ratio": ours / base, "unit": unit})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}
