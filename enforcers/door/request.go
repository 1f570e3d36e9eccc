package door

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
)

// Request is one HTTP request from the sandbox that is well formed and names
// no host but To. The embedded request's Host and URL carry nothing that says
// where it goes.
type Request struct {
	*http.Request
	To      authority.Authority
	Path    string // canonical, judged and sent
	Query   string // raw
	Upgrade string // "websocket" or ""
	Gate    *enforcers.Gate
	Up      *upstream.Client

	door *Door
	link *link // nil in HTTP/2
	body *body
	end  context.CancelFunc // nil while the context is the link's
}

// alone gives a request of an HTTP/1.1 connection a context of its own, which a
// mediator may rest things on that it starts. The door's own forward starts
// nothing but the exchange, which upstream ends with the answer; its context is
// the connection's.
func (r *Request) alone() {
	if r.link == nil {
		return
	}
	ctx, end := context.WithCancel(r.Context())
	r.Request, r.end = r.Request.WithContext(ctx), end
}

// over ends what alone began.
func (r *Request) over() {
	if r.end != nil {
		r.end()
	}
}

// Handler carries out one recognized request: a mediator, or the door's own
// plain forward.
type Handler interface {
	ServeDoor(w http.ResponseWriter, r *Request)
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(w http.ResponseWriter, r *Request)

// ServeDoor calls f.
func (f HandlerFunc) ServeDoor(w http.ResponseWriter, r *Request) { f(w, r) }

// Route sends the requests that Match to Handler.
type Route struct {
	Match   func(*Request) bool
	Handler Handler
	// HTTP1 reports hosts where a client that can speak both is to speak HTTP/1.1
	// rather than HTTP/2; nil: there are none.
	HTTP1 func(authority.Authority) bool
}

// run dispatches r on an HTTP/1.1 connection and turns a panic into an
// incomplete response.
func (d *Door) run(w *reply, r *Request) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			w.abort()
		default:
			d.o.Log.ErrorContext(r.Context(), "door.panic", slog.Any("value", v), slog.String("stack", string(debug.Stack())))
			w.abort()
			if !w.sent {
				w.header = nil
				w.small, w.status = nil, http.StatusInternalServerError
			}
		}
	}()
	d.dispatch(w, r)
}

// dispatch gives r to the first route that takes it.
func (d *Door) dispatch(w http.ResponseWriter, r *Request) {
	if r.To.Host() == Reserved && d.follow(w, r) {
		return
	}
	for _, route := range d.o.Routes {
		if route.Match(r) {
			r.alone()
			route.Handler.ServeDoor(w, r)
			return
		}
	}
	if r.To.Host() == Reserved {
		http.NotFound(w, r.Request)
		return
	}
	d.forward(w, r)
}

// newRequest makes q the Request of one that was examined, and u its URL. What r
// says of hosts is not the client's from here on.
func (d *Door) newRequest(q *Request, u *url.URL, r *http.Request, to authority.Authority, path, query string) *Request {
	plain, err := url.PathUnescape(path)
	if err != nil {
		plain = path // cannot happen: the path is canonical
	}
	*u = url.URL{Path: plain, RawPath: path, RawQuery: query}
	r.URL, r.Host, r.RemoteAddr = u, to.HostHeader(), ""
	*q = Request{Request: r, To: to, Path: path, Query: query, Gate: d.gate, Up: d.o.Up, door: d}
	return q
}

// Action returns the http.request that r is, for the gate. Mediators that
// recognize something more specific build their own.
func (r *Request) Action() *enforcers.Action {
	return r.action(r.door.bound(r.To))
}

// action is Action for who knows the connection that is bound to the host.
func (r *Request) action(connection string) *enforcers.Action {
	a := r.Gate.Action(enforcers.HTTPRequest)
	a.Connection = connection
	mode := "none"
	if r.ContentLength != 0 {
		mode = "head"
	}
	a.HTTP = &enforcers.HTTP{
		To: r.To, Method: r.Method, Path: r.Path, Query: r.Query,
		Headers: shown(r.Header), Body: enforcers.Body{Mode: mode, Length: r.ContentLength}, Upgrade: r.Upgrade,
	}
	return a
}

// Decide asks the gate about a and notes the name it went to, so that later
// requests for the same name are not counted as new ones.
func (r *Request) Decide(a *enforcers.Action) (*enforcers.Permit, enforcers.Decision) {
	if a.HTTP != nil && a.HardSet == "" && a.Authority() && r.otherMethod() {
		a.HardSet = enforcers.CodeMethodRefused // EG-54: the rule's methods are what it may be used for
	}
	r.inspect(a)
	p, decision := r.Gate.Decide(r.Context(), a)
	if p != nil && !r.To.IsIP() {
		_, _, _ = r.door.names.addresses(r.To.Host())
	}
	return p, decision
}

// methodFields name another method to many servers, some of which ask for them in
// the query too.
var methodFields = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// otherMethod reports whether a field or the query names a method that is not the
// one that is judged: many servers would take that one.
func (r *Request) otherMethod() bool {
	other := func(method string) bool { return !strings.EqualFold(strings.TrimSpace(method), r.Method) }
	for _, name := range methodFields {
		if slices.ContainsFunc(r.Header[name], other) {
			return true
		}
	}
	for part := range strings.FieldsFuncSeq(r.Query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, _ := strings.Cut(part, "=")
		if value != "" && methodParameter(name) && other(unescaped(value)) {
			return true
		}
	}
	return false
}

