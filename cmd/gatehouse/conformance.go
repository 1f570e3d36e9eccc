package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/sandboxtest"
	"gatehouse/internal/config"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// conformanceType is the DSSE payload type of a signed report.
const conformanceType = "application/vnd.gatehouse.conformance+json"

// conformanceFor is how long a report is good for, unless the build it speaks
// of changes before.
const conformanceFor = 30 * 24 * time.Hour

// conformanceLimit bounds a run; on an idle machine it takes about ten seconds.
const conformanceLimit = 15 * time.Minute

// conformance is what was found about one provider on this machine.
type conformance struct {
	Provider string            `json:"provider"`
	Version  string            `json:"version"` // digest of this build and of what the provider runs
	User     string            `json:"user"`    // root | ordinary
	At       time.Time         `json:"at"`
	Expires  time.Time         `json:"expires"`
	Cases    []conformanceCase `json:"cases"`
	Passed   int               `json:"passed"`
	Failed   int               `json:"failed"`
	Absent   int               `json:"absent"` // fail on this machine without the sandbox too
	Report   string            `json:"report,omitempty"`
}

// conformanceCase is one id of docs/sandbox.md.
type conformanceCase struct {
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	Outcome  string `json:"outcome"` // passed | failed | absent
	Evidence string `json:"evidence"`
	Proves   string `json:"proves,omitempty"`
}

func (c *cli) conformanceCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "conformance", Short: "Hold sandbox providers to their contract", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.conformanceRun(), c.conformanceShow(), c.conformanceAgent())
	return cmd
}

func (c *cli) conformanceRun() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "run [--provider NAME]", Short: "Run the whole negative matrix against a provider and sign what was found", Args: cobra.NoArgs,
		Long: "Run the whole negative matrix (docs/sandbox.md) against a provider: real sandboxes, real attempts, a control for each.\n" +
			"The report is signed with the node's seal key, kept in the state folder, and good for 30 days or until this build or what\n" +
			"the provider runs changes. Without keys it is printed and kept nowhere. Exit 3 when a case failed.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.runConfig(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), conformanceLimit)
			defer cancel()
			found, err := judgeProvider(ctx, cfg, name)
			if err != nil {
				return err
			}
			if err := found.keep(cfg); err != nil {
				return err
			}
			if err := c.printConformance(found); err != nil {
				return err
			}
			if found.Failed > 0 {
				return &exitError{code: exitNegative}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "provider", "local", "provider to judge")
	return cmd
}

func (c *cli) conformanceShow() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "show [--provider NAME]", Short: "Show the signed report of a provider and whether it still holds; exit 3 when not", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.runConfig(cmd)
			if err != nil {
				return err
			}
			keys, err := notary.LoadKeys(stateOf(cfg).keys)
			if err != nil {
				return err
			}
			found, err := loadConformance(stateOf(cfg), keys.Keyset(), name)
			if problem.CodeOf(err) == problem.ProviderCapabilityMissing {
				return &exitError{code: exitNegative, err: err} // none, or none of this node's, holds as little as one that ended
			}
			if err != nil {
				return err
			}
			provider, cleanup, err := conformanceProvider(cfg, name)
			if err != nil {
				return err
			}
			defer cleanup()
			if err := c.printConformance(found); err != nil {
				return err
			}
			if err := found.holds(provider, time.Now()); err != nil {
				fmt.Fprintf(c.err, "gatehouse: %v\n", err)
				return &exitError{code: exitNegative}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "provider", "local", "provider")
	return cmd
}

func (c *cli) printConformance(found *conformance) error {
	if c.output == "json" {
		return c.json(found)
	}
	err := rows(c, found.Cases, []string{"id", "outcome", "what was tried"}, func(k conformanceCase) []string {
		said := k.Name
		if k.Outcome == sandbox.Failed {
			said = k.Evidence
		}
		return []string{k.ID, k.Outcome, said}
	})
	if err != nil || c.output != "table" {
		return err
	}
	fmt.Fprintf(c.out, "\n%s: %d passed, %d absent on this machine, %d failed\n", found.Provider, found.Passed, found.Absent, found.Failed)
	if found.Report == "" {
		fmt.Fprintln(c.out, "not signed: the state folder has no keys (gatehouse init)")
	} else {
		fmt.Fprintf(c.out, "signed until %s: %s\n", stamp(found.Expires), found.Report)
	}
	return nil
}

