package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/git"
	"gatehouse/enforcers/operations"
	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/gatekeeper/sandbox/quarantine"
	"gatehouse/ingest/github"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// purposeMint names the node's calls that mint and revoke sessions' tokens.
const purposeMint = "scm.mint"

// tokenSubject is where minted tokens wait in the journal to be revoked. The
// records are private: nothing of them is ever published.
const tokenSubject = "scm.token"

// revokeWithin bounds what a session's end waits for hosts to confirm.
const revokeWithin = 20 * time.Second

// gits mediates git for the scm connections of a node.
type gits struct {
	hosts       []git.Host
	names       map[string]git.Repository // by id
	credentials []*git.Credentials
	desks       *desks        // opens the pull requests that are asked for through the API
	inspector   git.Inspector // nil: this machine runs no sandboxes, and no push goes on
	journal     *journal.Journal
	notary      *notary.Notary
	up          *upstream.Client
	dev         bool
	log         *slog.Logger
}

// newGits reads the scm connections and makes their credentials known to
// upstream.
func newGits(p parts) (*gits, error) {
	m := &gits{names: map[string]git.Repository{}, journal: p.journal, notary: p.notary, up: p.up, dev: p.dev, log: p.log}
	var conns []config.Connection
	for _, c := range p.cfg.Connections {
		if c.Kind == "scm" {
			conns = append(conns, c)
		}
	}
	if len(conns) == 0 {
		return m, nil
	}
	for _, r := range p.cfg.Repositories {
		m.names[r.ID] = git.Repository{ID: r.ID, Name: r.Name}
	}
	for _, c := range conns {
		one, to, err := scmCredentials(p, c)
		if err != nil {
			return nil, err
		}
		host := git.Host{Connection: c.Name, To: to, Static: c.App == nil}
		if host.Stores, err = storesOf(c); err != nil {
			return nil, err
		}
		switch c.Provider {
		case "github":
			base, api, err := apiOf(c)
			if err != nil {
				return nil, err
			}
			host.API, host.APIPath, host.GraphQLPath = api, strings.TrimSuffix(base.Path, "/"), "/graphql"
			if host.APIPath != "" {
				host.GraphQLPath = "/api/graphql" // an Enterprise Server's
			}
		case git.GitLab:
			host.Provider, host.API, host.APIPath, host.GraphQLPath = git.GitLab, to, "/api/v4", "/api/graphql"
		case git.Gitea:
			host.Provider, host.API, host.APIPath = git.Gitea, to, "/api/v1"
		}
		for _, r := range p.cfg.Repositories {
			if r.Connection == c.Name || r.Connection == "" && len(conns) == 1 {
				host.Repositories = append(host.Repositories, m.names[r.ID])
			}
		}
		m.hosts = append(m.hosts, host)
		m.credentials = append(m.credentials, one)
		p.inject[c.Name] = one
	}
	dir := filepath.Join(p.state.dir, "inspect")
	provider, err := local.New(local.Options{Run: filepath.Join(dir, "run"), Transcripts: filepath.Join(dir, "transcripts"), UIDs: local.UIDRange(p.cfg.Sandbox.UIDs)})
	if err != nil {
		p.log.Warn("no push will go on: it cannot be looked into", slog.Any("err", err))
		return m, nil
	}
	m.inspector = &quarantine.Runner{Provider: provider}
	return m, nil
}

// scmCredentials makes the credentials of one connection, and says where its
// repositories are.
func scmCredentials(p parts, c config.Connection) (*git.Credentials, authority.Authority, error) {
	at := "connections." + c.Name
	name := c.Host
	if name == "" && c.Provider == "github" {
		name = "github.com"
		if _, api, err := apiOf(c); c.API != "" && err == nil {
			name = api.Host() // an Enterprise Server has both in one place
		}
	}
	to, err := authority.ParseHostHeader(authority.HTTPS, name)
	if err != nil {
		return nil, to, problem.Wrap(err, problem.ConfigInvalid, at+".host: want the host of the repositories", "")
	}
	o := git.CredentialOptions{Connection: c.Name, Git: to, Static: c.Credential.Value(), Receipt: credentialReceipt(p.notary), Guard: guard(p.notary), Keep: keepPrivate(p.journal, tokenSubject)}
	switch c.Provider {
	case "github":
		node := &node{notary: p.notary, log: p.log}
		api, err := node.githubAPI(p.cfg, c, p.up, purposeMint, p.dev)
		if err != nil {
			return nil, to, err
		}
		if _, o.API, err = apiOf(c); err != nil {
			return nil, to, err
		}
		if c.App != nil {
			o.Static = secret.Value{}
			o.Mint, o.Revoke = minter(api), api.RevokeToken
		}
	case git.GitLab, git.Gitea:
		o.User = "oauth2"
	}
	if o.Mint == nil && o.Static.Empty() {
		return nil, to, problem.New(problem.ConfigInvalid, at+": an scm connection needs app or credential", "")
	}
	one, err := git.NewCredentials(o)
	return one, to, err
}

