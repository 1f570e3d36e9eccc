package model

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"gatehouse/enforcers/door"
	"gatehouse/enforcers/spend"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Connection is one model connection of the node.
type Connection struct {
	Name     string
	Provider string              // anthropic | openai | google | vertex-gemini | vertex-anthropic
	To       authority.Authority // zero = the provider's own host
	Project  string              // vertex: the only project
	Location string              // vertex: the only location
	Aliases  map[string]string   // name that clients may use -> model
	Betas    []string            // anthropic: beta features besides the known harmless ones
	Rate     int                 // calls that one session may begin in a minute, 0 = no bound
}

// Allowed is one entry of a bundle's models. The spend enforcer judges by the
// same list; the mediator needs it to know which bound to hold a call to.
type Allowed struct {
	Connection string
	Models     []string // a trailing * stands for any ending
	MaxOutput  int64
}

// Event is one call that ended, for metrics.
type Event struct {
	Connection string
	Code       string // "" when the provider answered
	Status     int    // of the provider, 0 if none
	Held       spend.Nano
	Spent      spend.Nano
	First      time.Duration // from the request's head to the answer's head
}

// Options configure the mediator of one session.
type Options struct {
	Session     string
	Connections []Connection
	Allowed     []Allowed
	Ledger      *spend.Ledger
	Prices      *spend.Table
	Drain       time.Duration // how long an answer is read on for its usage when the client has left, 0 = 10 s
	Seen        func(Event)   // nil = nobody counts
	Log         *slog.Logger  // nil = discarded
}

// Bounds of one session.
const (
	maxBody   = 32 << 20 // of a request
	maxUnary  = 32 << 20 // of an answer that is read for its usage
	maxCalls  = 64       // at once
	maxDrains = 8        // at once
	floor     = 256      // output tokens below which a lowered bound is no use
)

// Mediator is one session's way to models. It is safe for concurrent use.
type Mediator struct {
	o     Options
	conns []*conn

	mu      sync.Mutex // guards what follows
	calls   int
	drains  int
	strikes map[fingerprint]strike
}

// conn is a connection with what its session adds.
type conn struct {
	Connection
	adapter     adapter
	placeholder string
	rate        rate
}

// adapter is what one provider's protocol needs.
type adapter interface {
	provider() string // as it stands in actions
	prices() string   // whose price list
	route(method, path string) (route, string)
	query(pair string) bool // whether a pair of the query passes
	inspect(r *request, rt route)
	usage() meter
}

// route is what a method and path ask for.
type route struct {
	path   string // sent
	query  string // what passes of the client's
	needs  string // a pair that the query must have
	model  string // when the path names it
	stream bool   // when the path says so
	free   bool   // counts tokens only
	kind   string // of body, for providers that have several
}

// placeholderPrefix is that of the door's placeholders, which are refused
// wherever they do not belong.
const placeholderPrefix = "gatehouse_ph_"

