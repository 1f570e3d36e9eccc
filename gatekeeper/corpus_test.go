package gatekeeper

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/ingest"
	"gatehouse/ingest/github"
	"gatehouse/internal/event"
	"gatehouse/internal/secret"
	"gatehouse/wasm/policies"
)

const corpus = "../ingest/testdata/corpus/github"

// payload builds the event of a corpus file by the code that takes deliveries.
// change edits the body first.
func payload(t testing.TB, file string, change ...func(map[string]any)) *event.Event {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(corpus, file))
	if err != nil {
		t.Fatal(err)
	}
	if len(change) > 0 {
		var body map[string]any
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(&body); err != nil {
			t.Fatal(err)
		}
		for _, fn := range change {
			fn(body)
		}
		if raw, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	src, err := github.New(github.Options{
		Secrets:  []secret.Value{secret.FromString("a secret of the test, long enough")},
		Commands: github.Commands{Mention: "@gatehouse", Words: []string{"fix"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	kind, _, _ := strings.Cut(file, "__")
	ep := ingest.Endpoint{Name: "main", Source: src}
	e, err := ep.Build(ingest.Delivery{ID: "72d3162e-cc78-11e3-81ab-4c9367dc0958", Kind: kind, JSON: raw, Auth: event.Auth{Scheme: "github-hmac-sha256", Key: "k1", Signed: []string{"body"}}}, raw, noon)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func set(path string, v any) func(map[string]any) {
	return func(body map[string]any) {
		keys := strings.Split(path, ".")
		at := body
		for _, k := range keys[:len(keys)-1] {
			at = at[k].(map[string]any)
		}
		at[keys[len(keys)-1]] = v
	}
}

// The floor of every corpus payload, with the pointer that set it, under a
// bundle that delivers its kind's default list. The file is the table.
func TestFloorTable(t *testing.T) {
	files, err := filepath.Glob(corpus + "/*__*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	var b strings.Builder
	for _, f := range files {
		e := payload(t, filepath.Base(f))
		if !event.Startable(e.Kind) {
			fmt.Fprintf(&b, "%s: %s, nothing starts\n", filepath.Base(f), e.Kind)
			continue
		}
		any1, err := bundle.Parse([]byte("apiVersion: gatehouse/v1\nkind: Bundle\nname: any\naccepts: derived\nmode: hard\n" +
			"match: [{source: github, kinds: ['" + e.Kind + ".*', " + e.Kind + "]}]\nsession: {agent: codex, task: go}\n"))
		if err != nil {
			t.Fatal(err)
		}
		c := bundle.Choose([]*bundle.Bundle{any1}, e, nil, noon)
		if c.Code != "" {
			t.Errorf("%s: %s %s", f, c.Code, c.Why)
		}
		fmt.Fprintf(&b, "%s: %d delivered, floor %s %s, entity %s\n", filepath.Base(f), len(c.Bundle.Deliver(e)), c.Floor.Origin, c.Floor.Pointer, bundle.EntityKey(e))
	}
	if diff := cmp.Diff(string(writeGolden(t, "testdata/floors.txt", []byte(b.String()))), b.String()); diff != "" {
		t.Errorf("floors differ, run the test with -update and read them (-want +got):\n%s", diff)
	}
}

// The sample bundle against the real payload of a failed run: the repository's
// own branch is admitted, a fork's is not, and neither is a branch that a
// session pushed.
func TestSampleBundleOnRealPayload(t *testing.T) {
	src, err := os.ReadFile("../examples/bundles/fix-failing-ci.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sample, err := bundle.Parse(bytes.ReplaceAll(src, []byte("1296269"), []byte("300029405")))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"300029405": "acme/shop", "7": "acme/docs"}
	failure := set("workflow_run.conclusion", "failure")
	cases := map[string]struct {
		change []func(map[string]any)
		code   string
	}{
		"failure":      {[]func(map[string]any){failure}, ""},
		"success":      {nil, "no_match"},
		"fork":         {[]func(map[string]any){failure, set("workflow_run.head_repository.id", json.Number("999"))}, "no_match"},
		"fork_deleted": {[]func(map[string]any){failure, set("workflow_run.head_repository", nil)}, "no_match"},
		"other_repo":   {[]func(map[string]any){failure, set("repository.id", json.Number("5"))}, "no_match"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := payload(t, "workflow_run__completed.json", c.change...)
			got := bundle.Choose([]*bundle.Bundle{sample}, e, names, noon)
			if string(got.Code) != c.code {
				t.Fatalf("code %q: %s", got.Code, got.Why)
			}
			if c.code != "" {
				return
			}
			if got.Floor.Origin != event.Member || !strings.HasPrefix(got.Subject.Entity, "wf-2823525-") || got.Key != "300029405" ||
				!strings.Contains(got.Task, "acme/shop, run 289782451") {
				t.Errorf("choice %+v", got)
			}
		})
	}
}

// Default lists name text that their kind has.
func TestDefaultDeliverIsInTheVocabulary(t *testing.T) {
	for _, kind := range []string{"workflow_run", "issues", "issue_comment", "pull_request", "pull_request_review", "pull_request_review_comment", "check_run"} {
		list := bundle.DefaultDeliver("github", kind)
		_, _, passages, ok := github.Vocabulary(kind)
		if !ok || len(list) == 0 {
			t.Errorf("%s: %v, %v", kind, list, ok)
		}
		for _, p := range list {
			if !slices.Contains(passages, p) {
				t.Errorf("%s: %s is no passage", kind, p)
			}
		}
		if !slices.IsSorted(list) {
			t.Errorf("%s: not sorted", kind)
		}
	}
}

// What the bundle compiles, every built-in enforcer understands whole: they
// refuse a key or a form that they do not know.
func TestEnforcersReadCompiledPolicies(t *testing.T) {
	sample, err := os.ReadFile("../examples/bundles/fix-failing-ci.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sets := setOf(t, "apiVersion: gatehouse/v1\nkind: EgressSet\nname: npm\nhosts: [registry.example.com]\nencoded_slash: true\n")
	all := fixCI + `egress:
  - {host: "**.a.test", ports: [443, 8443], schemes: [https], methods: [GET, POST], paths: [/v1/**, /x], addresses: [10.0.0.0/8], names: 3, up: 2MiB, down: 1KiB, idle: 5s, upgrade: websocket, encoded_slash: true}
  - {host: 93.184.216.34}
  - {host: b.test, connection: c, env: TOKEN, uses: 2}
  - {tcp: db.test, ports: [5432]}
  - {host: pinned.test, tls: passthrough}
git: {repository: session, push: {refs: ["refs/heads/gatehouse/{entity}/*", "refs/heads/x/**"], force: true, delete: true, deny_paths: ["**", ".github/**", a]}}
models: [{connection: m, allow: [x, "y*"], max_output_tokens: 1}]
spend: {limit: 0.000000001 USD}
`
	subject := bundle.Subject{Repository: "1296269", Name: "acme/shop", Siblings: map[string]string{"acme/docs": "7"}, Entity: "pr-12"}
	for name, src := range map[string]string{"sample": string(sample), "minimal": fixCI, "all": all} {
		for _, enforcer := range []string{"egress", "git", "spend"} {
			t.Run(name+"/"+enforcer, func(t *testing.T) {
				b, err := bundle.Parse([]byte(src))
				if err != nil {
					t.Fatal(err)
				}
				policy, err := b.Policy(sets, subject)
				if err != nil {
					t.Fatal(err)
				}
				message := fmt.Appendf(nil, `{"abi":1,"bundle":%s,"params":{"enforcer":%q}}`, policy, enforcer)
				if _, status := policies.Configure(message); status != policies.OK {
					t.Errorf("status %d for %s", status, policy)
				}
			})
		}
	}
}

func setOf(t *testing.T, src string) bundle.SetResolver {
	s, err := bundle.ParseSet([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return oneSet{s}
}

type oneSet struct{ set *bundle.Set }

func (o oneSet) Set(string) (*bundle.Set, error) { return o.set, nil }
