package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// Access says what a credential is good for, in one repository.
type Access string

// Accesses. Each is a token of its own, so that what reads cannot write.
const (
	Read     Access = "read"     // git-upload-pack
	Write    Access = "write"    // git-receive-pack
	Look     Access = "look"     // reading requests to the API
	Pulls    Access = "pulls"    // opening pull requests
	Comments Access = "comments" // on issues and pull requests
	Statuses Access = "statuses" // of commits
	Logs     Access = "logs"     // of runs, and their artifacts
)

// Token is a credential that was minted for one repository and access.
type Token struct {
	Value   secret.Value
	Scope   map[string]string // what it is good for, as the host said
	Expires time.Time
}

// Receipt writes credential.issue, or credential.revoke when revoke is set, to
// a session's chain or, once that is closed, to the node's own.
type Receipt func(ctx context.Context, session string, c receipts.Credential, revoke bool) error

// CredentialOptions describe one scm connection.
type CredentialOptions struct {
	Connection string
	Git        authority.Authority
	API        authority.Authority // zero when none is known
	User       string              // of Basic for git; "" = x-access-token

	// Static is the one credential of a connection that can mint none.
	Static secret.Value
	// Mint makes a token that is good for one repository and access only, and
	// Revoke ends one. Both are nil with Static.
	Mint   func(ctx context.Context, r Repository, a Access) (Token, error)
	Revoke func(ctx context.Context, token secret.Value) error

	// Keep makes a record durable before the token in it is used. The record holds
	// the token: it must be stored so that nobody but the node reads it.
	Keep    func(ctx context.Context, record []byte) error
	Receipt Receipt
	// Guard is told of every credential before its first use for a session, so that
	// it stands in none of its receipts. nil = nobody looks.
	Guard func(session string, v secret.Value)
	Clock func() time.Time // nil = time.Now
}

// Times of tokens: one is replaced a little before it ends, and revoking waits
// for a host only so long.
const (
	renewBefore = 5 * time.Minute
	revokeLimit = 10 * time.Second
	retryEvery  = 30 * time.Second
)

// Credentials are the credentials of one connection, a token for each session,
// repository and access. It is an upstream.Injector.
type Credentials struct {
	o CredentialOptions

	mu       sync.Mutex
	sessions map[string]*holder
	left     map[string]kept // by digest: to be revoked, and not yet confirmed
}

// holder is one session's part.
type holder struct {
	own    Repository
	repos  map[string]Repository // by id: what may ever be minted for
	minted map[string]*minted    // by repository and access
	ended  bool
}

// minted is one token with those it replaced.
type minted struct {
	mu    sync.Mutex // held while it is minted
	token Token
	all   []kept
}

// kept is a record of a minted token, or of its end.
type kept struct {
	Session    string    `json:"session"`
	Connection string    `json:"connection"`
	Repository string    `json:"repository"`
	Access     Access    `json:"access"`
	Digest     string    `json:"digest"` // SHA-256 of the token
	Expires    time.Time `json:"expires"`
	Revoked    bool      `json:"revoked,omitempty"`

	value secret.Value // empty once it is revoked
}

// record is kept as it is written down: the one place where the token stands in
// the open.
type record struct {
	kept
	Token string `json:"token,omitempty"`
}

