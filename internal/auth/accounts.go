package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"gatehouse/internal/problem"
)

// account says which person a subject of the provider is. A subject is the only
// claim that a provider never gives anew (OpenID Connect Core, 5.7); an address or
// a name may be changed by its owner, who would then be two of the people that a
// widening needs.
type account struct {
	Issuer  string    `json:"issuer"`
	Subject string    `json:"sub"`
	Claim   string    `json:"claim"` // that names the person: what another one named says nothing about this one
	Person  string    `json:"person"`
	Groups  []string  `json:"groups"` // that have roles here, at the newest login
	Kept    time.Time `json:"kept"`
}

// standing is what a person had at their newest login: the groups, whose roles the
// configuration of today says, and when that was kept.
type standing struct {
	groups []string
	kept   time.Time
}

// ownerLife is how long a token holds without its owner logging in: whoever was
// removed at the provider logs in no more, and nothing else tells the node.
const ownerLife = 30 * 24 * time.Hour

// accountRecord is an account in the store, told apart from a token by its member.
type accountRecord struct {
	Account *account `json:"account"`
}

// accountLife is how long a record of an account is taken to last: the journal lets
// its oldest records go, so a login writes an older one again.
const accountLife = 24 * time.Hour

const maxSubject = 255 // bytes, as OpenID Connect Core allows

// learn takes a record of an account from the store.
func (a *Auth) learn(x account) {
	if o := a.o.OIDC; o != nil && x.Issuer == o.Issuer && x.Claim == o.Person {
		a.bySubject[x.Subject], a.byPerson[x.Person] = x, x.Subject
		a.mu.Lock()
		a.standing[x.Person] = standing{x.Groups, x.Kept}
		a.mu.Unlock()
	}
}

// left returns which of the roles a person still has: those that their groups of
// the newest login have under the configuration of today. seen bounds how long ago
// that may be; 0 does not. The caller holds mu.
func (a *Auth) left(person string, roles []Role, seen time.Duration) []Role {
	if person == Local {
		return roles // the machine's own user
	}
	s, ok := a.standing[person]
	if !ok || a.o.OIDC == nil || seen > 0 && a.o.Clock().Sub(s.kept) >= seen {
		return nil
	}
	have := a.o.OIDC.rolesOf(s.groups)
	return slices.DeleteFunc(slices.Clone(roles), func(r Role) bool { return !within([]Role{r}, have) })
}

// rolesOf returns the roles of groups.
func (o *OIDC) rolesOf(groups []string) []Role {
	var out []Role
	for _, g := range groups {
		out = append(out, o.Roles[g]...)
	}
	return known(out)
}

// dropped notes that a person whom the provider still vouches for has no role here
// any more, so that what they made loses its own at once.
func (a *Auth) dropped(ctx context.Context, subject, person string) {
	a.binding.Lock()
	defer a.binding.Unlock()
	x, met := a.bySubject[subject]
	if !met || x.Person != person || len(x.Groups) == 0 {
		return
	}
	x.Groups, x.Kept = []string{}, a.o.Clock().UTC()
	a.learn(x)
	b, err := json.Marshal(accountRecord{&x})
	if err == nil {
		err = a.o.Store.Append(ctx, b)
	}
	if err != nil {
		a.o.Log.ErrorContext(ctx, "couldn't keep that a person has no role any more", slog.String("person", person), slog.Any("err", err))
	}
}

// bind holds a subject to its person and a person to their subject, from the first
// login on. It returns when that is durable.
func (a *Auth) bind(ctx context.Context, subject, person string, groups []string) error {
	if subject == "" || len(subject) > maxSubject {
		return problem.New(problem.LoginRefused, "the identity provider names nobody", "its ID tokens need a subject")
	}
	now := a.o.Clock()
	a.binding.Lock() // held while writing: of two first logins, one waits for the other
	defer a.binding.Unlock()
	was, met := a.bySubject[subject]
	switch other, taken := a.byPerson[person]; {
	case met && was.Person != person:
		return problem.New(problem.PersonChanged, "this account is known here as "+was.Person, "have that name restored at the identity provider, or configure oidc.person: sub")
	case taken && other != subject:
		return problem.New(problem.PersonChanged, person+" is known here by another account", "log in with that one, or configure oidc.person: sub")
	case met && now.Sub(was.Kept) < accountLife && slices.Equal(was.Groups, groups):
		return nil
	}
	x := account{Issuer: a.o.OIDC.Issuer, Subject: subject, Claim: a.o.OIDC.Person, Person: person, Groups: groups, Kept: now.UTC()}
	b, err := json.Marshal(accountRecord{&x})
	if err != nil {
		return err
	}
	if err := a.o.Store.Append(ctx, b); err != nil {
		return problem.Wrap(fmt.Errorf("couldn't keep the account: %w", err), problem.Unavailable, "the login could not be kept", "try again; the operator's log says more")
	}
	a.learn(x)
	return nil
}
