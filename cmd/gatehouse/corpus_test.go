package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/cmd/gatehouse/demo"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestBundleTest runs `gatehouse bundle test` over the corpus of every built
// kind and over the demo's two derived deliveries, under the sample bundle with
// their repository's id.
func TestBundleTest(t *testing.T) {
	dir := tempDir(t)
	sample, err := os.ReadFile(filepath.Join("..", "..", "examples", "bundles", "fix-failing-ci.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "sample.yaml"), strings.ReplaceAll(string(sample), "1296269", demo.RepositoryID))
	write(t, filepath.Join(dir, "gatehouse.yaml"), "repositories: [{id: \""+demo.RepositoryID+"\", name: "+demo.Repository+"}, {id: \"2\", name: acme/docs}]\n")
	var payloads []string
	for name, derive := range map[string]func(int64) ([]byte, error){"failure": demo.Failure, "fork": demo.Fork} {
		b, err := derive(1)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "workflow_run__derived_"+name+".json")
		write(t, path, string(b))
		payloads = append(payloads, path)
	}
	for _, kind := range []string{"workflow_run", "issue_comment", "ping"} {
		found, err := filepath.Glob(filepath.Join("..", "..", "ingest", "testdata", "corpus", "github", kind+"__*.json"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no corpus of %s: %v", kind, err)
		}
		payloads = append(payloads, found...)
	}
	var out, errs bytes.Buffer
	args := append([]string{"-c", filepath.Join(dir, "gatehouse.yaml"), "bundle", "test", "-b", filepath.Join(dir, "sample.yaml")}, payloads...)
	if code := Main(context.Background(), args, nil, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	head, body := lines[0], lines[1:]
	slices.Sort(body)
	got := head + "\n" + strings.Join(body, "\n") + "\n"
	golden := filepath.Join("testdata", "bundle-test.golden")
	if *update {
		write(t, golden, got)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("bundle test (-want +got):\n%s", diff)
	}
	for _, line := range body {
		f := strings.Fields(line)
		switch f[0] {
		case "workflow_run__derived_failure.json":
			if f[2] != "fix-failing-ci" || f[3] != "member" {
				t.Errorf("the failure is not admitted: %s", line)
			}
		case "workflow_run__derived_fork.json":
			if f[2] == "fix-failing-ci" {
				t.Errorf("the fork is admitted: %s", line)
			}
		}
	}
}
