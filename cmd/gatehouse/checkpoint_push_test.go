package main

import (
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// TestCheckpointPush: a node sends its newest checkpoint to an https place of
// checkpoints:, as a receipted call of its own, and what arrives proves the end
// of an export (RC-16: it is newer than a log that was put back).
func TestCheckpointPush(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: runs a node")
	}
	t.Parallel()
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	arrived := make(chan []byte, 100)
	if _, err := world.HTTPS("audit.test", netip.MustParseAddr("93.184.216.35"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/gatehouse/node-1" || r.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		arrived <- b
	})); err != nil {
		t.Fatal(err)
	}
	n := newLiveNode(t, worldConfig(world)+"checkpoints: [\"https://audit.test/gatehouse/node-1\"]\n")
	n.write("ca.pem", string(world.CA()))
	config, err := os.ReadFile(n.path("gatehouse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n.write("gatehouse.yaml", strings.Replace(string(config), "dev: {", "dev: {ca: ca.pem, ", 1))
	n.args = []string{"--dev"}
	n.start()
	var note []byte
	n.until("at the auditor", func() bool {
		select {
		case note = <-arrived:
			return true
		default:
			return false
		}
	})
	root := strings.TrimSpace(n.gatehouse(exitOK, "receipts", "root"))
	n.gatehouse(exitOK, "receipts", "export", "-f", n.path("all.gh"))
	n.stop()
	var begun, done bool
	for _, r := range n.controlOf() {
		begun = begun || r.Dec != nil && r.Dec.Rule == "node.checkpoint" && r.Act.Host == "audit.test"
		done = done || begun && r.Out != nil && r.Out.Status == http.StatusOK
	}
	if !done {
		t.Error("the push has no receipt with its outcome")
	}
	f, err := os.Open(n.path("all.gh"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r := receipts.Verify(f, receipts.Options{Root: root, Checkpoint: note}); r.Exit != receipts.ExitComplete || r.Completeness.State != receipts.EndCurrent {
		t.Errorf("exit %d %s, %+v", r.Exit, r.Class, r.Findings)
	}
}
