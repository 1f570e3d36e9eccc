package upstream

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
)

// Keeper is asked where an answer's Location is to lead instead. secret says
// that it may not enter the sandbox as it stands. ok is false where the Keeper
// knows no other place: then the answer is refused.
type Keeper func(location string, secret bool) (instead string, ok bool)

// ask replaces the Location of a redirect. The body, which is for people and
// likes to repeat the address, stays outside with it.
//
// Only the query is kept: the path is judged, and stands in receipts. An address
// that holds what is watched anywhere else, or a connection's own credential at
// all, is left as it is, and refused like any other field that does.
func (keep Keeper) ask(resp *http.Response, to authority.Authority, t *tripwire) error {
	if keep == nil || !redirects(resp.StatusCode) || len(resp.Header["Location"]) != 1 {
		return nil
	}
	location := resp.Header["Location"][0]
	place, query, _ := strings.Cut(location, "?")
	if t.within(place) || signs([]byte(place)) || !t.signed && t.within(location) {
		return nil
	}
	instead, ok := keep(location, signs([]byte(location)) || !sameOrigin(location, to))
	switch {
	case !ok:
		return fail(enforcers.CodeAnswerCredential, "the answer redirects to where no door URL leads", nil) // EG-59, EG-108
	case instead == location:
		return nil
	}
	if n := resp.ContentLength; n > 0 && n <= shortBody {
		_, _ = io.CopyN(io.Discard, resp.Body, n) // read to its end, the connection can be used again
	}
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength, resp.Trailer = http.NoBody, 0, nil
	for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Language", "Content-Range", "Etag", "Expires", "Last-Modified"} {
		delete(resp.Header, name)
	}
	resp.Header["Location"] = []string{instead}
	resp.Header["Content-Length"] = []string{"0"}
	resp.Header["Cache-Control"] = []string{"no-store"} // what it leads to ends, also when it was moved for good
	// What stayed outside with the Location must not come in beside it.
	beside := newTripwire(signature(secret.FromString(query)))
	beside.signed = true
	return beside.head(resp.Header)
}

// shortBody is a redirect's body that is worth reading for the connection's sake.
const shortBody = 4 << 10

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// sign adds the query of a signed URL, as it stands. Like every credential it is
// added last, over verified TLS, and never to a would-block.
func sign(p *enforcers.Permit, out *http.Request, k *client) ([]secret.Value, error) {
	a := p.Action()
	switch {
	case p.WouldBlock(), p.Grant().Connection != "":
		return nil, fail(enforcers.CodeCredential, "the permit does not cover a signed URL", nil)
	case k.conn.tls == nil, p.To().IsIP():
		return nil, fail(enforcers.CodeCredential, "a credential is never added to an unencrypted request", nil)
	case out.Method != http.MethodGet && out.Method != http.MethodHead, out.Body != nil:
		return nil, fail(enforcers.CodeDoorURLUse, "a signed URL is only read", nil)
	case a.HTTP.Query != "":
		return nil, fail(enforcers.CodePermit, "the permit is for another query", nil)
	}
	watch := signature(a.Signed.Query)
	if len(watch) == 0 || len(watch) > maxParts {
		return nil, fail(enforcers.CodeCredential, "the signed URL cannot be guarded", nil)
	}
	prepareInjected(out.Header)
	out.URL.RawQuery = string(a.Signed.Query.Reveal())
	return watch, nil
}

// maxParts bounds what one answer is searched for.
const maxParts = 16

// longValue is from where on a value of a key that nobody knows is taken for a
// secret, in a query without a key that somebody knows.
const longValue = 16

// overrides are keys whose values an answer repeats because they say what it is
// to look like.
var overrides = []string{"rscc", "rscd", "rsce", "rscl", "rsct"}

// signature returns what of a signed URL's query must not come back in the
// answer: the whole, and by themselves the values that the signature is made of.
// It is empty for a query too short to be told from chance.
func signature(query secret.Value) (watch []secret.Value) {
	add := func(v string, least int) {
		if len(v) >= least && !slices.ContainsFunc(watch, func(w secret.Value) bool { return w.Equal([]byte(v)) }) {
			watch = append(watch, secret.FromString(v))
		}
	}
	whole := string(query.Reveal())
	add(whole, minSecret)
	if len(watch) == 0 {
		return nil
	}
	type pair struct{ key, raw, plain string }
	var pairs []pair
	known := false
	for part := range strings.SplitSeq(strings.ReplaceAll(whole, ";", "&"), "&") {
		name, value, _ := strings.Cut(part, "=")
		p := pair{strings.ToLower(name), value, value}
		if key, err := url.QueryUnescape(name); err == nil {
			p.key = strings.ToLower(key)
		}
		if plain, err := url.QueryUnescape(value); err == nil {
			p.plain = plain
		}
		known = known || slices.Contains(signedKeys, p.key) && len(value) >= minSecret
		pairs = append(pairs, p)
	}
	for _, p := range pairs {
		least := longValue
		switch {
		case slices.Contains(signedKeys, p.key):
			least = minSecret
		case known, strings.HasPrefix(p.key, "response-"), slices.Contains(overrides, p.key):
			continue
		}
		add(p.raw, least)
		add(p.plain, least)
	}
	return watch
}

// tripwire returns what looks for the values that the request of p carried. A
// signed URL's are nobody's next request's.
func (c *Client) tripwire(p *enforcers.Permit, watch []secret.Value) *tripwire {
	if p.Action().Signed == nil {
		return c.tripwires.of(p.Action().Connection, watch)
	}
	t := newTripwire(watch)
	t.signed = true
	return t
}
