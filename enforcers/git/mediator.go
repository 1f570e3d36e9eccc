package git

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
)

// Reason codes of this package. A decision's own reasons are the policy's.
const (
	CodeMoved      = "repository_moved"     // the host answered with a redirect: it is never followed
	CodeAnswer     = "git_answer"           // the host's answer is not git's
	CodeDumb       = "git_dumb_protocol"    // a file of the dumb protocol
	CodePush       = "push_malformed"       // the commands of a push
	CodePushSize   = "push_too_large"       //
	CodeInspection = "pack_not_inspected"   // it could not be inspected
	CodeUnlistedQ  = "git_request_unlisted" // a service request with something this package does not know
)

// Repository is one repository of the node's list.
type Repository struct {
	ID   string // numeric, as the host gives it
	Name string // owner/name in the host's own spelling
}

// Host is where the repositories of one scm connection are.
type Host struct {
	Connection   string
	To           authority.Authority // https
	Repositories []Repository

	// API is where the connection's REST API is, zero when requests to it are not
	// mediated. APIPath begins its paths, without a slash at its end; GraphQLPath is
	// the one of GraphQL, "" for none.
	API         authority.Authority
	APIPath     string
	GraphQLPath string
	// Provider is whose API it is: "" for GitHub's, GitLab or Gitea.
	Provider string
	// Static says that the connection's credential is one that nobody narrowed to a
	// repository. GraphQL is closed then: its fields lead from one to another. So is
	// whatever else of the host is neither git nor an API that is known here.
	Static bool
	// Stores are where the connection's host keeps large files besides itself: an
	// LFS address that leads anywhere else is refused.
	Stores []authority.Pattern
}

// Options configure one session's mediator.
type Options struct {
	Hosts []Host
	// Placeholder is what the credential helper inside answers. It is the only
	// credential that a request may bring.
	Placeholder secret.Value
	// Readable are the ids of the session's own repository and of those it may
	// read: the API is not asked about any other.
	Readable []string
	Push     PushOptions
	LFS      LFSOptions
	// CreatePull opens a pull request in the session's own repository, as a named
	// operation that asks the gate itself, and returns its address. nil: none is
	// opened through the API.
	CreatePull func(ctx context.Context, g *enforcers.Gate, p PullRequest) (url string, d enforcers.Decision, err error)
	Log        *slog.Logger // why a push could not be inspected, or what was found; nil = discarded
}

// Mediator recognizes the git requests of one session.
type Mediator struct {
	o     Options
	hosts map[authority.Authority]*host
	turn  chan struct{} // held by the one push, or upload of a large file, that is being read

	offers offers // of large files
}

type host struct {
	Host
	by  map[string]Repository // by canonical path
	ids map[string]Repository
}

// New returns the mediator of one session. A repository that is listed twice
// for one host, or whose name is none, is an error: a session would be bound
// to one of two.
func New(o Options) (*Mediator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mediator{o: o, hosts: make(map[authority.Authority]*host), turn: make(chan struct{}, 1)}
	for _, h := range o.Hosts {
		if h.To.Scheme() != authority.HTTPS || m.hosts[h.To] != nil {
			return nil, errors.New("git: connection " + h.Connection + ": its host is not https, or another connection has it")
		}
		one := &host{Host: h, by: make(map[string]Repository), ids: make(map[string]Repository)}
		for _, r := range h.Repositories {
			owner, name, _ := strings.Cut(r.Name, "/")
			path, bad := canonical(owner, name)
			if _, twice := one.by[path]; bad || twice || r.ID == "" {
				return nil, errors.New("git: repository " + r.Name + " is listed twice or is not owner/name")
			}
			one.by[path], one.ids[r.ID] = r, r
		}
		m.hosts[h.To] = one
		if _, known := forges[h.Provider]; !known && h.Provider != "" {
			return nil, errors.New("git: connection " + h.Connection + ": no API of a " + h.Provider + " is known")
		}
		if !h.API.IsZero() && h.API != h.To {
			if m.hosts[h.API] != nil {
				return nil, errors.New("git: connection " + h.Connection + ": another connection has its API")
			}
			m.hosts[h.API] = one
		}
	}
	return m, nil
}