// minter mints a GitHub App's tokens.
func minter(api *github.API) func(context.Context, git.Repository, git.Access) (git.Token, error) {
	return func(ctx context.Context, r git.Repository, a git.Access) (git.Token, error) {
		want, err := git.Permissions(a)
		if err != nil {
			return git.Token{}, err
		}
		owner, name, _ := strings.Cut(r.Name, "/")
		t, err := api.Mint(ctx, r.ID, owner, name, want)
		return git.Token(t), err
	}
}

// keepPrivate returns what makes a private record durable.
func keepPrivate(j *journal.Journal, subject string) func(context.Context, []byte) error {
	return func(ctx context.Context, b []byte) error {
		_, err := j.AppendReserved(journal.Record{Kind: journal.KindPrivate, Subject: subject, Data: b}).Wait(ctx)
		return err
	}
}

// guard keeps a session's credential out of its receipts (M-22).
func guard(n *notary.Notary) func(string, secret.Value) {
	return func(session string, v secret.Value) {
		if strings.HasPrefix(session, askSession) {
			return // it has no chain
		}
		if chain, err := n.Resume(session); err == nil {
			chain.Guard(v)
		}
	}
}

// credentialReceipt writes what became of a session's credential to its chain,
// or to the node's own when that is closed: after a crash it is.
func credentialReceipt(n *notary.Notary) git.Receipt {
	return func(ctx context.Context, session string, c receipts.Credential, revoke bool) error {
		r := receipts.Receipt{Type: receipts.TypeCredentialIssue, Cred: &c}
		if revoke {
			r.Type = receipts.TypeCredentialRevoke
		}
		if strings.HasPrefix(session, askSession) {
			_, err := n.Control().Append(ctx, r)
			return err
		}
		chain, err := n.Resume(session)
		if err == nil {
			if _, err = chain.Append(ctx, r); problem.CodeOf(err) != problem.ChainClosed {
				return err
			}
		}
		if !revoke {
			return err
		}
		_, err = n.Control().Append(ctx, r)
		return err
	}
}

