package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/openinspect"
	"gatehouse/gatekeeper/sandbox/remote"
	"gatehouse/internal/authority"
	"gatehouse/internal/blob"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// How long a call to a remote machine may take. Its runs last as long as their
// sessions, whose own timeouts end them.
const (
	remoteCall = 3 * time.Minute
	remoteRun  = 31 * 24 * time.Hour
)

// providerNames are the providers that a bundle may name on this node.
func providerNames(cfg *config.Config) []string {
	names := []string{"local"}
	if cfg.Providers.OCI != nil {
		names = append(names, "oci")
	}
	if cfg.Providers.Remote != nil {
		names = append(names, "remote")
	}
	if cfg.Providers.OpenInspect != nil {
		names = append(names, "openinspect")
	}
	return names
}

// distantProviders adds the configured providers beside the local one: podman's
// and those on other machines.
func (n *node) distantProviders(cfg *config.Config, s state, up *upstream.Client, blobs *blob.Store, dev bool, to map[string]sandbox.Provider) error {
	if cfg.Providers.OCI != nil {
		p, err := newOCI(cfg, s, blobs)
		if err != nil {
			return err
		}
		to[p.Name()] = p
	}
	if cfg.Providers.Remote != nil {
		p, err := newRemote(cfg, filepath.Join(s.dir, "transcripts"), up, blobs, func(at authority.Authority) begin { return n.begin("sandbox.remote", "remote", at, dev) })
		if err != nil {
			return err
		}
		n.onClose(func() { n.logged("remote provider", p.Close()) })
		to[p.Name()] = p
	}
	if c := cfg.Providers.OpenInspect; c != nil {
		at, place, err := placeOf("providers.openinspect.url", c.URL)
		if err != nil {
			return err
		}
		exit, err := up.Node(upstream.NodeOptions{
			Purpose: "sandbox.openinspect", To: place, Begin: n.begin("sandbox.openinspect", "openinspect", place, dev), Inject: bearerOf(c.Token.Value()),
		})
		if err != nil {
			return err
		}
		p, err := openinspect.New(openinspect.Options{URL: at, Calls: exit, Put: blobs.Put, Transcripts: filepath.Join(s.dir, "transcripts")})
		if err != nil {
			return err
		}
		to[p.Name()] = p
	}
	return nil
}

// begin writes the receipt of one of the node's own calls.
type begin = func(ctx context.Context, method string) (func(enforcers.Outcome), error)

func placeOf(key, raw string) (*url.URL, authority.Authority, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, authority.Authority{}, problem.Wrap(err, problem.ConfigInvalid, key+" is not a URL", "")
	}
	to, err := authority.ParseHostHeader(u.Scheme, u.Host)
	if err != nil {
		return nil, authority.Authority{}, problem.Wrap(err, problem.ConfigInvalid, key+" names no host", "")
	}
	return u, to, nil
}

func bearerOf(token secret.Value) func(context.Context, *http.Request) error {
	return func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+string(token.Reveal()))
		return nil
	}
}

// newRemote opens the listener that shims come to and the two fixed exits to
// the machine.
func newRemote(cfg *config.Config, transcripts string, up *upstream.Client, blobs *blob.Store, receipt func(authority.Authority) begin) (*remote.Provider, error) {
	c := cfg.Providers.Remote
	at, to, err := placeOf("providers.remote.url", c.URL)
	if err != nil {
		return nil, err
	}
	exit := upstream.NodeOptions{Purpose: "sandbox.remote", To: to, Addresses: c.Addresses, Timeout: remoteCall, Begin: receipt(to), Inject: bearerOf(c.Token.Value())}
	if c.CA != "" {
		if exit.Roots, err = rootsOf(cfg.Path(c.CA)); err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "providers.remote.ca: couldn't read the file", "give a PEM file with the authority's certificate")
		}
	}
	calls, err := up.Node(exit)
	if err != nil {
		return nil, err
	}
	exit.Timeout = remoteRun
	runs, err := up.Node(exit)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", c.Doors)
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "couldn't listen on "+c.Doors, "choose another address under providers.remote.doors; a node that runs has it already")
	}
	o := remote.Options{URL: at, Calls: calls, Runs: runs, Doors: l, Advertise: orElse(c.Advertise, l.Addr().String()), Transcripts: transcripts}
	if blobs != nil {
		o.Put = blobs.Put
	}
	p, err := remote.New(o)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return p, nil
}

// remoteForConformance is a remote provider beside no running node: its calls
// are an operator's, and leave no receipt.
func remoteForConformance(cfg *config.Config) (sandbox.Provider, func(), error) {
	up, err := newUpstream(cfg, nil, nil, !cfg.Dev.Zero())
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "gatehouse-conformance-")
	if err != nil {
		return nil, nil, errors.Join(err, up.Close())
	}
	silent := func(authority.Authority) begin {
		return func(context.Context, string) (func(enforcers.Outcome), error) {
			return func(enforcers.Outcome) {}, nil
		}
	}
	p, err := newRemote(cfg, filepath.Join(dir, "transcripts"), up, nil, silent)
	if err != nil {
		return nil, nil, errors.Join(err, up.Close(), os.RemoveAll(dir))
	}
	return p, func() {
		_ = p.Close()
		_ = up.Close()
		_ = os.RemoveAll(dir)
	}, nil
}

// reportsOf reads the signed report of a provider whenever it is asked for.
func reportsOf(s state, keyset func() *receipts.Keyset) gatekeeper.Report {
	return func(p sandbox.Provider) error {
		report, err := loadConformance(s, keyset(), p.Name())
		if err != nil {
			return err
		}
		return report.holds(p, time.Now())
	}
}
