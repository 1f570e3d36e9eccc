package auth

import (
	"context"
	"encoding/json"
	"fmt"
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
	Kept    time.Time `json:"kept"`
}

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
	}
}

// bind holds a subject to its person and a person to their subject, from the first
// login on. It returns when that is durable.
func (a *Auth) bind(ctx context.Context, subject, person string) error {
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
	case met && now.Sub(was.Kept) < accountLife:
		return nil
	}
	x := account{Issuer: a.o.OIDC.Issuer, Subject: subject, Claim: a.o.OIDC.Person, Person: person, Kept: now.UTC()}
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
