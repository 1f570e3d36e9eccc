package door

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// A door URL stands inside for an address that works by itself, to which an
// answer on a connection redirects: a signed URL (EG-108). Its query stays
// outside and is sent as a credential would be, when the door URL is asked for
// and the bundle lets the real host be asked for that path.
const doorURLPath = "/url/"

// Bounds on a session's door URLs. Clients follow a redirect at once; whoever
// waits longer asks again for what redirected.
const (
	maxDoorURLs  = 128
	doorURLLife  = 5 * time.Minute
	maxRedirects = 3 // behind one answer of a connection
	minQuery     = 8 // shorter ones cannot be guarded; see upstream
)

// doorURL is where one of them leads.
type doorURL struct {
	to         authority.Authority
	path       string // canonical
	query      secret.Value
	connection string // whose answer led here, directly or not
	redirects  int    // from that answer to here
	generation uint64
	until      time.Time
}

// doorURLs are the ones of one session under one policy. They die with either.
type doorURLs struct {
	mu    sync.Mutex
	by    map[string]doorURL
	order []string // oldest first
	life  context.Context
}

// add takes u in until life ends and returns its handle. The oldest one makes
// room.
func (us *doorURLs) add(life context.Context, now time.Time, u doorURL) (handle string, ok bool) {
	us.mu.Lock()
	defer us.mu.Unlock()
	switch {
	case life.Err() != nil:
		return "", false // an answer from before a change, or behind the end
	case us.life != life:
		if us.life != nil && us.life.Err() == nil {
			return "", false
		}
		us.drop(len(us.order))
		us.by, us.life = make(map[string]doorURL), life
		context.AfterFunc(life, func() { us.end(life) })
	}
	us.expire(now)
	us.drop(len(us.order) - (maxDoorURLs - 1))
	handle = rand.Text()
	us.by[handle], us.order = u, append(us.order, handle)
	return handle, true
}

// get returns a live one; its query is the caller's own copy.
func (us *doorURLs) get(handle string, generation uint64, now time.Time) (doorURL, bool) {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.expire(now)
	u, ok := us.by[handle]
	if !ok || us.life.Err() != nil || u.generation != generation || !now.Before(u.until) {
		return doorURL{}, false
	}
	u.query = secret.New(bytes.Clone(u.query.Reveal()))
	return u, true
}

// end forgets what life's policy gave.
func (us *doorURLs) end(life context.Context) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.life == life {
		us.drop(len(us.order))
	}
}

// expire forgets those whose time is over: they are in the order of it.
func (us *doorURLs) expire(now time.Time) {
	n := 0
	for n < len(us.order) && !now.Before(us.by[us.order[n]].until) {
		n++
	}
	us.drop(n)
}

// drop forgets the n oldest.
func (us *doorURLs) drop(n int) {
	for ; n > 0; n-- {
		us.by[us.order[0]].query.Wipe()
		delete(us.by, us.order[0])
		us.order = us.order[1:]
	}
}

// Send carries out what p permits, as Up.Do does. Where the answer to a request
// that carried a connection's credential redirects to a signed URL, the client
// gets a door URL in its place. Everything else that works by itself still
// refuses the answer.
func (r *Request) Send(p *enforcers.Permit, out *http.Request) (*http.Response, error) {
	if a := p.Action(); a != nil && a.Kind == enforcers.HTTPRequest && a.Connection != "" && reads(a.HTTP.Method) {
		return r.Up.DoKeeping(p, out, r.door.keeper(p, a.Connection, 0))
	}
	return r.Up.Do(p, out)
}

func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// keeper makes a door URL of where an answer redirects to. redirects is how many
// lie behind it already.
func (d *Door) keeper(p *enforcers.Permit, connection string, redirects int) upstream.Keeper {
	return func(location string, withheld bool) (string, bool) {
		if redirects == 0 && !withheld {
			return location, true
		}
		base := authority.Authority{}
		if redirects > 0 {
			base = p.To() // the client takes a relative address for one at the door
		}
		to, path, query, ok := d.address(location, base)
		switch {
		case !ok:
			return "", false
		case query == "":
			return "https://" + to.HostHeader() + path, true
		case redirects == maxRedirects, len(query) < minQuery, d.bound(to) != "", d.mediated(to, path, query):
			return "", false
		}
		handle, ok := d.urls.add(p.Context(), d.o.Clock(), doorURL{
			to: to, path: path, query: secret.FromString(query), connection: connection,
			redirects: redirects + 1, generation: p.Generation(), until: d.o.Clock().Add(doorURLLife),
		})
		return "https://" + Reserved + doorURLPath + handle, ok
	}
}

