package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/config"
	"gatehouse/internal/notary"
)

// Levels of a finding.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
)

// finding is one line of doctor.
type finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// probeLimit bounds the live probe.
const probeLimit = 30 * time.Second

func (c *cli) doctorCommand() *cobra.Command {
	var service bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what this machine lacks, each with the line that fixes it",
		Long: "Check configuration, keys, kernel, clock, disk, ports, the record, the streams and the enforcers, and start a sandbox whose\n" +
			"probe tries to get out. With --as-service also the installed unit, and the probe with the unit's capabilities and no_new_privs.\n" +
			"A stopped node's record is read whole, which takes its time. Exit 3 when something fails, 0 with warnings.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := examine(cmd.Context(), c.file(cmd), service)
			err := rows(c, found, []string{"check", "", "detail"}, func(f finding) []string { return []string{f.Check, f.Level, f.Detail} })
			if err != nil {
				return err
			}
			failed := false
			for _, f := range found {
				failed = failed || f.Level == levelFail
				if f.Fix != "" && c.output == "table" {
					fmt.Fprintf(c.out, "%s: fix: %s\n", f.Check, f.Fix)
				}
			}
			if failed {
				return &exitError{code: exitNegative}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&service, "as-service", false, "check as the systemd unit would run; as root")
	return cmd
}

// examine runs every check. One that cannot run is a failure of its own, never
// left out.
func examine(ctx context.Context, path string, service bool) []finding {
	var found []finding
	add := func(check, level, detail, fix string) { found = append(found, finding{check, level, detail, fix}) }
	bad := func(check string, err error) { add(check, levelFail, err.Error(), remedy(err)) }

	cfg, err := loadConfig(path)
	if err != nil {
		bad("config", err)
		fallback := config.Default()
		cfg = &fallback
	} else {
		add("config", levelOK, fmt.Sprintf("%d endpoints, %d connections", len(cfg.Endpoints), len(cfg.Connections)), "")
	}
	s := stateOf(cfg)
	switch keys, err := notary.LoadKeys(s.keys); {
	case errors.Is(err, fs.ErrNotExist):
		add("keys", levelFail, "no keys in the state folder", "run gatehouse init")
	case err != nil:
		bad("keys", err)
	case !keys.RootOffline():
		add("keys", levelWarn, "root "+keys.RootFingerprint()+": the root key is on this machine", "move "+s.keys+"/root.key to a place that the node cannot read")
	default:
		add("keys", levelOK, "root "+keys.RootFingerprint()+", kept elsewhere", "")
	}
	if os.Geteuid() == 0 {
		add("user", levelOK, fmt.Sprintf("root: each session gets one bare uid of %d-%d", cfg.Sandbox.UIDs.First, cfg.Sandbox.UIDs.Last), "")
	} else {
		add("user", levelWarn, "an ordinary user: all sessions share its uid", "run as root, or as a service, for one uid a session")
	}
	if err == nil {
		if up, err := newUpstream(cfg, nil, nil, false); err != nil {
			bad("apps", err)
		} else {
			found = append(found, examineApps(ctx, cfg, up)...)
			_ = up.Close() // it has no state that could be lost
		}
	}
	found = append(found, examineMachine(cfg)...)
	found = append(found, examineNode(ctx, cfg)...)
	if service {
		found = append(found, checkUnit(serviceUnit)...)
		found = append(found, likeService())
	}
	found = append(found, probeHere(ctx, cfg)...)
	return append(found, conformanceHere(cfg)...)
}

// conformanceHere says whether the provider's signed report still holds. Every
// session proves its sandbox by itself; the report shows what a probe cannot.
func conformanceHere(cfg *config.Config) []finding {
	s := stateOf(cfg)
	keys, err := notary.LoadKeys(s.keys)
	if err != nil {
		return nil // a finding of its own, above
	}
	report, err := loadConformance(s, keys.Keyset(), "local")
	if err == nil {
		var provider sandbox.Provider
		var cleanup func()
		if provider, cleanup, err = conformanceProvider(cfg, "local"); err == nil {
			err = report.holds(provider, time.Now())
			cleanup()
		}
	}
	if err != nil {
		return []finding{{"conformance", levelWarn, err.Error(), remedy(err)}}
	}
	return []finding{{"conformance", levelOK, fmt.Sprintf("local: %d cases passed, %d absent, until %s", report.Passed, report.Absent, stamp(report.Expires)), ""}}
}

// probeHere starts a real sandbox and has it try to get out.
func probeHere(ctx context.Context, cfg *config.Config) []finding {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	fail := func(check string, err error) []finding {
		return []finding{{check, levelFail, err.Error(), remedy(err)}}
	}
	dir, err := os.MkdirTemp("", "gatehouse-doctor-")
	if err != nil {
		return fail("sandbox", err)
	}
	defer os.RemoveAll(dir)
	provider, err := newLocal(cfg, state{dir: dir, run: dir + "/run"}, nil)
	if err != nil {
		return fail("sandbox", err)
	}
	var found []finding
	if provider.Capabilities()[sandbox.ResourceLimited] {
		found = append(found, finding{"limits", levelOK, "a delegated cgroup limits memory, processes and processor time", ""})
	} else if cfg.Sandbox.Unlimited == "accepted" {
		found = append(found, finding{"limits", levelWarn, "no delegated cgroup; sandbox.unlimited is accepted", "run as a service with Delegate=yes"})
	} else {
		found = append(found, finding{"limits", levelWarn, "no delegated cgroup: hard mode is refused", "run as a service with Delegate=yes, or set sandbox.unlimited: accepted"})
	}
	box, err := provider.Start(ctx, sandbox.Spec{Session: "doctor", Argv: []string{"true"}, Timeout: probeLimit, Unlimited: true}, nil)
	if err != nil {
		return append(found, fail("sandbox", err)...)
	}
	defer box.Close()
	report, err := box.Probe(ctx)
	if err != nil {
		return append(found, fail("probe", err)...)
	}
	passed, absent := 0, 0
	for _, k := range report.Cases {
		switch k.Outcome {
		case sandbox.Passed:
			passed++
		case sandbox.Absent:
			absent++
		default:
			found = append(found, finding{"probe " + k.ID, levelFail, k.Evidence, "no session starts here in hard mode or credential_free until this is closed"})
		}
	}
	return append(found, finding{"probe", levelOK, fmt.Sprintf("%d cases passed, %d absent on this kernel", passed, absent), ""})
}
