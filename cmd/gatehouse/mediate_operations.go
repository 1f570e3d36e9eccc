package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	gogithub "github.com/google/go-github/v66/github"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/git"
	"gatehouse/enforcers/operations"
	"gatehouse/enforcers/operations/linear"
	"gatehouse/enforcers/operations/sentry"
	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper"
	"gatehouse/ingest/github"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Purposes of the calls that operations make, as receipts name them.
const (
	purposeOperation = "scm.operation"
	purposeDownload  = "scm.download"
)

// stores are where GitHub keeps logs and artifacts: the API answers with an
// address there that works by itself, once.
var stores = []string{"**.blob.core.windows.net", "**.actions.githubusercontent.com"}

// desks gives sessions their operations.
type desks struct {
	hubs     []hub
	services *services
	mark     secret.Value // key of the marks under what sessions write
	log      *slog.Logger

	mu   sync.Mutex
	open map[string]*operations.Desk // by session
}

// of returns the desk of a session, nil when it has none.
func (d *desks) of(session string) *operations.Desk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[session]
}

// hub is a GitHub connection that operations can use.
type hub struct {
	host        git.Host
	api         *github.API
	credentials *git.Credentials
	download    func(context.Context, *url.URL) (*http.Response, error)
}

// newDesks makes the operations that the node's connections can carry out.
func newDesks(p parts, g *gits) (*desks, error) {
	services, err := newServices(p)
	if err != nil {
		return nil, err
	}
	mark, err := markKey(p.state)
	if err != nil {
		return nil, err
	}
	d := &desks{services: services, mark: mark, log: p.log, open: map[string]*operations.Desk{}}
	g.desks = d
	node := &node{notary: p.notary, log: p.log}
	for i, h := range g.hosts {
		at := slices.IndexFunc(p.cfg.Connections, func(c config.Connection) bool { return c.Name == h.Connection })
		c := p.cfg.Connections[at]
		if c.Provider != "github" {
			continue
		}
		api, err := node.githubAPI(p.cfg, c, p.up, purposeOperation, p.dev)
		if err != nil {
			return nil, err
		}
		_, to, err := apiOf(c)
		if err != nil {
			return nil, err
		}
		d.hubs = append(d.hubs, hub{host: h, api: api, credentials: g.credentials[i], download: node.downloads(p.up, c.Name, []authority.Authority{to, h.To}, p.dev)})
	}
	return d, nil
}

// downloads returns what fetches an address that an API answered with, from its
// own hosts and the known stores alone, and without a credential.
func (n *node) downloads(up *upstream.Client, connection string, own []authority.Authority, dev bool) func(context.Context, *url.URL) (*http.Response, error) {
	return func(ctx context.Context, u *url.URL) (*http.Response, error) {
		to, err := authority.ParseHostHeader(u.Scheme, u.Host)
		if err != nil || to.Scheme() != authority.HTTPS || !slices.Contains(own, to) && !inStores(to) {
			return nil, problem.New(operations.CodeFailed, "the host points to a place that is not one of its stores", "")
		}
		node, err := up.Node(upstream.NodeOptions{Purpose: purposeDownload, To: to, Begin: n.begin(purposeDownload, connection, to, dev)})
		if err != nil {
			return nil, err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, problem.New(operations.CodeFailed, "the host points to a malformed address", "")
		}
		return node.RoundTrip(r)
	}
}

func inStores(to authority.Authority) bool {
	return slices.ContainsFunc(stores, func(s string) bool {
		p, err := authority.ParsePattern(s)
		return err == nil && p.Match(to) && to.Port() == 443
	})
}

