package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"

	"gatehouse/internal/outside"
)

// World is the fake outside of the demo: what each attempt would reach.
type World struct {
	*outside.World
	sites []*outside.Site
}

// NewWorld starts the fakes.
func NewWorld() (*World, error) {
	base, err := outside.New()
	if err != nil {
		return nil, err
	}
	w := &World{World: base}
	if err := w.open(); err != nil {
		base.Close()
		return nil, err
	}
	return w, nil
}

func (w *World) open() error {
	ok := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "hello from outside\n") })
	listed, err := w.HTTPS(ListedHost, ListedAddress, ok)
	if err != nil {
		return err
	}
	unlisted, err := w.HTTPS(UnlistedHost, UnlistedAddress, ok)
	if err != nil {
		return err
	}
	sink, err := w.HTTPS(SinkHost, SinkAddress, ok)
	if err != nil {
		return err
	}
	var more []*outside.Site
	for host, at := range map[string]netip.Addr{CollectHost: CollectAddress, AwayHost: AwayAddress, LookHost: LookAddress, ModelHost: ModelAddress, GitHost: GitAddress, GitAPI: GitAPIAddress} {
		s, err := w.HTTPS(host, at, ok)
		if err != nil {
			return err
		}
		more = append(more, s)
	}
	// What the hop gets is permitted, so that it is not counted.
	if _, err := w.HTTPS(HopHost, HopAddress, http.RedirectHandler("https://"+AwayHost+"/stolen", http.StatusFound)); err != nil {
		return err
	}
	raw, err := w.Sink(RawAddress, 443)
	if err != nil {
		return err
	}
	raw6, err := w.Sink(RawAddress6, 443)
	if err != nil {
		return err
	}
	// The metadata address has no fake: dev substitutions refuse a key that is not
	// public, so the receipts alone speak for that attempt.
	w.sites = append(more, listed, unlisted, sink, raw, raw6)
	return nil
}

// Bytes returns what has arrived at all sites together.
func (w *World) Bytes() int64 {
	var n int64
	for _, s := range w.sites {
		n += s.Bytes()
	}
	return n
}

// Files returns the demo node's configuration and its two bundles, which differ
// in mode alone. weaken breaks one rule on purpose, for the test that the demo
// notices: "egress" lists the unlisted host.
func Files(w *World, weaken string) (map[string][]byte, error) {
	upstreams, err := json.Marshal(w.Upstreams())
	if err != nil {
		return nil, err
	}
	extra := ""
	if weaken == "egress" {
		extra = fmt.Sprintf("\n  - {host: %s}", UnlistedHost)
	}
	files := map[string][]byte{
		"ca.pem": w.CA(),
		"gatehouse.yaml": fmt.Appendf(nil, `listen: {hooks: "127.0.0.1:0", operator: "127.0.0.1:0", private: "127.0.0.1:0"}
endpoints:
  - {name: shadow, source: github, secrets: ["${env:GATEHOUSE_DEMO_SECRET}"]}
  - {name: hard, source: github, secrets: ["${env:GATEHOUSE_DEMO_SECRET}"]}
repositories: [{id: %q, name: %s}]
spend: {per_day: 10.00 USD}
connections:
  - {name: traces, kind: telemetry, provider: otlp, host: %s, scheme: bearer, credential: "${env:GATEHOUSE_DEMO_SECRET}"}
  - {name: claude, kind: model, provider: anthropic, credential: "${env:GATEHOUSE_DEMO_SECRET}"}
  - {name: forge, kind: scm, provider: github, host: %s, api: "https://%s/", credential: "${env:GATEHOUSE_DEMO_SECRET}"}
bundles: [bundles/*.yaml]
sandbox: {unlimited: accepted}
dev: {upstreams: %s, dns: %q, ca: ca.pem}
`, RepositoryID, Repository, SinkHost, GitHost, GitAPI, upstreams, w.DNS.Addr()),
	}
	for _, mode := range []string{"shadow", "hard"} {
		files["bundles/"+mode+".yaml"] = fmt.Appendf(nil, `apiVersion: gatehouse/v1
kind: Bundle
name: fix-failing-ci-%[1]s
mode: %[1]s
accepts: member
match:
  - {source: github, endpoint: %[1]s, kinds: [workflow_run.completed], where: {conclusion: failure, repository.id: [%[2]q], fork: false}}
session:
  agent: {command: {argv: [/bin/sh, -c, "cp /gatehouse/agent $HOME/agent && chmod +x $HOME/agent && exec $HOME/agent %[3]s"]}}
  task: "CI failed on {{ repository.name }}, run {{ facts.run_id }}."
  timeout: 2m
credentials: credential_free
telemetry: [traces]
models: [{connection: claude, allow: ["claude-sonnet-*"], max_output_tokens: 1024}]
spend: {limit: 1.00 USD, per_day: 5.00 USD}
git: {repository: session, push: {refs: ["refs/heads/gatehouse/*"]}}
operations: [scm.comment]
egress:
  - {host: %[4]s, methods: [GET], paths: ["/v1/**"]}
  - {host: %[6]s, methods: [GET]}%[5]s
`, mode, RepositoryID, AgentVerb, ListedHost, extra, HopHost)
	}
	return files, nil
}