// Routes returns what the mediator takes from the door: everything that goes
// to its hosts, and pushes wherever they go.
func (m *Mediator) Routes() []door.Route {
	return []door.Route{
		{Match: func(r *door.Request) bool { return m.hosts[r.To] != nil }, Handler: door.HandlerFunc(m.serve), HTTP1: m.http1},
		{Match: pushing, Handler: door.HandlerFunc(m.pushElsewhere)},
	}
}

// http1 reports the hosts that git speaks with. In HTTP/2 libcurl from 7.84 to 8.4
// may ask for more of a body after its end: when the stream's window closes less
// than 2 KiB before it (curl's 6a095da1f3 ended that). git then waits for its own
// send-pack, which waits for the answer, for ever; and no server can see to it that
// its window never closes there. In HTTP/1.1 the last chunk is the end.
func (m *Mediator) http1(to authority.Authority) bool {
	h := m.hosts[to]
	return h != nil && h.To == to
}

// pushing reports whether a request to any host is a push: without a
// connection there is none.
func pushing(r *door.Request) bool {
	return strings.HasSuffix(r.Path, "/"+receivePack) ||
		strings.HasSuffix(r.Path, "/info/refs") && strings.Contains(r.Query, receivePack)
}

func (m *Mediator) pushElsewhere(w http.ResponseWriter, r *door.Request) {
	a := r.Gate.Action(enforcers.GitPush)
	a.Push = &enforcers.Push{To: r.To}
	_, d := r.Decide(a)
	refuse(w, d)
}

// serve handles one request to a host of a connection.
func (m *Mediator) serve(w http.ResponseWriter, r *door.Request) {
	h := m.hosts[r.To]
	code := m.credentials(r)
	if r.To == h.API && (r.To != h.To || r.Path == h.GraphQLPath || strings.HasPrefix(r.Path, h.APIPath+"/")) {
		m.api(w, r, h, code)
		return
	}
	t := recognize(r)
	switch {
	case t.bad:
		code = enforcers.CodeMalformed
	case t.op == opDumb && code == "":
		code = CodeDumb
	}
	repository := h.by[t.path]
	switch {
	case t.op == opService && t.service == receivePack && code == "":
		m.push(w, r, h, repository, t)
	case t.op == opRefs && t.service == receivePack && code == "":
		m.pushRefs(w, r, h, repository, t)
	case t.op == opLFS:
		m.lfs(w, r, h, repository, t, code)
	case t.op == opRefs, t.op == opService:
		m.fetch(w, r, h, repository, t, code)
	default:
		m.plain(w, r, h, code)
	}
}

// credentials takes the request's own credentials out of it and returns a code
// when one is not the session's placeholder (EG-75).
func (m *Mediator) credentials(r *door.Request) string {
	for _, v := range r.TakeCredentials() {
		if _, password, ok := strings.Cut(v, ":"); ok {
			v = password
		}
		v = strings.TrimPrefix(strings.TrimPrefix(v, "Bearer "), "token ")
		if m.o.Placeholder.Empty() || !m.o.Placeholder.Equal([]byte(v)) {
			return enforcers.CodeForeignCredential
		}
	}
	return ""
}

// plain handles what is not git: pages, archives, files. It would use the
// connection, so that in no mode a repository is read past the policy (EG-85).
func (m *Mediator) plain(w http.ResponseWriter, r *door.Request, h *host, code string) {
	if h.Static && code == "" { // M-11: the token reaches whatever its owner does
		code = CodeAPIPlace
	}
	a := r.Action()
	a.Connection, a.HardSet = h.Connection, code
	m.carry(w, r, a, Target{Access: Look})
}