// Mediate opens the session's desk at the door's own host.
func (d *desks) Mediate(_ context.Context, s gatekeeper.DoorSpec, g *enforcers.Gate) (mediation, error) {
	var all []operations.Operation
	refs, err := pushRefs(s.Policy)
	if err != nil {
		return mediation{}, err
	}
	inbox, inside, err := inboxOf(s)
	if err != nil {
		return mediation{}, err
	}
	for _, h := range d.hubs {
		at := slices.IndexFunc(h.host.Repositories, func(r git.Repository) bool { return r.ID == s.Subject.Repository })
		if at < 0 {
			continue
		}
		owner, name, _ := strings.Cut(h.host.Repositories[at].Name, "/")
		hub := operations.GitHub{
			Owner: owner, Name: name, Began: time.Now(), Download: h.download, MarkKey: d.mark, Inbox: inbox,
			Pushable: func(ref string) bool {
				return slices.ContainsFunc(refs, func(p string) bool { return git.MatchRef(p, ref) })
			},
			Client: func(ctx context.Context, access string) (*gogithub.Client, secret.Value, error) {
				token, err := h.credentials.Token(ctx, s.Session, s.Subject.Repository, git.Access(access))
				if err != nil {
					return nil, secret.Value{}, err
				}
				return h.api.WithToken(token), token, nil
			},
		}
		all = append(all, hub.Operations()...)
	}
	all = append(all, d.services.of(s)...)
	desk, err := operations.New(g, all)
	if err != nil {
		return mediation{}, err
	}
	desk.Log = d.log
	d.mu.Lock()
	d.open[s.Session] = desk
	d.mu.Unlock()
	return mediation{
		Inside: inside,
		Start:  func(ctx context.Context) { d.start(ctx, s, desk) },
		Agent:  map[string]door.Handler{"operations": door.HandlerFunc(func(w http.ResponseWriter, r *door.Request) { desk.ServeHTTP(w, r.Request) })},
		Close: func(reason string) error {
			d.mu.Lock()
			delete(d.open, s.Session)
			d.mu.Unlock()
			desk.Close()
			return d.end(s, g, all, reason)
		},
	}, nil
}

// closing builds the arguments of the operations that a bundle can list under
// on_end, from facts alone; false when the session is about nothing that the
// operation could be for.
var closing = map[string]func(s gatekeeper.DoorSpec, reason string) (any, bool){
	"scm.comment": func(s gatekeeper.DoorSpec, reason string) (any, bool) {
		kind, number, _ := strings.Cut(s.Subject.Entity, "-")
		n, err := strconv.Atoi(number)
		if err != nil || kind != "pr" && kind != "issue" {
			return nil, false
		}
		return map[string]any{"number": n, "body": lastWords(s, reason)}, true
	},
	linear.Comment: func(s gatekeeper.DoorSpec, reason string) (any, bool) {
		about := subjectOf(s.Event)
		return map[string]any{"body": lastWords(s, reason)}, about.Source == "linear" && about.Facts["issue.id"] != ""
	},
	linear.Activity: func(s gatekeeper.DoorSpec, reason string) (any, bool) {
		about := subjectOf(s.Event)
		return map[string]any{"type": "response", "body": lastWords(s, reason)}, about.Source == "linear" && about.Facts["agent_session.id"] != ""
	},
	sentry.Note: func(s gatekeeper.DoorSpec, reason string) (any, bool) {
		about := subjectOf(s.Event)
		return map[string]any{"text": lastWords(s, reason)}, about.Source == "sentry" && about.Facts["issue.id"] != ""
	},
}

func lastWords(s gatekeeper.DoorSpec, reason string) string {
	return fmt.Sprintf("Gatehouse session `%s` under bundle `%s` (%s) has ended: %s.", s.Session, s.Bundle.Name, s.Bundle.Mode, reason)
}

// endLimit bounds what a session's last operations may take.
const endLimit = 20 * time.Second

// end carries out what the bundle lists under on_end, once the agent's own
// permissions are gone. Each is judged and receipted like the agent's calls.
func (d *desks) end(s gatekeeper.DoorSpec, g *enforcers.Gate, all []operations.Operation, reason string) error {
	names := s.Bundle.Session.OnEnd
	if d.services.answers(s) && !slices.Contains(names, linear.Activity) {
		names = append(slices.Clone(names), linear.Activity)
	}
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	last := g.Epilogue()
	desk, err := operations.New(last, all)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		build := closing[name]
		if build == nil {
			errs = append(errs, fmt.Errorf("on_end: %s needs words of its own and can't be called here", name))
			continue
		}
		v, ok := build(s, reason)
		if !ok {
			continue
		}
		args, err := json.Marshal(v)
		if err == nil {
			_, _, err = desk.CallOwn(ctx, name, "on-end-"+name, args)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("on_end: %s: %w", name, err))
		}
	}
	last.Revoke(reason)
	desk.Close()
	last.Settle(ctx)
	return errors.Join(errs...)
}

// pushRefs returns the references that a compiled policy lets a session push.
func pushRefs(policy []byte) ([]string, error) {
	var p struct {
		Git struct {
			Push struct {
				Refs []string `json:"refs"`
			} `json:"push"`
		} `json:"git"`
	}
	if err := json.Unmarshal(policy, &p); err != nil {
		return nil, fmt.Errorf("compiled policy: %w", err)
	}
	return p.Git.Push.Refs, nil
}
