package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	gogithub "github.com/google/go-github/v66/github"

	"gatehouse/enforcers/upstream"
	"gatehouse/ingest"
	"gatehouse/ingest/github"
	"gatehouse/internal/authority"
	"gatehouse/internal/bus"
	"gatehouse/internal/config"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// Purposes of the node's own calls to GitHub, as receipts name them.
const (
	purposeReconcile = "github.reconcile"
	purposeLift      = "github.lift"
)

// liftLimit bounds the look-ups of one event. An admission that waits for GitHub
// no longer goes on with the levels that the payload proves.
const liftLimit = 10 * time.Second

// elsewhereLimit bounds one look into the stream.
const elsewhereLimit = 10 * time.Second

// githubAsked is what the node asks GitHub of its own accord.
type githubAsked struct {
	reconcilers []*github.Reconciler
	lifters     map[string]*github.Lifter // by endpoint
	apis        []*github.API
	log         *slog.Logger
}

// revokeLimit bounds giving back the node's own tokens when it stops.
const revokeLimit = 10 * time.Second

// revoke gives back the tokens that the node minted for itself.
func (a *githubAsked) revoke(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, revokeLimit)
	defer cancel()
	var errs []error
	for _, api := range a.apis {
		errs = append(errs, api.Close(ctx))
	}
	return errors.Join(errs...)
}

// askGitHub makes a reconciler and a lifter for every endpoint that names a
// connection.
func (n *node) askGitHub(cfg *config.Config, up *upstream.Client, endpoints []ingest.Endpoint, dev bool) (*githubAsked, error) {
	asked := &githubAsked{lifters: map[string]*github.Lifter{}, log: n.log}
	names := map[string]string{}
	for _, r := range cfg.Repositories {
		names[r.ID] = r.Name
	}
	name := func(repository string) (string, string, bool) {
		owner, name, ok := strings.Cut(names[repository], "/")
		return owner, name, ok
	}
	for _, e := range cfg.Endpoints {
		if e.Connection == "" {
			continue
		}
		conn := cfg.Connections[slices.IndexFunc(cfg.Connections, func(c config.Connection) bool { return c.Name == e.Connection })]
		reconcile, err := n.githubAPI(cfg, conn, up, purposeReconcile, dev)
		if err != nil {
			return nil, err
		}
		lift, err := n.githubAPI(cfg, conn, up, purposeLift, dev)
		if err != nil {
			return nil, err
		}
		asked.apis = append(asked.apis, reconcile, lift)
		there := &others{n: n, endpoint: e.Name, odd: map[string]bool{}}
		r := &github.Reconciler{Known: func(id string) bool { return n.intake.Known(e.Name, id) || there.know(id) }, Log: n.log.With(slog.String("endpoint", e.Name))}
		switch h := e.Hook; {
		case h == nil:
			r.Hook = github.AppHook{Client: reconcile.AsApp()}
		case h.Organization != "":
			r.Hook = github.OrganizationHook{Client: reconcile.AsUser(), Org: h.Organization, ID: h.ID}
		default:
			owner, repo, _ := name(h.Repository)
			r.Hook = github.RepositoryHook{Owner: owner, Name: repo, ID: h.ID, Client: func(ctx context.Context) (*gogithub.Client, error) {
				return reconcile.Repository(ctx, h.Repository, owner, repo, github.WriteHooks)
			}}
		}
		asked.reconcilers = append(asked.reconcilers, r)
		at := slices.IndexFunc(endpoints, func(x ingest.Endpoint) bool { return x.Name == e.Name })
		asked.lifters[e.Name] = &github.Lifter{Source: endpoints[at].Source.(*github.Source), Name: name,
			Client: func(ctx context.Context, repository, owner, name string) (*gogithub.Client, error) {
				return lift.Repository(ctx, repository, owner, name, github.ReadMetadata)
			}}
	}
	return asked, nil
}

// others knows the deliveries of an endpoint that reached another node: a
// vendor's deliveries reach any of them. It is asked by one goroutine.
type others struct {
	n        *node
	endpoint string

	odd  map[string]bool // delivery ids that were quarantined
	next uint64          // stream sequence after the last of them
}

// know reports whether the stream has the delivery. When the stream cannot say,
// the delivery is left for the next round.
func (o *others) know(delivery string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), elsewhereLimit)
	defer cancel()
	known, err := o.look(ctx, delivery)
	if err != nil {
		o.n.log.LogAttrs(ctx, slog.LevelWarn, "github.reconcile", slog.Any("err", err))
		return true
	}
	return known
}

