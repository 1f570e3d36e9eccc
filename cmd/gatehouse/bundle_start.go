package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

// startLine says whether one bundle's agent starts.
type startLine struct {
	Bundle string `json:"bundle"`
	Agent  string `json:"agent"`
	OK     bool   `json:"ok"`
	Said   string `json:"untrusted_said,omitempty"` // the agent's version, or the last line that it left
	Why    string `json:"why,omitempty"`            // what is missing
}

// startLimit bounds one agent's version command.
const startLimit = 2 * time.Minute

// startAgents runs each bundle's agent in its sandbox just long enough to say
// its version: a program that is not there is found before the first event.
func (c *cli) startAgents(ctx context.Context, cfg *config.Config, bundles []*bundle.Bundle) error {
	var lines []startLine
	good := true
	for _, b := range bundles {
		line := startAgent(ctx, cfg, b)
		good = good && line.OK
		lines = append(lines, line)
	}
	err := rows(c, lines, []string{"bundle", "agent", "starts", "said", "why"}, func(l startLine) []string {
		starts := "yes"
		if !l.OK {
			starts = "no"
		}
		return []string{l.Bundle, l.Agent, starts, l.Said, l.Why}
	})
	if err == nil && !good {
		err = &exitError{code: exitNegative}
	}
	return err
}

func startAgent(ctx context.Context, cfg *config.Config, b *bundle.Bundle) startLine {
	line := startLine{Bundle: b.Name, Agent: b.Session.Agent.Name}
	spec := gatekeeper.Trial(b)
	var err error
	if b.Session.Rootfs.Kind == "oci" {
		spec.Rootfs, err = imagesOf(cfg).Rootfs(ctx, b.Session.Rootfs.Value)
	}
	var end sandbox.End
	var said string
	if err == nil {
		end, said, err = trial(ctx, cfg, spec)
	}
	line.Said = finalLine(said)
	switch {
	case err != nil:
		line.Why = strings.TrimSuffix(err.Error()+"; "+problem.HintOf(err), "; ")
	case end.Reason != sandbox.Completed && line.Agent == bundle.AgentCommand:
		line.Why = b.Session.Agent.Argv[0] + " is not in the sandbox; install it under /usr, or mount the folder that has bin/" + filepath.Base(b.Session.Agent.Argv[0])
	case end.Reason != sandbox.Completed:
		line.Why = "its version command ended " + end.Reason + "; the last line that it left says what is missing"
	default:
		line.OK = true
	}
	return line
}

// trial runs one sandbox without a door.
func trial(ctx context.Context, cfg *config.Config, spec sandbox.Spec) (sandbox.End, string, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "gatehouse-start-")
	if err != nil {
		return sandbox.End{}, "", err
	}
	defer os.RemoveAll(dir)
	provider, err := newLocal(cfg, state{dir: dir, run: filepath.Join(dir, "run")}, nil)
	if err != nil {
		return sandbox.End{}, "", err
	}
	spec.Session = "start"
	box, err := provider.Start(ctx, spec, nil)
	if err != nil {
		return sandbox.End{}, "", err
	}
	defer box.Close()
	end, err := box.Run(ctx)
	if err != nil {
		return end, "", err
	}
	said, err := os.ReadFile(end.Transcript)
	return end, string(said), err
}

func finalLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
