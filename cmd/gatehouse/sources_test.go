package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

// Every source that configuration admits can be built from it, and a mistake
// that only the source sees is told with the endpoint's name.
func TestEverySourceIsBuilt(t *testing.T) {
	t.Setenv("HOOK_SECRET", "a secret of the test, long enough")
	t.Setenv("HOOK_WHSEC", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	load := func(endpoints string) *config.Config {
		t.Helper()
		file := filepath.Join(tempDir(t), "gatehouse.yaml")
		if err := os.WriteFile(file, []byte("endpoints:\n"+endpoints), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := load(`
  - {name: main, source: github, secrets: ["${env:HOOK_SECRET}"], commands: {mention: "@gatehouse", words: [fix]}, trust: {bots: {"1": member}}}
  - {name: errors, source: sentry, secrets: ["${env:HOOK_SECRET}"]}
  - {name: tasks, source: linear, secrets: ["${env:HOOK_SECRET}"], trust: {services: {figma: contributor}}}
  - {name: partner, source: standard-webhooks, secrets: ["${env:HOOK_WHSEC}"]}
  - {name: shop, source: webhook, secrets: ["${env:HOOK_SECRET}"], hmac: {header: X-Sig, encoding: base64, signed: "{ts}.{body}", time: X-Time}, kind: {path: /type, values: {order.paid: order_paid}}, declare: [{name: order.id, path: /order, form: uuid}], entity: order.id}
  - {name: legacy, source: webhook, secrets: ["${env:HOOK_SECRET}"], token: {header: X-Token}, id: {body: true}}
  - {name: nightly, source: cron, schedule: "0 3 * * *", zone: Europe/Berlin, missed: last}
`)
	endpoints, err := endpointsOf(cfg)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range endpoints {
		got[e.Name] = e.Source.Traits().Name
	}
	want := map[string]string{"main": "github", "errors": "sentry", "tasks": "linear", "partner": "standard-webhooks", "shop": "webhook", "legacy": "webhook"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
	for _, kind := range []struct{ source, kind string }{{"github", "workflow_run"}, {"sentry", "issue"}, {"linear", "issue"}} {
		if v, ok := vocabulary(kind.source, kind.kind); !ok || len(v.Facts) == 0 || len(v.Passages) == 0 {
			t.Errorf("%s %s has no vocabulary", kind.source, kind.kind)
		}
	}
	_, err = endpointsOf(load(`  - {name: shop, source: webhook, secrets: ["${env:HOOK_SECRET}"], hmac: {header: X-Sig, signed: "{ts}"}}`))
	if problem.CodeOf(err) != problem.ConfigInvalid || problem.HintOf(err) == "" {
		t.Errorf("a signature that does not cover the body: %v", err)
	}
}
