package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatehouse/ingest"
	"gatehouse/ingest/sentry"
	"gatehouse/internal/blob"
	"gatehouse/internal/journal"
	"gatehouse/internal/secret"
)

// benchNode serves one endpoint without a rate limit and returns its URL.
func benchNode(b *testing.B, src ingest.Source) string {
	b.Helper()
	dir := b.TempDir()
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		b.Fatal(err)
	}
	in, err := ingest.New(context.Background(), ingest.Options{Journal: j, Blobs: blobs, Endpoints: []ingest.Endpoint{{Name: "main", Source: src, Rate: 1e9, Burst: 1e9}}})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := ingest.Server(in)
	go func() { _ = srv.Serve(l) }()
	b.Cleanup(func() {
		_ = srv.Close()
		_ = in.Drain(context.Background())
		_ = j.Close()
	})
	return "http://" + l.Addr().String() + "/hooks/main"
}

// BenchmarkAck measures durable answers over HTTP at about 8 KiB: real sockets,
// a real journal, one fsync a group. Goals: DESIGN.md section 14.
func BenchmarkAck(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) { ackFrom(b, clients) })
	}
}

func ackFrom(b *testing.B, clients int) {
	base := corpus(b, "github/workflow_job__completed_failure_with-organization.json")
	url := benchNode(b, gh(b, key1))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()

	var next atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	b.SetBytes(int64(len(base)))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var mine []time.Duration
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					break
				}
				body, h := workflowJob(base, fmt.Sprintf("%08d", i))
				r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				r.Header = h
				began := time.Now()
				resp, err := client.Do(r)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				mine = append(mine, time.Since(began))
				if resp.StatusCode != 200 {
					b.Errorf("answered %d", resp.StatusCode)
					return
				}
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	if len(took) > 0 {
		b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "acks/s")
		b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
	}
}

// TestBenchSentry prints IN-06: a Sentry endpoint under 1,000 deliveries a second
// of 8 KiB, beside the 500 ms that p99.9 may take.
func TestBenchSentry(t *testing.T) {
	r := ingest.Measure(t, "5000x", BenchmarkSentry)
	ingest.Goal(t, "ingest.sentry_1000_per_second.p99_9/goal", "ms", r.Extra["p99.9-ms"], 500)
}

// BenchmarkSentry offers 1,000 deliveries a second of 8 KiB to a Sentry endpoint,
// whether it keeps up or not: IN-06 wants p99.9 within 500 ms.
func BenchmarkSentry(b *testing.B) {
	src, err := sentry.New(sentry.Options{Secrets: []secret.Value{secret.FromString(key1)}})
	if err != nil {
		b.Fatal(err)
	}
	url := benchNode(b, src)
	base := bytes.Replace(corpus(b, "sentry/error__created_full.json"), []byte(`"message":""`), append(append([]byte(`"message":"`), bytes.Repeat([]byte("m"), 5000)...), '"'), 1)
	b.SetBytes(int64(len(base)))
	offer(b, url, func(i int) ([]byte, http.Header) {
		body := bytes.Replace(base, []byte("7700000002"), fmt.Appendf(nil, "%010d", i), -1)
		return body, http.Header{"Content-Type": {"application/json"}, "Sentry-Hook-Resource": {"error"}, "Sentry-Hook-Signature": {sign(key1, body)[7:]}}
	})
}

// TestBenchRate prints what DESIGN.md section 14 wants of durable answers over
// HTTP at about 8 KiB: p50 and p99 at 1,000 a second. What 64 clients get is
// measured beside its peers, in internal/bench.
func TestBenchRate(t *testing.T) {
	r := ingest.Measure(t, "10000x", BenchmarkRate)
	ingest.Goal(t, "ingest.ack_8KiB_1000_per_second.p50/goal", "ms", r.Extra["p50-ms"], 5)
	ingest.Goal(t, "ingest.ack_8KiB_1000_per_second.p99/goal", "ms", r.Extra["p99-ms"], 50)
}

// BenchmarkRate offers 1,000 deliveries a second of 8 KiB to a GitHub endpoint.
func BenchmarkRate(b *testing.B) {
	url := benchNode(b, gh(b, key1))
	base := corpus(b, "github/workflow_job__completed_failure_with-organization.json")
	b.SetBytes(int64(len(base)))
	offer(b, url, func(i int) ([]byte, http.Header) { return workflowJob(base, fmt.Sprintf("%08d", i)) })
}

// offer sends 1,000 requests a second, whether the node keeps up or not.
func offer(b *testing.B, url string, request func(i int) ([]byte, http.Header)) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	took := make([]time.Duration, b.N)
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range b.N {
		<-tick.C
		wg.Go(func() {
			body, h := request(i)
			r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header = h
			began := time.Now()
			resp, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			took[i] = time.Since(began)
			if resp.StatusCode != 200 {
				b.Errorf("answered %d", resp.StatusCode)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
	b.ReportMetric(float64(took[len(took)*999/1000])/1e6, "p99.9-ms")
}

// workflowJob is a delivery with an id and a body of its own.
func workflowJob(base []byte, id string) ([]byte, http.Header) {
	body := bytes.Replace(base, []byte("289782451"), []byte("2"+id), 1)
	return body, http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {"workflow_job"}, "X-Github-Delivery": {id}, "X-Hub-Signature-256": {sign(key1, body)}}
}

// BenchmarkReject measures a wrong signature over 1 MiB: 2 ms of CPU at most.
func BenchmarkReject(b *testing.B) {
	s := gh(b, key1)
	body := bytes.Repeat([]byte("x"), 1<<20)
	h := http.Header{"X-Hub-Signature-256": {sign("another secret, which nobody set", body)}}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Verify(h, body); err == nil {
			b.Fatal("verified")
		}
	}
}
