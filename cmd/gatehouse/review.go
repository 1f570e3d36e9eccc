package main

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/config"
	"gatehouse/internal/review"
	"gatehouse/wasm"
)

// simulators bounds the enforcers of simulations. They are no instances of the
// live host: judging the past never makes a session wait.
const simulators = 16

// newReview makes what people decide from: over the view, the versions that the
// gatekeeper knows and enforcers of its own.
func (n *node) newReview(ctx context.Context, cfg *config.Config, compiled string, has inventory) (*review.Review, error) {
	host, err := wasm.NewHost(ctx, wasm.Options{CacheDir: compiled, Instances: simulators})
	if err != nil {
		return nil, err
	}
	n.onClose(func() { n.logged("review", host.Close(context.WithoutCancel(ctx))) })
	lint, added := lintContext(cfg, nil), modulesOf(cfg)
	rev, err := review.New(review.Options{
		View: n.view, Bundles: n.gk, Actions: n.bus.GetAction, Control: n.notary.Control().Append, Host: host,
		Module: func(ref string) ([]byte, wasm.Limits, error) {
			code, settings, err := added.open(ref)
			return code, settings.limits(), err
		},
		Sets: lint.Sets, Names: func() []string { return setNames(setsDir(cfg)) }, Repositories: lint.Repositories, Upstreams: upstreamsOf(cfg),
		Checks: func(_ context.Context, b *bundle.Bundle) []review.Item {
			i := review.Item{ID: "provider", OK: true, Text: "provider " + b.Session.Provider + " has what hard mode needs"}
			if why := n.gk.Hardens(b); why != "" {
				i.OK, i.Text = false, why
			}
			return []review.Item{i, has.judged(b.Session.Provider, time.Now())}
		},
	})
	if err != nil {
		return nil, err
	}
	n.onClose(func() { rev.Close(context.WithoutCancel(ctx)) })
	return rev, nil
}

// judged is the item of a provider's conformance report. Hard mode rests on the
// probe of each session; who turns a bundle to hard sees the cases that no probe
// makes, and whether somebody let them run.
func (i inventory) judged(provider string, now time.Time) review.Item {
	item := review.Item{ID: "conformance", Link: "/ui/providers"}
	r, err := i.report(provider, now)
	if err != nil {
		item.Text = fmt.Sprintf("no conformance report of provider %s holds: %s", provider, faultOf(err))
		return item
	}
	item.OK, item.Text = true, fmt.Sprintf("provider %s passed %d conformance cases, %d were absent here", provider, r.Passed, r.Absent)
	return item
}

// setNames lists the node's egress sets. A folder that is not there holds none.
func setNames(dir fs.FS) []string {
	files, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil // the pattern is right; a folder that can't be read names nothing
	}
	for i, f := range files {
		files[i], _, _ = strings.Cut(strings.TrimSuffix(f, ".yaml"), "@")
	}
	slices.Sort(files)
	return slices.Compact(files)
}
