package main

import (
	"io"
	"path/filepath"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/internal/blob"
	"gatehouse/internal/config"
)

// newOCI returns the provider whose sandboxes are podman's containers. Its run
// folder is its own: sessions of the two providers do not meet.
func newOCI(cfg *config.Config, s state, blobs *blob.Store) (*local.Provider, error) {
	o := local.Options{
		Run: filepath.Join(s.run+"-oci", "run"), Transcripts: filepath.Join(s.dir, "transcripts"), UIDs: local.UIDRange(cfg.Sandbox.UIDs),
		Podman: cfg.Providers.OCI.Podman,
	}
	if o.Podman == "" {
		o.Podman = "podman"
	}
	if blobs != nil {
		o.Put = blobs.Put
	}
	return local.New(o)
}

// runProviders are those that the one session of a run can have.
func runProviders(cfg *config.Config, s state, blobs *blob.Store, own sandbox.Provider, out io.Writer) (map[string]sandbox.Provider, error) {
	all := map[string]sandbox.Provider{own.Name(): &tee{own, out}}
	if cfg.Providers.OCI != nil {
		p, err := newOCI(cfg, s, blobs)
		if err != nil {
			return nil, err
		}
		all[p.Name()] = &tee{p, out}
	}
	return all, nil
}
