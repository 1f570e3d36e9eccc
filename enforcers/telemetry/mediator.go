package telemetry

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"gatehouse/enforcers/door"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Connection is one telemetry connection of the node.
type Connection struct {
	Name     string
	Provider string // otlp | langfuse | sentry
	// URL is where an otlp collector or a Langfuse is, with the path that its
	// routes stand below: https://otlp.example.com/otlp. "" for langfuse is its
	// cloud. A Sentry is where its DSN says.
	URL string
	// Scheme is how an otlp connection authenticates: bearer | basic | header.
	Scheme string
	Header string // of scheme header
	// Credential is the token of an otlp connection, "public:secret" of a
	// langfuse one, the DSN of a sentry one.
	Credential secret.Value
}

// Options configure the mediator of one session.
type Options struct {
	Session     string
	Bundle      string
	Connections []Connection
	Patience    time.Duration    // for a sink to answer, 0 = 5 s
	Seen        func(Event)      // nil = nobody counts
	Clock       func() time.Time // nil = time.Now
}

// Event is one message that was dealt with, for metrics.
type Event struct {
	Connection string
	Code       string // "" when the sink took it
}

// Bounds of one session.
const (
	maxPacked   = 4 << 20  // of one message as it comes
	maxPlain    = 16 << 20 // of one message, unpacked
	maxRatio    = 200      // of the two, for messages over ratioFrom
	ratioFrom   = 1 << 20
	maxItems    = 200_000          // parts of one message
	maxDepth    = 32               // of one message
	maxSession  = 64 << 20         // unpacked, in one session
	maxRequests = 20               // a second
	maxUnderWay = 4                // at once
	restFor     = 10 * time.Second // after a failure of the sink
)

// Mediator is one session's way to its telemetry connections. It is safe for
// concurrent use.
type Mediator struct {
	o     Options
	sinks []*sink

	mu       sync.Mutex // guards the fields below
	underWay int
	sent     int64     // bytes, unpacked
	window   time.Time // of the rate
	inWindow int
}

// sink is a connection with what its session adds.
type sink struct {
	Connection
	to          authority.Authority
	base        string // path that the routes stand below there, "" or "/x"
	project     string // sentry
	placeholder string
	rest        time.Time // nothing is sent before; guarded by Mediator.mu
}

const placeholderPrefix = "gatehouse_ph_"

