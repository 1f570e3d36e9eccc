package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/config"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
)

// TestConformanceRun runs the verb as root and as an ordinary user: every id of
// the matrix is in its output, and none failed.
func TestConformanceRun(t *testing.T) {
	if testing.Short() {
		t.Skip("short: two runs of the whole matrix")
	}
	for name, uid := range map[string]uint32{"as_it_is": 0, "as_an_ordinary_user": 64322} {
		t.Run(name, func(t *testing.T) {
			if uid != 0 && os.Geteuid() != 0 {
				t.Skip("the run as it is was one of an ordinary user")
			}
			dir := shortDir(t, "gatehouse-conformance-test-")
			run := func(args ...string) ([]byte, error) {
				cmd := hear(t, exec.CommandContext(t.Context(), binary, args...))
				cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
				var stderr strings.Builder
				cmd.Stderr = &stderr
				if uid != 0 {
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
				}
				out, err := cmd.Output()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, stderr.String())
				}
				return out, err
			}
			if err := os.Chown(dir, int(uid), int(uid)); err != nil && uid != 0 {
				t.Fatal(err)
			}
			if _, err := run("init"); err != nil {
				t.Fatal(err)
			}
			out, err := run("conformance", "run", "--provider", "local", "-o", "json")
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var found conformance
			if err := json.Unmarshal(out, &found); err != nil {
				t.Fatal(err)
			}
			if found.Provider != "local" || found.Failed != 0 || found.Passed+found.Absent != len(found.Cases) || found.Report == "" {
				t.Errorf("%s: %d passed, %d absent, %d failed of %d; report %q", found.Provider, found.Passed, found.Absent, found.Failed, len(found.Cases), found.Report)
			}
			if root := os.Geteuid() == 0 && uid == 0; (found.User == "root") != root {
				t.Errorf("the report is about a node of user %s", found.User)
			}
			for n := 1; n <= 50; n++ {
				c := found.Cases[n-1]
				t.Run(fmt.Sprintf("SB-%02d", n), func(t *testing.T) {
					if c.ID != fmt.Sprintf("SB-%02d", n) || c.Evidence == "" || (c.Outcome != sandbox.Passed && c.Outcome != sandbox.Absent) {
						t.Errorf("%+v", c)
					}
				})
			}
			if out, _ := run("doctor"); !strings.Contains(string(out), "absent, until ") {
				t.Errorf("doctor does not find the report:\n%s", out)
			}
			if out, err := run("conformance", "show"); err != nil || !strings.Contains(string(out), "signed until") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestConformanceReport: a report is good for its time, its build and its node,
// and not beyond.
func TestConformanceReport(t *testing.T) {
	dir := tempDir(t)
	if _, err := initNode(dir, "conformance.example/node-1"); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(filepath.Join(dir, "gatehouse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := notary.LoadKeys(stateOf(cfg).keys)
	if err != nil {
		t.Fatal(err)
	}
	p := versioned{version: "1"}
	version, err := providerVersion(p)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	good := conformance{Provider: "local", Version: version, At: now, Expires: now.Add(conformanceFor), Passed: 50}
	load := func() (*conformance, error) { return loadConformance(stateOf(cfg), keys.Keyset(), "local") }
	if _, err := load(); problem.CodeOf(err) != problem.ProviderCapabilityMissing {
		t.Errorf("before there is one: %v", err)
	}
	cases := map[string]struct {
		change func(*conformance)
		as     versioned
		at     time.Time
		why    string // "" = it holds
	}{
		"fresh":          {as: p, at: now},
		"last_moment":    {as: p, at: now.Add(conformanceFor - time.Second)},
		"expired":        {as: p, at: now.Add(conformanceFor), why: "ended at"},
		"another_build":  {as: versioned{version: "2"}, at: now, why: "another build"},
		"a_failed_case":  {change: func(r *conformance) { r.Failed = 1 }, as: p, at: now, why: "1 failed"},
		"another_expiry": {change: func(r *conformance) { r.Expires = now }, as: p, at: now, why: "ended at"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := good
			if c.change != nil {
				c.change(&r)
			}
			if err := r.keep(cfg); err != nil {
				t.Fatal(err)
			}
			found, err := load()
			if err != nil {
				t.Fatal(err)
			}
			err = found.holds(c.as, c.at)
			if (err == nil) != (c.why == "") || (err != nil && !strings.Contains(err.Error(), c.why)) {
				t.Errorf("got %v, want %q", err, c.why)
			}
			has := inventory{cfg: cfg, state: stateOf(cfg), keyset: keys.Keyset, providers: map[string]sandbox.Provider{"local": c.as}}
			if i := has.judged("local", c.at); i.OK != (c.why == "") || !strings.Contains(i.Text, "provider local") || i.Link != "/ui/providers" {
				t.Errorf("the checklist says %+v", i)
			}
			if i := has.judged("remote", c.at); i.OK {
				t.Errorf("the checklist says of another provider %+v", i)
			}
		})
	}
	t.Run("forged", func(t *testing.T) {
		other, err := notary.NewKeys("other.example/node-1")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(good)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := other.Attest(conformanceType, raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(conformanceFile(stateOf(cfg), "local"), signed, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(); problem.CodeOf(err) != problem.ProviderCapabilityMissing || !errors.As(err, new(*problem.Error)) {
			t.Errorf("a report that another node signed: %v", err)
		}
	})
}

// versioned is a provider of which only the version is asked.
type versioned struct {
	sandbox.Provider
	version string
}

func (v versioned) Name() string             { return "local" }
func (v versioned) Version() (string, error) { return v.version, nil }
