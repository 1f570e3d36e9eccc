package gatekeeper

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// TestCredentialPolicy: M-16. Every way in which a connection's credential could
// reach a session, under every policy: what is refused, and what session.open
// says of it.
func TestCredentialPolicy(t *testing.T) {
	const connections = `
egress:
  - {host: packages.example.com, connection: packages, env: TOKEN}
  - {host: api.example.com, connection: api}
models: [{connection: llm, allow: [m], max_output_tokens: 10}]
telemetry: [traces]
git: {repository: session}
spend: {limit: 1.00 USD}
`
	all := map[string]string{"api": "mediated", "llm": "mediated", "packages": "placeholder", "scm": "mediated", "traces": "mediated"}
	with := func(change map[string]string) map[string]string {
		out := map[string]string{}
		for k, v := range all {
			out[k] = v
		}
		for k, v := range change {
			out[k] = v
		}
		return out
	}
	raw := map[string]string{}
	for k := range all {
		raw[k] = "raw"
	}
	const compatibility = "{compatibility: {reason: an old tool, expires: 2027-01-31}}"
	cases := map[string]struct {
		policy  string
		missing []string // connections without a mediator
		unclean bool     // the provider does not declare environment_clean
		code    problem.Code
		names   string
		want    map[string]string
	}{
		"credential_free/all_mediated":       {policy: "credential_free", want: all},
		"required/all_mediated":              {policy: "required", want: all},
		"compatibility/all_mediated":         {policy: compatibility, want: all},
		"credential_free/model_absent":       {policy: "credential_free", missing: []string{"llm"}, code: problem.ConnectionUnmediated, names: "llm", want: with(map[string]string{"llm": "absent"})},
		"required/model_absent":              {policy: "required", missing: []string{"llm"}, code: problem.ConnectionUnmediated, names: "llm", want: with(map[string]string{"llm": "absent"})},
		"compatibility/model_absent":         {policy: compatibility, missing: []string{"llm"}, want: with(map[string]string{"llm": "absent"})},
		"credential_free/scm_absent":         {policy: "credential_free", missing: []string{"scm"}, code: problem.ConnectionUnmediated, names: "scm", want: with(map[string]string{"scm": "absent"})},
		"required/registry_absent":           {policy: "required", missing: []string{"packages"}, code: problem.ConnectionUnmediated, names: "packages", want: with(map[string]string{"packages": "absent"})},
		"required/telemetry_absent":          {policy: "required", missing: []string{"traces"}, code: problem.ConnectionUnmediated, names: "traces", want: with(map[string]string{"traces": "absent"})},
		"credential_free/unclean_provider":   {policy: "credential_free", unclean: true, code: problem.ConnectionUnmediated, names: "raw", want: raw},
		"required/unclean_provider":          {policy: "required", unclean: true, code: problem.ConnectionUnmediated, names: "raw", want: raw},
		"compatibility/unclean_provider":     {policy: compatibility, unclean: true, want: raw},
		"credential_free/several_unmediated": {policy: "credential_free", missing: []string{"api", "traces"}, code: problem.ConnectionUnmediated, names: "api", want: with(map[string]string{"api": "absent", "traces": "absent"})},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			told := map[string]string{}
			w := newWorld(t, []string{fixCI + connections + "credentials: " + c.policy + "\n"}, func(w *world) {
				w.opts.Upstreams = []bundle.Upstream{{Connection: "scm", Kind: "scm", Hosts: []string{"github.com"}}}
				w.opts.Mediated = func(name string) bool { return !slices.Contains(c.missing, name) }
				w.opts.Delivered = func(d Delivery) {
					mu.Lock()
					defer mu.Unlock()
					told[d.Connection] = d.Mode
				}
				if c.unclean {
					w.room.declared[sandbox.EnvironmentClean] = false
				}
			})
			id := w.take(failedRun(strings.ReplaceAll(name, "/", "-")))
			open := w.log.receipts(id)[0].Open
			got := map[string]string{}
			for k, v := range open.Facts {
				if connection, ok := strings.CutPrefix(k, "credential."); ok {
					got[connection] = v
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("evidence (-want +got):\n%s", diff)
			}
			if problem.Code(open.Code) != c.code {
				t.Errorf("code %q, want %q", open.Code, c.code)
			}
			err := w.Credentials()
			if (err != nil) != (c.code != "") || (err != nil && !strings.Contains(err.Error(), c.names)) {
				t.Errorf("readiness: %v", err)
			}
			if c.code != "" {
				w.wantStory(id, "open refused connection_unmediated, close refused")
				if started, _ := w.room.count(); started != 0 || len(told) != 0 {
					t.Errorf("%d sandboxes started, %v told", started, told)
				}
				return
			}
			w.ended(id)
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(c.want, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}
