package bundle_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
)

var update = flag.Bool("update", false, "write the golden and generated files")

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs, run the test with -update (-want +got):\n%s", file, diff)
	}
}

func TestPolicyGolden(t *testing.T) {
	for name, src := range map[string]string{"sample": string(sample(t)), "full": full, "minimal": minimal} {
		t.Run(name, func(t *testing.T) {
			raw, err := parse(t, src).Policy(sets, subject)
			if err != nil {
				t.Fatal(err)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, raw, "", "  "); err != nil {
				t.Fatal(err)
			}
			golden(t, "testdata/policy/"+name+".json", append(pretty.Bytes(), '\n'))
		})
	}
}

func TestPolicy(t *testing.T) {
	push := minimal + "git: {repository: session, push: {refs: ['refs/heads/gatehouse/{entity}/*'%s]}}\n"
	compile := func(t *testing.T, src string, s bundle.Subject) map[string]any {
		raw, err := parse(t, src).Policy(sets, s)
		if err != nil {
			t.Fatal(err)
		}
		var p map[string]any
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Run("unknown_set", func(t *testing.T) {
		if _, err := parse(t, minimal+"egress: [{set: pypi}]\n").Policy(sets, subject); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no_entity_no_branch", func(t *testing.T) {
		s := subject
		s.Entity = ""
		p := compile(t, fmt.Sprintf(push, ""), s)
		if _, ok := p["git"].(map[string]any)["push"]; ok {
			t.Error("a session about nothing may push")
		}
		p = compile(t, fmt.Sprintf(push, ", refs/heads/fixed"), s)
		refs := p["git"].(map[string]any)["push"].(map[string]any)["refs"].([]any)
		if len(refs) != 1 || refs[0] != "refs/heads/fixed" {
			t.Errorf("refs %v", refs)
		}
	})
	t.Run("mode_is_not_in_it", func(t *testing.T) {
		a, errA := parse(t, minimal).Policy(sets, subject)
		b, errB := parse(t, minimal+"mode: hard\n").Policy(sets, subject)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("policies differ: %s %s", a, b)
		}
	})
	t.Run("connections_open_their_hosts", func(t *testing.T) {
		s := subject
		s.Upstreams = []bundle.Upstream{
			{Connection: "github-main", Kind: "scm", Hosts: []string{"github.test", "api.github.test"}},
			{Connection: "anthropic-main", Kind: "model", Hosts: []string{"api.model.test"}},
			{Connection: "other", Kind: "model", Hosts: []string{"unlisted.test"}},
			{Connection: "traces", Kind: "telemetry", Hosts: []string{"traces.test"}},
		}
		got := func(src string) []string {
			var out []string
			for _, e := range compile(t, minimal+src, s)["egress"].([]any) {
				m := e.(map[string]any)
				if len(m["methods"].([]any))+len(m["paths"].([]any)) > 0 || m["connection"] != "" || len(m["ports"].([]any)) != 1 {
					t.Errorf("the entry opens more than a tunnel: %v", m)
				}
				out = append(out, fmt.Sprint(m["id"], " ", m["host"]))
			}
			return out
		}
		want := []string{"models[0] api.model.test", "git.github-main.hosts[0] github.test", "git.github-main.hosts[1] api.github.test", "telemetry[0] traces.test"}
		if diff := cmp.Diff(want, got("git: {repository: session}\nmodels: [{connection: anthropic-main, allow: [a], max_output_tokens: 1}]\ntelemetry: [traces]\n")); diff != "" {
			t.Error(diff)
		}
		if out := got(""); len(out) != 0 {
			t.Errorf("a bundle that grants none of them opens %v", out)
		}
	})
	t.Run("set_digests", func(t *testing.T) {
		got, err := parse(t, minimal+"egress: [{set: npm}, {host: a.test}]\n").SetDigests(sets)
		if err != nil || len(got) != 1 || got["npm"] == [32]byte{} {
			t.Errorf("digests %v, %v", got, err)
		}
	})
}