// conformanceProvider makes a provider that shares nothing with a running node.
func conformanceProvider(cfg *config.Config, name string) (p sandbox.Provider, cleanup func(), err error) {
	switch {
	case name == "remote" && cfg.Providers.Remote != nil:
		return remoteForConformance(cfg)
	case name != "local" && (name != "oci" || cfg.Providers.OCI == nil):
		return nil, nil, usage(fmt.Sprintf("no provider %q is configured that could be judged", name), "name one of providers: in the configuration")
	}
	dir, err := os.MkdirTemp("", "gatehouse-conformance-")
	if err != nil {
		return nil, nil, err
	}
	s := state{dir: dir, run: filepath.Join(dir, "run")}
	if name == "oci" {
		p, err = newOCI(cfg, s, nil)
	} else {
		p, err = newLocal(cfg, s, nil)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	return p, func() { _ = os.RemoveAll(dir) }, nil
}

// judgeProvider runs the suite.
func judgeProvider(ctx context.Context, cfg *config.Config, name string) (*conformance, error) {
	provider, cleanup, err := conformanceProvider(cfg, name)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	dir, err := os.MkdirTemp("", "gatehouse-conformance-doors-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	version, err := providerVersion(provider)
	if err != nil {
		return nil, err
	}
	suite := &sandboxtest.Suite{Provider: provider, Base: sandbox.Spec{Unlimited: true}, Dir: dir}
	suite.Extra = []sandboxtest.Extra{{
		ID: "SB-49", Name: "a placeholder elsewhere and afterwards", Proves: sandbox.DoorOnly,
		Judge: func(ctx context.Context) (string, error) { return judgePlaceholders(ctx, provider, dir) },
	}}
	now := time.Now().UTC().Truncate(time.Second)
	found := &conformance{Provider: provider.Name(), Version: version, User: "ordinary", At: now, Expires: now.Add(conformanceFor)}
	if os.Geteuid() == 0 {
		found.User = "root"
	}
	for _, k := range sandboxtest.Matrix(suite.Run(ctx)) {
		found.Cases = append(found.Cases, conformanceCase{k.ID, k.Name, k.Outcome, k.Evidence, string(k.Proves)})
		switch k.Outcome {
		case sandbox.Passed:
			found.Passed++
		case sandbox.Absent:
			found.Absent++
		default:
			found.Failed++
		}
	}
	return found, ctx.Err()
}

// providerVersion is the digest that a report stands and falls with: this
// program and whatever the provider says it runs.
func providerVersion(p sandbox.Provider) (string, error) {
	h := sha256.New()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(self)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	if v, ok := p.(sandbox.Versioned); ok {
		runs, err := v.Version()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "\n%s\n", runs)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func conformanceFile(s state, provider string) string {
	return filepath.Join(s.dir, "conformance", provider+".json")
}

// keep signs the report and puts it into the state folder, when the node has
// keys. A report with a failed case is kept too: it takes the place of the one
// that passed.
func (r *conformance) keep(cfg *config.Config) error {
	s := stateOf(cfg)
	keys, err := notary.LoadKeys(s.keys)
	if errors.Is(err, fs.ErrNotExist) || problem.CodeOf(err) == problem.KeysMissing {
		return nil
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	signed, err := keys.Attest(conformanceType, raw)
	if err != nil {
		return err
	}
	path := conformanceFile(s, r.Provider)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("couldn't keep the report: %w", err)
	}
	if err := replaceFile(path, append(signed, '\n')); err != nil {
		return err
	}
	r.Report = path
	return nil
}

// loadConformance reads the signed report of a provider.
func loadConformance(s state, ks *receipts.Keyset, provider string) (*conformance, error) {
	path := conformanceFile(s, provider)
	signed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.New(problem.ProviderCapabilityMissing, "provider "+provider+" has no conformance report", "run gatehouse conformance run --provider "+provider)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read the conformance report: %w", err)
	}
	raw, err := notary.Attested(ks, conformanceType, signed)
	if err != nil {
		return nil, problem.Wrap(err, problem.ProviderCapabilityMissing, "the conformance report of provider "+provider+" is not this node's", "run gatehouse conformance run --provider "+provider)
	}
	r := &conformance{}
	if err := json.Unmarshal(raw, r); err != nil || r.Provider != provider {
		return nil, problem.New(problem.ProviderCapabilityMissing, "the conformance report of provider "+provider+" is about another one", "run gatehouse conformance run --provider "+provider)
	}
	r.Report = path
	return r, nil
}

// holds says why a report is not good for a provider any more.
func (r *conformance) holds(p sandbox.Provider, now time.Time) error {
	again := "run gatehouse conformance run --provider " + r.Provider
	lack := func(why string) error {
		return problem.New(problem.ProviderCapabilityMissing, "the conformance report of provider "+r.Provider+" "+why, again)
	}
	version, err := providerVersion(p)
	switch {
	case err != nil:
		return err
	case r.Failed > 0:
		return lack(fmt.Sprintf("has %d failed cases", r.Failed))
	case !now.Before(r.Expires):
		return lack("ended at " + stamp(r.Expires))
	case version != r.Version:
		return lack("is about another build")
	}
	return nil
}
