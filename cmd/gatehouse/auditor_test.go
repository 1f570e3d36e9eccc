package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestAuditorVerbs gives out, lists and takes back credentials on a real server;
// what they open is tested in internal/bus.
func TestAuditorVerbs(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: tempDir(t), NoLog: true, NoSigs: true, MaxPayload: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server did not start")
	}
	dir := tempDir(t)
	cfg := filepath.Join(dir, "gatehouse.yaml")
	if err := os.WriteFile(cfg, []byte("nats: {url: \"nats://"+srv.Addr().String()+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if got := Main(t.Context(), append([]string{"-c", cfg}, args...), strings.NewReader(""), &out, &errs); got != want {
			t.Fatalf("%v: exit %d, want %d\n%s%s", args, got, want, out.String(), errs.String())
		}
		return out.String() + errs.String()
	}
	file := filepath.Join(dir, "ann.seed")
	if out := run(exitOK, "auditor", "add", "ann", "--session", "S1", "-f", file); !strings.Contains(out, "MSG.NEXT.GATEHOUSE_SESSIONS.auditor_ann") {
		t.Fatal(out)
	}
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", st, err)
	}
	if out := run(exitOK, "auditor", "list", "-o", "ndjson"); strings.TrimSpace(out) != `{"name":"ann","session":"S1"}` {
		t.Fatal(out)
	}
	run(exitFailed, "auditor", "add", "ann", "--session", "S1", "-f", file) // the file exists
	again := filepath.Join(dir, "again")
	run(exitFailed, "auditor", "add", "ann", "-f", again) // the auditor exists
	if _, err := os.Stat(again); err == nil {
		t.Error("credentials of an auditor that was not made were left behind")
	}
	run(exitUsage, "auditor", "add", "a.b", "-f", again)
	run(exitOK, "auditor", "rm", "ann")
	run(exitFailed, "auditor", "rm", "ann")
}
