package github

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v66/github"

	"gatehouse/ingest"
	"gatehouse/internal/event"
)

// Times and bounds of the permission look-ups.
const (
	permissionTTL = 5 * time.Minute
	maxAccounts   = 10 // looked up for one event
	maxCached     = 10_000
)

// Lifter asks GitHub what the payload cannot prove: whether an account that
// arrived as a contributor or outsider may write to the repository (IN-17). The
// answer of the API is the only thing that lifts a level; the journal keeps the
// event as it came.
type Lifter struct {
	Source *Source
	// Client returns a client that may read the repository's permissions.
	Client func(ctx context.Context, repository, owner, name string) (*github.Client, error)
	// Name gives a repository's owner and name by its id, from the node's
	// configuration: a payload's names are text.
	Name func(repository string) (owner, name string, ok bool)
	Now  func() time.Time // time.Now by default

	mu    sync.Mutex
	known map[account]answer
}

type account struct{ repository, id string }

type answer struct {
	writes bool
	until  time.Time
}

// Lift returns e with the levels that GitHub confirms, or e itself when nothing
// rises. An error means that nothing is known; the caller goes on with e.
func (l *Lifter) Lift(ctx context.Context, e *event.Event) (*event.Event, error) {
	repository := e.Facts["repository.id"]
	if e.Source != Name || !event.Startable(e.Kind) || e.Payload == nil || repository == "" {
		return e, nil
	}
	owner, name, ok := l.Name(repository)
	if !ok {
		return e, nil
	}
	proven := map[string]bool{}
	asked := 0
	for _, p := range e.Text {
		login := p.Value.Untrusted()
		if p.As != "login" || p.Author == "" || !p.Origin.Below(event.Member) || proven[p.Author] || !isLogin(login) {
			continue
		}
		if asked++; asked > maxAccounts {
			break
		}
		writes, err := l.writes(ctx, repository, owner, name, p.Author, login)
		if err != nil {
			return e, fmt.Errorf("look up a permission: %w", err)
		}
		if writes {
			proven[p.Author] = true
		}
	}
	if len(proven) == 0 {
		return e, nil
	}
	return l.Source.lift(e, proven)
}

// writes asks for one account, by name because the API has no ids, and believes
// the answer only if it is about the id that the payload names.
func (l *Lifter) writes(ctx context.Context, repository, owner, name, id, login string) (bool, error) {
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	key := account{repository, id}
	l.mu.Lock()
	a, ok := l.known[key]
	l.mu.Unlock()
	if ok && now().Before(a.until) {
		return a.writes, nil
	}
	client, err := l.Client(ctx, repository, owner, name)
	if err != nil {
		return false, err
	}
	level, resp, err := client.Repositories.GetPermissionLevel(ctx, owner, name, login)
	writes := false
	switch {
	case err == nil:
		p := level.GetPermission()
		writes = fmt.Sprint(level.GetUser().GetID()) == id && (p == "admin" || p == "maintain" || p == "write")
	case resp == nil || resp.StatusCode != http.StatusNotFound:
		return false, err
	}
	// 404 is an answer: no collaborator, or no such account.
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil || len(l.known) >= maxCached {
		l.known = map[account]answer{}
	}
	l.known[key] = answer{writes: writes, until: now().Add(permissionTTL)}
	return writes, nil
}

// isLogin admits what GitHub takes for a login, and so nothing that changes the
// path of a request.
func isLogin(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 39 && !strings.HasPrefix(s, "-")
}

// lift normalizes the payload of e again, with accounts known to have write
// access. The envelope stays.
func (s *Source) lift(e *event.Event, proven map[string]bool) (*event.Event, error) {
	doc, err := ingest.Scan(e.Payload)
	if err != nil {
		return e, fmt.Errorf("lift: %w", err)
	}
	again, err := s.normalize(ingest.Delivery{ID: e.Delivery, Kind: e.Kind, Auth: e.Auth}, doc, proven)
	if err != nil {
		return e, fmt.Errorf("lift: %w", err)
	}
	lifted := *e
	lifted.Actor, lifted.Facts, lifted.Lists, lifted.Text, lifted.Prov = again.Actor, again.Facts, again.Lists, again.Text, again.Prov
	if len(lifted.Lists) == 0 {
		lifted.Lists = nil
	}
	return &lifted, nil
}
