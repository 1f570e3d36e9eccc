package door

import (
	"crypto/rand"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"gatehouse/enforcers"
)

// A placeholder stands inside for a credential that is added outside, for
// clients that do not start without one. It is good for this session, for the
// hosts of its own rule, and where a credential belongs; anywhere else it is
// refused. It is no secret.
const placeholderPrefix = "gatehouse_ph_"

var placeholderForm = regexp.MustCompile(placeholderPrefix + `[A-Z2-7]{26}`)

// placeholders are the ones of one session. They die with its door.
type placeholders struct {
	mu sync.Mutex
	by map[string]*placeholder
}

type placeholder struct {
	env, connection string
	uses, used      int // uses 0 = no limit
}

// issue makes a placeholder for every variable that a grant names.
func (ps *placeholders) issue(grants []enforcers.Grant) {
	ps.by = make(map[string]*placeholder)
	named := make(map[string]bool)
	for _, g := range grants {
		if g.Env == "" || g.Connection == "" || named[g.Env] {
			continue
		}
		named[g.Env] = true
		ps.by[placeholderPrefix+rand.Text()[:26]] = &placeholder{env: g.Env, connection: g.Connection, uses: g.Uses}
	}
}

// Environment returns the variables that hold the session's placeholders.
func (d *Door) Environment() map[string]string {
	env := make(map[string]string, len(d.placeholders.by))
	for token, p := range d.placeholders.by {
		env[p.env] = token
	}
	return env
}

// check says why a token may not be used for a connection, "" if it may. The
// rule that gave it must still be in force.
func (ps *placeholders) check(token, connection string, grants []enforcers.Grant) (code string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.by[token]
	switch {
	case p == nil, !slices.ContainsFunc(grants, func(g enforcers.Grant) bool { return g.Env == p.env && g.Connection == p.connection }):
		return enforcers.CodePlaceholder
	case p.connection != connection:
		return enforcers.CodePlaceholderHost
	case p.uses > 0 && p.used >= p.uses:
		return enforcers.CodePlaceholderSpent
	default:
		return ""
	}
}

// use counts one use and reports whether it was within the limit.
func (ps *placeholders) use(token string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.by[token]
	if p == nil || (p.uses > 0 && p.used >= p.uses) {
		return false
	}
	p.used++
	return true
}

// credentialFields may authenticate a request.
var credentialFields = []string{
	"Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Access-Token", "Private-Token", "Deploy-Token",
	"Job-Token", "X-Goog-Api-Key", "X-Amz-Security-Token", "X-Gitlab-Token", "Npm-Auth-Token", "X-Nuget-Apikey", "X-Jfrog-Art-Api",
}

// credentialKeys are the same in a query.
var credentialKeys = []string{
	"access_token", "api_key", "apikey", "auth_token", "client_secret", "job_token", "key", "private_token", "token",
	"x-amz-signature", "x-amz-security-token", "x-goog-signature", "signature", "sig",
}

// credentials takes the request's own credentials out of it and says what is
// wrong with them, "" if nothing. On a host that a connection is bound to, only
// the session's own placeholder may stand where a credential belongs, and
// nothing of it goes on: the real one is added outside, last. Anywhere else a
// placeholder is refused wherever it stands.
func (r *Request) credentials(connection string) (tokens []string, code string) {
	if connection == "" {
		if r.mentionsPlaceholder() {
			return nil, enforcers.CodePlaceholderHost // EG-72, EG-74
		}
		return nil, ""
	}
	found, foreign := r.takeFields()
	fromQuery, foreignQuery := r.takeQuery()
	found = append(found, fromQuery...)
	for _, token := range found {
		if code := r.door.placeholders.check(token, connection, r.Gate.Grants()); code != "" {
			return nil, code // EG-72, EG-73
		}
	}
	switch {
	case foreign || foreignQuery:
		return nil, enforcers.CodeForeignCredential // EG-75
	case r.mentionsPlaceholder():
		return nil, enforcers.CodePlaceholderPlace // EG-74
	}
	return found, ""
}

// takeFields removes the credential-bearing fields.
func (r *Request) takeFields() (tokens []string, foreign bool) {
	for _, name := range credentialFields {
		for _, v := range r.Header[name] {
			found := placeholdersIn(v)
			tokens = append(tokens, found...)
			foreign = foreign || len(found) == 0
		}
		delete(r.Header, name)
	}
	return tokens, foreign
}

// takeQuery removes the credential-bearing pairs of the query.
func (r *Request) takeQuery() (tokens []string, foreign bool) {
	if r.Query == "" {
		return nil, false
	}
	var kept []string
	for pair := range strings.SplitSeq(r.Query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		plain, err1 := url.QueryUnescape(name)
		text, err2 := url.QueryUnescape(value)
		if err1 != nil || err2 != nil || !slices.Contains(credentialKeys, strings.ToLower(plain)) {
			kept = append(kept, pair)
			continue
		}
		found := placeholdersIn(text)
		tokens = append(tokens, found...)
		foreign = foreign || (len(found) == 0 && text != "")
	}
	r.Query = strings.Join(kept, "&")
	r.URL.RawQuery = r.Query
	return tokens, foreign
}

// placeholdersIn returns the placeholders of a credential value, those inside
// Basic included.
func placeholdersIn(v string) []string {
	if scheme, rest, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "basic") {
		if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			v = string(b)
		}
	}
	return placeholderForm.FindAllString(v, -1)
}

// mentionsPlaceholder reports whether something like a placeholder stands
// anywhere in the request's head.
func (r *Request) mentionsPlaceholder() bool {
	if mentionsText(r.Path) || mentionsText(r.Query) {
		return true
	}
	for _, values := range r.Header {
		for _, v := range values {
			if mentionsText(v) {
				return true
			}
		}
	}
	return false
}

// TakeCredentials removes every credential of the request's own and returns
// them, Basic decoded, for a mediator that has placeholders of its own to know
// them by. What a mediator does not know is foreign (EG-75).
func (r *Request) TakeCredentials() []string {
	var values []string
	for _, name := range credentialFields {
		for _, v := range r.Header[name] {
			if scheme, rest, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "basic") {
				if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
					v = string(b)
				}
			}
			values = append(values, v)
		}
		delete(r.Header, name)
	}
	var kept []string
	for pair := range strings.SplitSeq(r.Query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if err == nil && slices.Contains(credentialKeys, strings.ToLower(plain)) {
			values = append(values, value)
			continue
		}
		kept = append(kept, pair)
	}
	r.Query = strings.Join(kept, "&")
	r.URL.RawQuery = r.Query
	return values
}
