package main

import (
	"io/fs"
	"strings"

	"gatehouse/internal/config"
	"gatehouse/internal/review"
	"gatehouse/wasm"
)

// newReview makes what people decide from: over the view, the versions that the
// gatekeeper knows and enforcers of its own.
func (n *node) newReview(cfg *config.Config, host *wasm.Host) (*review.Review, error) {
	lint, added := lintContext(cfg, nil), modulesOf(cfg)
	return review.New(review.Options{
		View: n.view, Bundles: n.gk, Actions: n.view.Action, Control: n.notary.Control().Append, Host: host,
		Module: func(ref string) ([]byte, wasm.Limits, error) {
			code, settings, err := added.open(ref)
			return code, settings.limits(), err
		},
		Sets: lint.Sets, Names: func() []string { return setNames(setsDir(cfg)) }, Repositories: lint.Repositories, Upstreams: upstreamsOf(cfg),
	})
}

// setNames lists the node's egress sets. A folder that is not there holds none.
func setNames(dir fs.FS) []string {
	files, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil // the pattern is right; a folder that can't be read names nothing
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".yaml")
	}
	return files
}