// New returns the mediator of one session.
func New(o Options) (*Mediator, error) {
	if o.Patience == 0 {
		o.Patience = 5 * time.Second
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	m := &Mediator{o: o}
	for _, c := range o.Connections {
		s, err := sinkOf(c)
		if err != nil {
			return nil, err
		}
		s.placeholder = placeholderPrefix + rand.Text()[:26]
		m.sinks = append(m.sinks, s)
	}
	return m, nil
}

// Host returns the host that a connection's messages go to.
func Host(c Connection) (authority.Authority, error) {
	s, err := sinkOf(c)
	if err != nil {
		return authority.Authority{}, err
	}
	return s.to, nil
}

// sinkOf reads a connection: where it leads, and that its credential has the
// form that its provider wants. An error names no part of the credential.
func sinkOf(c Connection) (*sink, error) {
	bad := func(what string) (*sink, error) {
		return nil, problem.New(problem.ConfigInvalid, "connection "+c.Name+": "+what, "")
	}
	s := &sink{Connection: c}
	at := c.URL
	switch c.Provider {
	case "otlp":
		if c.Scheme != "bearer" && c.Scheme != "basic" && (c.Scheme != "header" || c.Header == "") {
			return bad("want scheme bearer or basic, or header with a header's name")
		}
	case "langfuse":
		if at == "" {
			at = "https://cloud.langfuse.com"
		}
		if public, private, ok := strings.Cut(string(c.Credential.Reveal()), ":"); !ok || public == "" || private == "" {
			return bad("its credential is the public and the secret key with a colon between")
		}
	case "sentry":
		dsn, err := url.Parse(string(c.Credential.Reveal()))
		if err != nil || dsn.User == nil || dsn.User.Username() == "" || dsn.RawQuery != "" {
			return bad("its credential is the project's DSN")
		}
		base, project, ok := cutLast(dsn.Path, "/")
		if !ok || !number(project) {
			return bad("its DSN ends with the project's number")
		}
		s.project = project
		at = (&url.URL{Scheme: dsn.Scheme, Host: dsn.Host, Path: base}).String()
	default:
		return bad(fmt.Sprintf("provider %q is none of otlp, langfuse and sentry", c.Provider))
	}
	if len(c.Credential.Reveal()) < 8 {
		return bad("its credential is missing, or too short to be guarded")
	}
	u, err := url.Parse(at)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(u.Path, "%\\") {
		return bad("its URL is malformed")
	}
	if s.to, err = authority.ParseHostHeader(u.Scheme, u.Host); err != nil || s.to.Scheme() != authority.HTTPS || s.to.IsIP() {
		return bad("a credential is for an https host, by name")
	}
	s.base = strings.TrimSuffix(u.Path, "/")
	return s, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func number(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(s, "0123456789") == ""
}

// Prefix begins the base URLs on the door's own host: Prefix + connection.
const Prefix = "/t/"

// Routes returns the session's routes: base URLs on the door's own host, and
// the sinks' hosts as a whole.
func (m *Mediator) Routes() []door.Route {
	return []door.Route{{Match: func(r *door.Request) bool { s, _ := m.find(r); return s != nil }, Handler: door.HandlerFunc(m.serve)}}
}

// find returns the sink that a request is for, and its path there without the
// base.
func (m *Mediator) find(r *door.Request) (*sink, string) {
	if r.To.Host() == door.Reserved {
		rest, ok := strings.CutPrefix(r.Path, Prefix)
		if !ok {
			return nil, ""
		}
		name, path, _ := strings.Cut(rest, "/")
		for _, s := range m.sinks {
			if s.Name == name {
				return s, "/" + path
			}
		}
		return nil, ""
	}
	// Connections may share a host: the one that has the route, else the first.
	var first *sink
	var at string
	for _, s := range m.sinks {
		path, below := strings.CutPrefix(r.Path, s.base)
		switch {
		case !s.to.SamePlace(r.To):
			continue
		case !below:
			path = r.Path
		default:
			if _, ok := s.route(r.Method, path); ok {
				return s, path
			}
		}
		if first == nil {
			first, at = s, path
		}
	}
	return first, at
}

// Env returns the variables by which programs find the first connection of each
// provider, with a placeholder for those that do not report without a key.
func (m *Mediator) Env() map[string]string {
	env := map[string]string{}
	set := func(name, v string) {
		if _, taken := env[name]; !taken {
			env[name] = v
		}
	}
	for _, s := range m.sinks {
		base := "http://" + door.Reserved + Prefix + s.Name
		switch s.Provider {
		case "otlp":
			set("OTEL_EXPORTER_OTLP_ENDPOINT", base)
			set("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
		case "langfuse":
			for _, name := range []string{"LANGFUSE_HOST", "LANGFUSE_BASEURL", "LANGFUSE_BASE_URL"} {
				set(name, base)
			}
			set("LANGFUSE_PUBLIC_KEY", s.placeholder)
			set("LANGFUSE_SECRET_KEY", s.placeholder)
		case "sentry":
			set("SENTRY_DSN", "http://"+s.placeholder+"@"+door.Reserved+Prefix+s.Name+"/"+localProject)
		}
	}
	return env
}

// localProject stands inside for a Sentry project's number.
const localProject = "1"

// enter takes a place for one message of so many bytes, or says why there is
// none.
func (m *Mediator) enter(size int64) (code string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.o.Clock()
	if now.Sub(m.window) >= time.Second {
		m.window, m.inWindow = now, 0
	}
	switch {
	case m.inWindow >= maxRequests:
		return CodeRate
	case m.sent+size > maxSession:
		return CodeLimit
	}
	m.inWindow++
	m.sent += size
	return ""
}

// begin takes a place for sending to a sink, or says why nothing is sent.
func (m *Mediator) begin(s *sink) (code string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.o.Clock().Before(s.rest):
		return CodeResting
	case m.underWay >= maxUnderWay:
		return CodeBusy
	}
	m.underWay++
	return ""
}

func (m *Mediator) end(s *sink, failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.underWay--
	if failed {
		s.rest = m.o.Clock().Add(restFor)
	}
}