// Run revokes what an earlier run left behind, and goes on trying; it asks what
// became of pushes that were cut off.
func (m *gits) Run(ctx context.Context) error {
	if len(m.credentials) == 0 {
		return nil
	}
	cut, err := m.recover()
	if err != nil {
		return err
	}
	for _, p := range cut {
		if err := m.ask(ctx, p); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "couldn't find out what became of a push", slog.String("session", p.Session), slog.Any("err", err))
		}
	}
	done := make(chan error, len(m.credentials))
	for _, c := range m.credentials {
		go func() { done <- c.Run(ctx) }()
	}
	var errs []error
	for range m.credentials {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

// recover reads the tokens that the journal remembers, and the pushes that were
// under way when the node ended.
func (m *gits) recover() (cut []git.Pushing, err error) {
	open := map[string]git.Pushing{}
	for group, err := range m.journal.Groups(0) {
		if err != nil {
			return nil, fmt.Errorf("couldn't read the journal: %w", err)
		}
		for _, rec := range group {
			if rec.Kind != journal.KindPrivate {
				continue
			}
			switch rec.Subject {
			case tokenSubject:
				for _, c := range m.credentials {
					err = errors.Join(err, c.Recover(rec.Data))
				}
			case pushSubject:
				err = m.recall(rec, open)
			}
			if err != nil {
				return nil, fmt.Errorf("journal position %d: %w", rec.Pos, err)
			}
		}
	}
	for _, p := range open {
		if _, err := m.notary.Resume(p.Session); err != nil { // one of this run is answered by itself
			cut = append(cut, p)
		}
	}
	return cut, nil
}

// Mediate prepares git for one session.
func (m *gits) Mediate(_ context.Context, s gatekeeper.DoorSpec, _ *enforcers.Gate) (mediation, error) {
	dir := filepath.Join(s.Dir, "pushes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return mediation{}, err
	}
	readable := []string{s.Subject.Repository}
	var siblings []git.Repository
	for _, id := range slices.Sorted(maps.Values(s.Subject.Siblings)) {
		siblings, readable = append(siblings, m.names[id]), append(readable, id)
	}
	placeholder := secret.FromString("gatehouse_ph_" + rand.Text()[:26])
	one, err := git.New(git.Options{
		Hosts: m.hosts, Placeholder: placeholder, Readable: readable, Log: m.log, CreatePull: m.createPull, LFS: git.LFSOptions{Call: m.largeFiles(s.Session)}, Push: git.PushOptions{
			Dir: dir, ID: s.Session, Inspect: m.inspector, After: m.pushed,
			Before: func(ctx context.Context, p git.Pushing) error { return m.pushing(ctx, pushRecord{Pushing: p}) },
		},
	})
	if err != nil {
		return mediation{}, err
	}
	for _, c := range m.credentials {
		c.Open(s.Session, m.names[s.Subject.Repository], siblings)
	}
	inside := gatekeeper.Inside{}
	if len(m.hosts) > 0 && s.Bundle.Git != nil {
		inside.Env = one.Inside()
		if url := m.remote(s.Subject.Repository); url != "" {
			inside.Env["GATEHOUSE_REPOSITORY"] = url
			// Tools that do not start without a token; it is worth nothing elsewhere.
			inside.Env["GH_TOKEN"] = string(placeholder.Reveal())
		}
	}
	return mediation{Routes: one.Routes(), Inside: inside, Agent: map[string]door.Handler{"scm-credentials": scmCredential(placeholder, s)}, Close: func(string) error {
		ctx, cancel := context.WithTimeout(context.Background(), revokeWithin)
		defer cancel()
		var errs []error
		for _, c := range m.credentials {
			errs = append(errs, c.End(ctx, s.Session))
		}
		return errors.Join(append(errs, os.RemoveAll(dir))...)
	}}, nil
}

// scmCredential answers the credential helpers of other systems in the form of
// Open-Inspect's. What they get is the placeholder.
func scmCredential(placeholder secret.Value, s gatekeeper.DoorSpec) door.Handler {
	return door.HandlerFunc(func(w http.ResponseWriter, r *door.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"username": "x-access-token", "password": string(placeholder.Reveal()),
			"expires_at_epoch_ms": s.Opened.Add(time.Duration(s.Bundle.Session.Timeout)).UnixMilli(),
		})
	})
}

// createPull has scm.pr.create open a pull request. The same request twice is the
// same call.
func (m *gits) createPull(ctx context.Context, g *enforcers.Gate, p git.PullRequest) (string, enforcers.Decision, error) {
	desk := m.desks.of(g.Session())
	if desk == nil {
		return "", enforcers.Decision{}, problem.New(operations.CodeUnlisted, "the session has no operations", "")
	}
	args, err := json.Marshal(map[string]any{"head": p.Head, "base": p.Base, "title": p.Title, "body": p.Body, "draft": p.Draft})
	if err != nil {
		return "", enforcers.Decision{}, err
	}
	sum := sha256.Sum256(args)
	result, d, err := desk.CallOwn(ctx, "scm.pr.create", "api-"+hex.EncodeToString(sum[:16]), args)
	if err != nil {
		return "", d, err
	}
	var made struct{ URL string }
	err = json.Unmarshal(result, &made)
	return made.URL, d, err
}

// remote is the address of a session's own repository, "" when no connection
// has it.
func (m *gits) remote(id string) string {
	for _, h := range m.hosts {
		for _, r := range h.Repositories {
			if r.ID == id && id != "" {
				return "https://" + h.To.HostHeader() + "/" + r.Name + ".git"
			}
		}
	}
	return ""
}