// methodParameter reports whether a parameter of a query is one that servers take
// a method from: Laravel, Symfony and Spring _method, Salesforce _HttpMethod. PHP makes an underscore of a dot, drops spaces in front
// and ends a name at a NUL.
func methodParameter(name string) bool {
	name, _, _ = strings.Cut(strings.TrimLeft(unescaped(name), " "), "\x00")
	if strings.HasPrefix(name, ".") {
		name = "_" + name[1:]
	}
	is := func(s string) bool { return strings.EqualFold(s, name) }
	return is("_method") || is("_HttpMethod") || slices.ContainsFunc(methodFields, is)
}

// unescaped decodes a part of a query, which stays what it is where it cannot be
// decoded.
func unescaped(s string) string {
	if t, err := url.QueryUnescape(s); err == nil {
		return t
	}
	return s
}

// forward is the plain forward: one decision, one request, one answer.
func (d *Door) forward(w http.ResponseWriter, r *Request) {
	connection := d.bound(r.To)
	tokens, code := r.credentials(connection)
	if r.Upgrade != "" && !handshake(r) {
		code = enforcers.CodeUpgradeRefused // EG-47, EG-63
	}
	a := r.action(connection) // the one whose credentials were looked for
	a.HardSet = code
	p, decision := r.Decide(a)
	if p == nil {
		Refuse(w, decision)
		return
	}
	for _, token := range tokens {
		if !d.placeholders.use(token) { // somebody else took the last use
			p.Void(enforcers.CodePlaceholderSpent)
			Fail(w, decision, problem.New(enforcers.CodePlaceholderSpent, "the placeholder has been used up", ""))
			return
		}
	}
	if err := r.scan(connection); err != nil {
		p.Void(string(problem.CodeOf(err)))
		Fail(w, decision, err)
		return
	}
	resp, err := r.Send(p, r.Request)
	switch {
	case err != nil:
		Fail(w, decision, err)
	case resp.StatusCode == http.StatusSwitchingProtocols:
		d.websocket(w, r, resp, decision)
	default:
		Relay(w, resp)
	}
}

// Relay copies an answer from outside to the client and closes it. Streams are
// flushed as they come. An answer that breaks off ends the client's connection
// without an end of message.
func Relay(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close()
	if own, ok := w.(*reply); ok && len(own.header) == 0 {
		own.header = resp.Header // nobody else reads it any more
	} else {
		maps.Copy(w.Header(), resp.Header)
	}
	h := w.Header()
	var trailers []string
	for name := range resp.Trailer {
		trailers = append(trailers, name)
	}
	slices.Sort(trailers)
	if len(trailers) > 0 {
		h["Trailer"] = trailers
	}
	w.WriteHeader(resp.StatusCode)
	flusher, _ := w.(http.Flusher)
	stream := resp.ContentLength < 0 || strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	if stream && flusher != nil {
		flusher.Flush()
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := resp.Body.Read(*buf)
		if n > 0 {
			if _, err := w.Write((*buf)[:n]); err != nil {
				panic(http.ErrAbortHandler)
			}
			if stream && flusher != nil {
				flusher.Flush()
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	for _, name := range trailers {
		h[name] = resp.Trailer[name]
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// bound returns the connection whose credential a request to a host would use,
// "" if none. A host is bound as a whole: a request to it that no rule with
// the connection allows is refused rather than sent without the credential.
func (d *Door) bound(to authority.Authority) string {
	for g := range d.gate.Covering(to) {
		if g.Connection != "" {
			return g.Connection
		}
	}
	return ""
}

// slashAllowed reports whether any rule for the host lets encoded slashes
// through; whether the matching rule does is the enforcer's business.
func (d *Door) slashAllowed(to authority.Authority) bool {
	for g := range d.gate.Covering(to) {
		if g.EncodedPath {
			return true
		}
	}
	return false
}

// blind returns how a tunnel is to be relayed unread: "tcp", "tls" or "".
func (d *Door) blind(to authority.Authority) string {
	for g := range d.gate.Covering(to) {
		if g.Blind != "" {
			return g.Blind
		}
	}
	return ""
}

// admit reports the code of the bound that asking about a host would pass, ""
// if none.
func (d *Door) admit(to authority.Authority) string {
	if to.IsIP() || to.Host() == Reserved {
		return ""
	}
	return d.names.admit(to.Host())
}

// Fields that a request's action shows to enforcers, by the names that it shows
// them under. The list is closed: an unknown field could hold a credential.
var shownFields = func() map[string]string {
	lower := make(map[string]string)
	for _, name := range []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Content-Encoding", "Content-Type", "Git-Protocol",
		"If-Modified-Since", "If-None-Match", "Origin", "Range", "User-Agent", "X-Requested-With",
		"Anthropic-Beta", "Anthropic-Version", "X-Github-Api-Version",
	} {
		lower[name] = strings.ToLower(name)
	}
	return lower
}()

const maxShown = 512 // bytes of one value

func shown(h http.Header) map[string][]string {
	var out map[string][]string
	for name, values := range h {
		name, ok := shownFields[name]
		if !ok || len(values) == 0 {
			continue
		}
		values = slices.Clone(values)
		for i, v := range values {
			values[i] = v[:min(len(v), maxShown)]
		}
		if out == nil {
			out = make(map[string][]string)
		}
		out[name] = values
	}
	return out
}