// NewCredentials returns the credentials of one connection.
func NewCredentials(o CredentialOptions) (*Credentials, error) {
	if (o.Mint == nil) != (o.Revoke == nil) || (o.Mint == nil) == o.Static.Empty() || o.Mint != nil && o.Keep == nil || o.Receipt == nil {
		return nil, errors.New("git: connection " + o.Connection + ": it needs a credential, or what mints and keeps one")
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.User == "" {
		o.User = "x-access-token"
	}
	return &Credentials{o: o, sessions: map[string]*holder{}, left: map[string]kept{}}, nil
}

// Open lets a session use its own repository and those it may read.
func (c *Credentials) Open(session string, own Repository, siblings []Repository) {
	h := &holder{own: own, repos: map[string]Repository{}, minted: map[string]*minted{}}
	for _, r := range append([]Repository{own}, siblings...) {
		if r.ID != "" {
			h.repos[r.ID] = r
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[session] = h
}

// Inject adds the credential for what was permitted, and no other.
func (c *Credentials) Inject(ctx context.Context, p *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	a := p.Action()
	var repository string
	var access Access
	bearer := false
	switch {
	case a.Fetch != nil:
		repository, access = a.Fetch.Repository, Read
	case a.Push != nil:
		repository, access = a.Push.Repository, Write
	case a.HTTP != nil:
		t := targetOf(r.Context())
		repository, access, bearer = t.Repository, t.Access, t.API
	default:
		return nil, errors.New("the action is none that this connection has a credential for")
	}
	to := p.To()
	if to != c.o.Git && to != c.o.API {
		return nil, problem.New(enforcers.CodeWrongHost, "the connection is for another host", "")
	}
	v, err := c.Token(ctx, p.Session(), repository, access)
	if err != nil {
		return nil, err
	}
	if bearer {
		r.Header["Authorization"] = []string{"Bearer " + string(v.Reveal())}
	} else {
		c.Authorize(r, v)
	}
	return []secret.Value{v}, nil
}

// Authorize adds a credential to a git request as the connection's host takes it.
func (c *Credentials) Authorize(r *http.Request, v secret.Value) {
	r.SetBasicAuth(c.o.User, string(v.Reveal()))
}

// Token returns the credential of one session for a repository and access,
// minting it when there is none that lives; "" is the session's own
// repository. It is written down, and its receipt durable, before it is
// returned.
func (c *Credentials) Token(ctx context.Context, session, repository string, access Access) (secret.Value, error) {
	c.mu.Lock()
	h := c.sessions[session]
	if h == nil || h.ended {
		c.mu.Unlock()
		return secret.Value{}, problem.New(enforcers.CodeRevoked, "the session has no credential any more", "")
	}
	r, ok := h.repos[repository]
	if repository == "" {
		r, ok = h.own, h.own.ID != ""
	}
	if !ok {
		c.mu.Unlock()
		return secret.Value{}, problem.New(enforcers.CodeCredential, "the session may not use this repository", "")
	}
	key := r.ID + " " + string(access)
	m := h.minted[key]
	if m == nil {
		m = &minted{}
		h.minted[key] = m
	}
	c.mu.Unlock()

	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.token.Value.Empty() && (m.token.Expires.IsZero() || c.o.Clock().Before(m.token.Expires.Add(-renewBefore))) {
		return m.token.Value, nil
	}
	return c.mint(ctx, h, m, session, r, access)
}

// mint makes, keeps and receipts a token. m is held.
func (c *Credentials) mint(ctx context.Context, h *holder, m *minted, session string, r Repository, access Access) (secret.Value, error) {
	// Whoever made a static credential knows what it is good for; the node does not.
	token := Token{Value: c.o.Static, Scope: map[string]string{"scope": "unknown"}}
	if c.o.Mint != nil {
		var err error
		if token, err = c.o.Mint(ctx, r, access); err != nil {
			return secret.Value{}, problem.Wrap(err, enforcers.CodeCredential, "couldn't mint a token for the repository", "")
		}
		k := kept{
			Session: session, Connection: c.o.Connection, Repository: r.ID, Access: access,
			Digest: digest(token.Value), Expires: token.Expires.UTC(), value: token.Value,
		}
		if err := c.keep(ctx, k); err != nil {
			return secret.Value{}, errors.Join(fmt.Errorf("couldn't write a token down: %w", err), c.o.Revoke(ctx, token.Value))
		}
		c.mu.Lock()
		ended := h.ended
		c.left[k.Digest] = k
		c.mu.Unlock()
		m.all = append(m.all, k)
		if ended {
			return secret.Value{}, problem.New(enforcers.CodeRevoked, "the session has ended", "")
		}
	}
	if c.o.Guard != nil {
		c.o.Guard(session, token.Value)
	}
	if err := c.o.Receipt(ctx, session, c.receipt(token, access, "issued"), false); err != nil {
		return secret.Value{}, fmt.Errorf("couldn't write the receipt of a token: %w", err)
	}
	m.token = token
	return token.Value, nil
}

func (c *Credentials) keep(ctx context.Context, k kept) error {
	b, err := json.Marshal(record{k, string(k.value.Reveal())})
	if err != nil {
		return err
	}
	return c.o.Keep(ctx, b)
}

func (c *Credentials) receipt(t Token, access Access, result string) receipts.Credential {
	scope := map[string]string{"access": string(access)}
	maps.Copy(scope, t.Scope)
	expires := t.Expires
	if !expires.IsZero() {
		expires = expires.UTC()
	}
	return receipts.Credential{Name: c.o.Connection, Delivery: "mediated", Host: c.o.Git.Host(), Scope: scope, Expires: expires, Result: result}
}

func digest(v secret.Value) string {
	sum := sha256.Sum256(v.Reveal())
	return hex.EncodeToString(sum[:])
}

// End revokes every token of a session. What the host does not confirm is
// tried again by Run; until then its receipt says pending.
func (c *Credentials) End(ctx context.Context, session string) error {
	c.mu.Lock()
	h := c.sessions[session]
	if h == nil {
		c.mu.Unlock()
		return nil
	}
	h.ended = true
	delete(c.sessions, session)
	all := slices.Collect(maps.Values(h.minted))
	c.mu.Unlock()
	var errs []error
	for _, m := range all {
		m.mu.Lock() // a token that is being minted is waited for
		tokens := m.all
		m.mu.Unlock()
		for _, k := range tokens {
			errs = append(errs, c.revoke(ctx, k, true))
		}
	}
	return errors.Join(errs...)
}

// revoke ends one token and writes down that it did. first has a receipt also
// when it failed.
func (c *Credentials) revoke(ctx context.Context, k kept, first bool) error {
	ctx, cancel := context.WithTimeout(ctx, revokeLimit)
	defer cancel()
	t := Token{Scope: map[string]string{"repository.id": k.Repository, "session": k.Session}, Expires: k.Expires}
	if c.o.Clock().Before(k.Expires) {
		if err := c.o.Revoke(ctx, k.value); err != nil {
			if first {
				err = errors.Join(err, c.o.Receipt(ctx, k.Session, c.receipt(t, k.Access, "pending"), true))
			}
			return err
		}
	}
	k.Revoked, k.value = true, secret.Value{}
	if err := c.keep(ctx, k); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.left, k.Digest)
	c.mu.Unlock()
	return c.o.Receipt(ctx, k.Session, c.receipt(t, k.Access, "revoked"), true)
}

// Recover reads a record that an earlier run kept. What has no record of its end
// when Run begins is revoked.
func (c *Credentials) Recover(b []byte) error {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return errors.New("a kept token is malformed") // the decoder's words could quote it
	}
	k := r.kept
	k.value = secret.FromString(r.Token)
	if k.Connection != c.o.Connection {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.Revoked {
		delete(c.left, k.Digest)
	} else {
		c.left[k.Digest] = k
	}
	return nil
}

// Pending counts the tokens of a session that has ended that the host has not
// confirmed as revoked.
func (c *Credentials) Pending() int {
	return len(c.orphans())
}

// orphans are tokens that no session holds.
func (c *Credentials) orphans() []kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []kept
	for _, k := range c.left {
		if c.sessions[k.Session] == nil {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b kept) int { return a.Expires.Compare(b.Expires) })
	return out
}

// Run revokes what an earlier run, or an ending that could not reach the host,
// left behind, until ctx ends.
func (c *Credentials) Run(ctx context.Context) error {
	if c.o.Mint == nil {
		return nil
	}
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		c.Sweep(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Sweep tries once to revoke what no session holds.
func (c *Credentials) Sweep(ctx context.Context) {
	for _, k := range c.orphans() {
		if ctx.Err() != nil {
			return
		}
		_ = c.revoke(ctx, k, false) // it stays, and is tried again
	}
}