// New returns the mediator of one session. An unknown provider is
// CodeUnsupported: nothing passes unmediated.
func New(o Options) (*Mediator, error) {
	if o.Ledger == nil || o.Prices == nil {
		return nil, errors.New("a model mediator needs a ledger and prices")
	}
	if o.Drain == 0 {
		o.Drain = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mediator{o: o, strikes: map[fingerprint]strike{}}
	for _, c := range o.Connections {
		a, to, err := adapterOf(c)
		if err != nil {
			return nil, err
		}
		c.To = to
		one := &conn{Connection: c, adapter: a, placeholder: placeholderPrefix + rand.Text()[:26], rate: rate{most: c.Rate}}
		if v := m.vertex(); v != nil && one.onVertex() {
			one.placeholder = v.placeholder // a metadata server has one token
		}
		m.conns = append(m.conns, one)
	}
	return m, nil
}

// Host returns the host that a connection's requests go to.
func Host(c Connection) (authority.Authority, error) {
	_, to, err := adapterOf(c)
	return to, err
}

// adapterOf returns the adapter of a connection's provider and where it leads.
func adapterOf(c Connection) (adapter, authority.Authority, error) {
	var a adapter
	host := ""
	switch c.Provider {
	case "anthropic":
		a, host = anthropic{}, "api.anthropic.com"
	case "openai":
		a, host = openai{}, "api.openai.com"
	case "google":
		a, host = gemini{}, "generativelanguage.googleapis.com"
	case "vertex-gemini", "vertex-anthropic":
		at, err := vertexHost(c)
		if err != nil {
			return nil, authority.Authority{}, err
		}
		host, a = at, gemini{project: c.Project, location: c.Location}
		if c.Provider == "vertex-anthropic" {
			a = claude{project: c.Project, location: c.Location}
		}
	default:
		return nil, authority.Authority{}, problem.New(CodeUnsupported, fmt.Sprintf("connection %s: provider %s is not mediated", c.Name, c.Provider),
			"use anthropic, openai, google, vertex-gemini or vertex-anthropic")
	}
	if !c.To.IsZero() {
		return a, c.To, nil
	}
	to, err := authority.New(authority.HTTPS, host, 443)
	return a, to, err
}

// Routes returns the session's routes: base URLs on the door's own host, and
// the providers' hosts as a whole.
func (m *Mediator) Routes() []door.Route {
	return []door.Route{{Match: m.isMetadata, Handler: door.HandlerFunc(m.metadata)}, {Match: func(r *door.Request) bool { c, _ := m.find(r); return c != nil }, Handler: door.HandlerFunc(m.serve)}}
}

// find returns the connection that a request is for, and its path there.
func (m *Mediator) find(r *door.Request) (*conn, string) {
	if r.To.Host() == door.Reserved {
		rest, ok := strings.CutPrefix(r.Path, "/m/")
		if !ok {
			return nil, ""
		}
		name, path, _ := strings.Cut(rest, "/")
		for _, c := range m.conns {
			if c.Name == name {
				return c, "/" + path
			}
		}
		return nil, ""
	}
	// Connections may share a host: the one whose call it is, else the first.
	var first *conn
	for _, c := range m.conns {
		if !c.To.SamePlace(r.To) {
			continue
		}
		if _, code := c.adapter.route(r.Method, r.Path); code == "" {
			return c, r.Path
		}
		if first == nil {
			first = c
		}
	}
	return first, r.Path
}

// Env returns the variables by which clients find the first connection of each
// provider, and a placeholder for those that do not start without a key.
func (m *Mediator) Env() map[string]string {
	env := map[string]string{}
	for _, c := range m.conns {
		base := "http://" + door.Reserved + "/m/" + c.Name
		for name, v := range c.environment(base) {
			if _, taken := env[name]; !taken {
				env[name] = v
			}
		}
	}
	return env
}

func (c *conn) environment(base string) map[string]string {
	switch c.Provider {
	case "anthropic":
		return map[string]string{"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": c.placeholder}
	case "openai":
		return map[string]string{"OPENAI_BASE_URL": base + "/v1", "OPENAI_API_KEY": c.placeholder}
	case "google":
		return map[string]string{"GOOGLE_GEMINI_BASE_URL": base, "GEMINI_API_KEY": c.placeholder, "GOOGLE_GENAI_USE_VERTEXAI": "false"}
	case "vertex-gemini":
		return c.cloud(map[string]string{"GOOGLE_VERTEX_BASE_URL": base, "GOOGLE_GENAI_USE_VERTEXAI": "true"})
	case "vertex-anthropic":
		return c.cloud(map[string]string{
			"ANTHROPIC_VERTEX_BASE_URL": base + "/v1", "ANTHROPIC_VERTEX_PROJECT_ID": c.Project, "CLOUD_ML_REGION": c.Location,
		})
	}
	return nil
}

// cloud adds what Google's libraries find their place and their credentials by.
func (c *conn) cloud(env map[string]string) map[string]string {
	env["GOOGLE_CLOUD_PROJECT"], env["GOOGLE_CLOUD_LOCATION"] = c.Project, c.Location
	env["GCE_METADATA_HOST"], env["METADATA_SERVER_DETECTION"] = door.Reserved, "assume-present"
	return env
}

// enter counts a call and reports whether there is room for it.
func (m *Mediator) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls >= maxCalls {
		return false
	}
	m.calls++
	return true
}

func (m *Mediator) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls--
}

func (m *Mediator) drain(on bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !on:
		m.drains--
	case m.drains >= maxDrains:
		return false
	default:
		m.drains++
	}
	return true
}

// bound returns the most output tokens that the bundle lets a model give, 0
// when it does not list the model.
func (m *Mediator) bound(c *conn, model string) int64 {
	for _, a := range m.o.Allowed {
		if a.Connection != c.Name {
			continue
		}
		for _, p := range a.Models {
			if prefix, wild := strings.CutSuffix(p, "*"); p == model || wild && strings.HasPrefix(model, prefix) {
				return a.MaxOutput
			}
		}
	}
	return 0
}

// digest is the price table's, as receipts have it.
func (m *Mediator) digest() receipts.Hash { return m.o.Prices.Digest }
