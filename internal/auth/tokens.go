package auth

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"gatehouse/internal/problem"
)

// Store keeps the records of tokens and accounts where nobody outside the node reads
// them: the journal's private records. A record holds a token's digest, never the token.
type Store interface {
	// Append returns when the record is durable.
	Append(ctx context.Context, record []byte) error
	// All yields the records in their order.
	All() iter.Seq2[[]byte, error]
}

// Token is an API token as lists show it.
type Token struct {
	ID      string    `json:"id"`
	Person  string    `json:"person" doc:"whose it is; what is done with it is done by them"`
	Name    string    `json:"name"`
	Roles   []Role    `json:"roles"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Revoked bool      `json:"revoked,omitempty"`
}

// record is one journaled change of a token.
type record struct {
	Token
	Digest string `json:"digest"` // lower hex SHA-256
}

// Lives of tokens. One that may approve or administer is as good as a login, so it
// lives about as long as one is fresh.
const (
	approverTokenLife = time.Hour
	longestTokenLife  = 90 * 24 * time.Hour
	maxTokens         = 1024
	maxTokenName      = 64
	tokenPrefix       = "gatehouse_at_"
)

// load reads the store.
func (a *Auth) load() error {
	if a.o.Store == nil {
		return nil
	}
	for b, err := range a.o.Store.All() {
		if err != nil {
			return fmt.Errorf("couldn't read the tokens and accounts: %w", err)
		}
		var s struct { // a token, or an account
			record
			accountRecord
		}
		if err := json.Unmarshal(b, &s); err != nil {
			return fmt.Errorf("couldn't read a token or account: %w", err)
		}
		if s.Account != nil {
			a.learn(*s.Account)
			continue
		}
		r := s.record
		d, err := hex.DecodeString(r.Digest)
		if err != nil || len(d) != 32 {
			return fmt.Errorf("token %s has no digest", r.ID)
		}
		if r.Revoked {
			delete(a.tokens, [32]byte(d))
			continue
		}
		a.tokens[[32]byte(d)] = &r.Token
	}
	return nil
}

// Powers of a token are some of its owner's.
func within(roles, of []Role) bool {
	return !slices.ContainsFunc(roles, func(r Role) bool { return !slices.Contains(of, r) && !slices.Contains(of, Admin) })
}

// NewToken makes a token for the person who asks, and for nobody else. The text
// is shown once and kept nowhere.
func (a *Auth) NewToken(ctx context.Context, by Identity, name string, roles []Role, life time.Duration) (text string, t Token, err error) {
	now := a.o.Clock()
	roles = known(roles)
	most := longestTokenLife
	probe := Identity{Roles: roles}
	if probe.May(Approve) || probe.May(Administer) {
		most = approverTokenLife
	}
	switch {
	case a.o.Store == nil:
		return "", t, problem.New(problem.Unavailable, "this node keeps no tokens", "")
	case by.Kind == KindToken:
		return "", t, problem.New(problem.Forbidden, "a token makes no tokens", "log in")
	case !by.Fresh(now):
		return "", t, errAgain
	case name == "" || len(name) > maxTokenName:
		return "", t, problem.New(problem.Usage, "a token needs a name of at most 64 bytes", "say what it is for")
	case len(roles) == 0 || !within(roles, by.Roles):
		return "", t, problem.New(problem.Forbidden, "a token has some of its owner's roles and no other", "")
	case life <= 0 || life > most:
		return "", t, problem.New(problem.Usage, fmt.Sprintf("a token with these roles lives at most %s", most), "one that may approve lives an hour")
	}
	text = tokenPrefix + random()
	d := digest(text)
	t = Token{ID: hex.EncodeToString(d[:6]), Person: by.Person, Name: name, Roles: roles, Created: now.UTC(), Expires: now.Add(life).UTC()}
	a.mu.Lock()
	n := len(a.tokens)
	a.mu.Unlock()
	if n >= maxTokens {
		return "", Token{}, problem.New(problem.Unavailable, "there are too many tokens", "revoke some")
	}
	if err := a.keep(ctx, record{t, hex.EncodeToString(d[:])}, "token.add", by); err != nil {
		return "", Token{}, err
	}
	a.mu.Lock()
	a.tokens[d] = &t
	a.mu.Unlock()
	return text, t, nil
}

var errAgain = problem.New(problem.LoginAgain, "this step needs a login that is minutes old", "log in again")

func (a *Auth) keep(ctx context.Context, r record, step string, by Identity) error {
	if a.o.Note != nil {
		if err := a.o.Note(ctx, step, r.ID, by); err != nil {
			return err
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := a.o.Store.Append(ctx, b); err != nil {
		return fmt.Errorf("couldn't keep the token: %w", err)
	}
	return nil
}

// Revoke ends a token: one's own, or anybody's for who administers.
func (a *Auth) Revoke(ctx context.Context, by Identity, id string) error {
	a.mu.Lock()
	var found *Token
	var d [32]byte
	for k, t := range a.tokens {
		if t.ID == id {
			found, d = t, k
		}
	}
	a.mu.Unlock()
	if found == nil || found.Person != by.Person && !by.May(Administer) {
		return problem.New(problem.NotFound, "no token "+id, "list them first")
	}
	r := record{*found, hex.EncodeToString(d[:])}
	r.Revoked = true
	if err := a.keep(ctx, r, "token.revoke", by); err != nil {
		return err
	}
	a.mu.Lock()
	delete(a.tokens, d)
	a.mu.Unlock()
	return nil
}

// Tokens lists a person's tokens, everybody's for who administers, newest first.
func (a *Auth) Tokens(by Identity) []Token {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []Token{}
	for _, t := range a.tokens {
		if t.Person == by.Person || by.May(Administer) {
			out = append(out, *t)
		}
	}
	slices.SortFunc(out, func(x, y Token) int { return cmp.Or(y.Created.Compare(x.Created), cmp.Compare(x.ID, y.ID)) })
	return out
}

// bearer finds a token by the digest of its text, so that comparing leaks nothing.
// It has of its roles those that its owner still has. The caller holds mu.
func (a *Auth) bearer(key [32]byte) (Identity, bool) {
	t := a.tokens[key]
	if t == nil || !a.o.Clock().Before(t.Expires) {
		return Identity{}, false
	}
	roles := a.left(t.Person, t.Roles, ownerLife) // T-15
	return Identity{Person: t.Person, Name: t.Person, Roles: roles, Kind: KindToken, Token: t.ID, At: t.Created, key: key}, len(roles) > 0
}