// address reads a Location as strictly as what comes from inside: https, a host
// by name, no user, no fragment, a path that the door judges and sends in one
// form. A path alone is one on base, if there is one.
func (d *Door) address(location string, base authority.Authority) (to authority.Authority, path, query string, ok bool) {
	if !visible(location) || len(location) > maxTarget {
		return to, "", "", false
	}
	rest, ok := cutScheme(location, authority.HTTPS)
	if !ok {
		switch {
		case base.IsZero() || !strings.HasPrefix(location, "/"):
			return to, "", "", false
		case strings.HasPrefix(location, "//"):
			rest = location[2:]
		default:
			rest = base.HostHeader() + location
		}
	}
	host, target := cutAuthority(rest)
	to, err := authority.ParseHostHeader(authority.HTTPS, host)
	if err != nil || to.IsIP() || to.Host() == Reserved {
		return to, "", "", false
	}
	path, query, slashed, err := splitTarget(target)
	return to, path, query, err == nil && (!slashed || d.slashAllowed(to))
}

// mediated reports whether somebody other than the door itself would carry out a
// request: what the mediator looks at could be passed by.
func (d *Door) mediated(to authority.Authority, path, query string) bool {
	r := d.newRequest(new(Request), new(url.URL), &http.Request{Method: http.MethodGet, Header: http.Header{}, Body: http.NoBody}, to, path, query)
	for _, route := range d.o.Routes {
		if route.Match(r) {
			return true
		}
	}
	return false
}

// follow answers a request for a door URL, and reports false for any other
// request to the reserved host. It is judged as what it is, a request to the
// real host, which uses authority.
func (d *Door) follow(w http.ResponseWriter, r *Request) bool {
	handle, ok := strings.CutPrefix(r.Path, doorURLPath)
	if !ok {
		return false
	}
	u, ok := d.urls.get(handle, r.Gate.Generation(), d.o.Clock())
	if !ok {
		d.refuse(r.Context(), w, enforcers.CodeDoorURL, r.To)
		return true
	}
	defer u.query.Wipe()
	_, code := r.credentials(u.connection) // a client may have sent on what was for the connection: nothing of it goes on
	switch {
	case code != "":
	case !reads(r.Method), r.ContentLength != 0, r.Query != "", r.Upgrade != "":
		code = enforcers.CodeDoorURLUse
	default:
		code = d.admit(u.to)
	}
	real := *r
	real.To, real.Path, real.Query = u.to, u.path, ""
	a := r.Gate.Action(enforcers.HTTPRequest)
	a.HTTP = &enforcers.HTTP{To: u.to, Method: r.Method, Path: u.path, Headers: shown(r.Header), Body: enforcers.Body{Mode: "none"}}
	a.Signed, a.HardSet = &enforcers.Signed{Query: u.query, By: u.connection}, code
	p, decision := real.Decide(a)
	if p == nil {
		Refuse(w, decision)
		return true
	}
	if p.Generation() != u.generation {
		p.Void(enforcers.CodeGeneration)
		Fail(w, decision, problem.New(enforcers.CodeGeneration, "the policy that gave the door URL has been replaced", ""))
		return true
	}
	resp, err := r.Up.DoKeeping(p, r.Request, d.keeper(p, u.connection, u.redirects))
	if err != nil {
		Fail(w, decision, err)
		return true
	}
	// What a store says of its own host would be about the door.
	for _, name := range []string{"Strict-Transport-Security", "Clear-Site-Data", "Service-Worker-Allowed", "Nel", "Report-To", "Reporting-Endpoints", "Public-Key-Pins", "Expect-Ct", "Accept-Ch", "Origin-Agent-Cluster"} {
		delete(resp.Header, name)
	}
	// Nor is a page of it one of the door's: in a browser it would reach what else the
	// door answers to.
	resp.Header["Content-Security-Policy"] = append(resp.Header["Content-Security-Policy"], "sandbox allow-scripts allow-forms")
	Relay(w, resp)
	return true
}
