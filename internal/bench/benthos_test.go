package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	_ "github.com/benthosdev/benthos/v4/public/components/io"   // http_server
	_ "github.com/benthosdev/benthos/v4/public/components/nats" // nats_jetstream
	_ "github.com/benthosdev/benthos/v4/public/components/pure" // mapping
	"github.com/benthosdev/benthos/v4/public/service"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// benthosSide is Benthos v4 (MIT): http_server, the signature checked by a
// mapping, nats_jetstream. It answers when the stream has acknowledged, and
// labels, deduplicates and encodes nothing. JetStream syncs always, which is as
// durable as ours.
func benthosSide(t *testing.T) string {
	t.Helper()
	ns, err := server.NewServer(&server.Options{JetStream: true, StoreDir: t.TempDir(), Host: "127.0.0.1", Port: server.RANDOM_PORT, SyncAlways: true, NoSigs: true})
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
	nc, err := nats.Connect(ns.ClientURL())
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String() // Benthos listens by itself
	_ = l.Close()
	b := service.NewStreamBuilder()
	if err := b.SetYAML(fmt.Sprintf(`
http: {enabled: false}
logger: {level: "OFF"}
input:
  http_server: {address: %q, path: /hooks/main, allowed_verbs: [POST], timeout: 60s}
pipeline:
  threads: 2
  processors:
    - mapping: |
        root = if "sha256=" + content().hash("hmac_sha256", %q).encode("hex") != meta("X-Hub-Signature-256") { throw("unauthorized") } else { content() }
output:
  reject_errored:
    nats_jetstream:
      urls: [%q]
      subject: 'gatehouse.v1.events.github.main.${! meta("X-Github-Event") }.none.${! meta("X-Github-Delivery") }'
      headers: {Nats-Msg-Id: '${! meta("X-Github-Delivery") }'}
      max_in_flight: 1024
`, addr, hookKey, ns.ClientURL())); err != nil {
		t.Fatal(err)
	}
	stream, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- stream.Run(context.Background()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := stream.Stop(ctx); err != nil {
			t.Error(err)
		}
		<-done
	})
	url := "http://" + addr + "/hooks/main"
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if resp, err := http.Get(url); err == nil {
			_ = resp.Body.Close()
			return url
		}
		if time.Now().After(end) {
			t.Fatal("benthos does not listen")
		}
	}
}