func (o *others) look(ctx context.Context, delivery string) (bool, error) {
	sum := sha256.Sum256([]byte(github.Name + ":" + o.endpoint + ":" + delivery))
	for _, err := range o.n.bus.Read(ctx, bus.Events, event.SubjectPrefix+"*.*.*.*."+hex.EncodeToString(sum[:]), 0) {
		return err == nil, err
	}
	// The id of a quarantined delivery holds the digest of its body, which GitHub
	// does not tell: asked for again, it would be quarantined again.
	for m, err := range o.n.bus.Read(ctx, bus.Events, event.SubjectPrefix+github.Name+"."+o.endpoint+"."+event.KindQuarantined+".>", o.next) {
		if err != nil {
			return false, err
		}
		h, err := event.ReadHead(m.Data)
		if err != nil {
			return false, fmt.Errorf("message %d of the events: %w", m.Seq, err)
		}
		o.odd[h.Delivery], o.next = true, m.Seq+1
	}
	return o.odd[delivery], nil
}

// lift is the gatekeeper's Lift.
func (a *githubAsked) lift(ctx context.Context, e *event.Event) *event.Event {
	l := a.lifters[e.Endpoint]
	if l == nil {
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, liftLimit)
	defer cancel()
	lifted, err := l.Lift(ctx, e)
	if err != nil {
		a.log.LogAttrs(ctx, slog.LevelWarn, "github.lift", slog.String("event", e.ID), slog.Any("err", err))
		return e
	}
	return lifted
}

// githubAPI returns the API of a connection for one purpose. Its transport
// reaches that API's authority and nothing else.
func (n *node) githubAPI(cfg *config.Config, conn config.Connection, up *upstream.Client, purpose string, dev bool) (*github.API, error) {
	o, base, err := apiCall(cfg, conn, purpose)
	if err != nil {
		return nil, err
	}
	o.Begin = n.begin(purpose, conn.Name, o.To, dev)
	transport, err := up.Node(o)
	if err != nil {
		return nil, err
	}
	api := &github.API{URL: base, Base: transport, Token: conn.Credential.Value(), Issued: n.issued(conn.Name, o.To), Revoked: n.revoked(conn.Name, o.To)}
	if conn.App != nil {
		if api.App, err = github.NewApp(conn.App.ID, conn.App.Key.Value()); err != nil {
			return nil, err
		}
	}
	return api, nil
}

// apiCall returns what reaches the API of a connection, but for what writes its
// receipts, and the API's base.
func apiCall(cfg *config.Config, conn config.Connection, purpose string) (upstream.NodeOptions, *url.URL, error) {
	base, to, err := apiOf(conn)
	if err != nil {
		return upstream.NodeOptions{}, nil, err
	}
	o := upstream.NodeOptions{Purpose: purpose, To: to}
	if conn.API != "" {
		// An Enterprise Server may stand in internal_networks; upstream opens no
		// other private address, whatever stands here.
		o.Addresses = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	if conn.CA != "" {
		if o.Roots, err = rootsOf(cfg.Path(conn.CA)); err != nil {
			return o, nil, problem.Wrap(err, problem.ConfigInvalid, "connection "+conn.Name+": couldn't read ca", "give a PEM file with the authority's certificate")
		}
	}
	return o, base, nil
}

// apiOf returns the base of a connection's API and the one place it is at.
func apiOf(conn config.Connection) (*url.URL, authority.Authority, error) {
	text := conn.API
	if text == "" {
		text = github.DefaultAPI
	}
	bad := func(err error) error {
		return problem.Wrap(err, problem.ConfigInvalid, "connection "+conn.Name+": api is not an https URL without query", "for an Enterprise Server: https://HOST/api/v3/")
	}
	base, err := url.Parse(strings.TrimSuffix(text, "/") + "/")
	if err != nil {
		return nil, authority.Authority{}, bad(err)
	}
	to, err := authority.ParseHostHeader(base.Scheme, base.Host)
	if err != nil || base.Scheme != authority.HTTPS || base.RawQuery != "" || base.Fragment != "" || base.User != nil {
		return nil, authority.Authority{}, bad(err)
	}
	return base, to, nil
}

func rootsOf(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, problem.New(problem.ConfigInvalid, "no certificate in the file", "")
	}
	return roots, nil
}
