package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Root is the path that all resources are below.
const Root = "/agent/v1/"

// URL is where the agent finds them. It is plain HTTP because it never leaves
// the sandbox: the door answers it.
const URL = "http://" + door.Reserved + Root

// Options describe one session to its agent.
type Options struct {
	Session Session
	Event   []byte // event.json as delivered; nil = there is none

	// More are the handlers of further resources, by the first part of the path
	// below Root. A name of this package's own is refused.
	More map[string]door.Handler

	Log *slog.Logger // of faults; nil = nobody hears of them
}

// Session is what an agent may know of its session. It holds no secret and no
// word of an event.
type Session struct {
	ID          string    `json:"id"`
	Parent      string    `json:"parent,omitempty"`
	Bundle      string    `json:"bundle"`
	Digest      string    `json:"digest"` // of the bundle, lower hex
	Mode        string    `json:"mode"`   // shadow | hard
	Credentials string    `json:"credentials"`
	Provider    string    `json:"provider"`
	Repository  string    `json:"repository,omitempty"` // id
	Entity      string    `json:"entity,omitempty"`
	Opened      time.Time `json:"opened"`
	Timeout     string    `json:"timeout"`    // of the run, as in 45m0s
	Reach       []Reach   `json:"reach"`      // hosts that a rule lists
	Children    []string  `json:"children"`   // bundles that it may start
	Operations  []string  `json:"operations"` // names that it may call
	Resources   []string  `json:"resources"`  // of this endpoint
	Notice      string    `json:"notice"`     // the standing word on refusals
}

// Reach is one host that a rule lists.
type Reach struct {
	Rule string   `json:"rule"`
	Host string   `json:"host"`
	Port []uint16 `json:"ports"`
}

const notice = "There is no key in this sandbox and none is needed. A refusal is final for this session: asking in another way changes nothing."

// endpoint answers for one session.
type endpoint struct {
	o         Options
	resources map[string]door.Handler
}

// Route returns the route that answers the agent of one session.
func Route(o Options) (door.Route, error) {
	e := &endpoint{o: o}
	if e.o.Log == nil {
		e.o.Log = slog.New(slog.DiscardHandler)
	}
	e.resources = map[string]door.Handler{
		"session": door.HandlerFunc(e.session), "event": door.HandlerFunc(e.event), "explain": door.HandlerFunc(e.explain), "refusals": door.HandlerFunc(e.refusals),
	}
	for name, h := range o.More {
		if e.resources[name] != nil || name == "" || strings.Contains(name, "/") {
			return door.Route{}, problem.New(problem.Internal, "the agent endpoint has "+name+" already", "")
		}
		e.resources[name] = h
	}
	return door.Route{
		Match:   func(r *door.Request) bool { return r.To.Host() == door.Reserved && strings.HasPrefix(r.Path, Root) },
		Handler: door.HandlerFunc(e.serve),
	}, nil
}

// serve finds the resource. The listener that accepted the request is the
// session: nothing in the request can name another.
func (e *endpoint) serve(w http.ResponseWriter, r *door.Request) {
	defer e.guard(w, r)
	name, _, _ := strings.Cut(strings.TrimPrefix(r.Path, Root), "/")
	if name == "" && Read(w, r) {
		Answer(w, http.StatusOK, map[string]any{"resources": e.names()})
		return
	}
	h, ok := e.resources[name]
	switch {
	case name == "":
	case !ok:
		NotFound(w)
	default:
		h.ServeDoor(w, r)
	}
}

// guard ends a request whose handler broke, with a receipt that says so. It
// stands here, below both ways in: an MCP client's request runs where nothing
// else would catch a panic.
func (e *endpoint) guard(w http.ResponseWriter, r *door.Request) {
	v := recover()
	if v == nil {
		return
	}
	e.o.Log.ErrorContext(r.Context(), "agent.panic", slog.Any("value", v), slog.String("stack", string(debug.Stack())))
	a := r.Action()
	a.HardSet = string(problem.Internal)
	_, d := r.Gate.Decide(context.WithoutCancel(r.Context()), a)
	w.Header().Set(door.ReceiptHeader, d.Receipt.String())
	Answer(w, http.StatusInternalServerError, struct {
		Code    string `json:"code"`
		Receipt string `json:"receipt"`
		Hint    string `json:"hint"`
	}{string(problem.Internal), d.Receipt.String(), "It was a fault of the node's. Go on without it, or end and say what is missing."})
}

func (e *endpoint) names() []string { return slices.Sorted(maps.Keys(e.resources)) }

// Rest returns the path below a resource: "" for the resource itself.
func Rest(r *door.Request, resource string) string {
	return strings.TrimPrefix(strings.TrimPrefix(r.Path, Root+resource), "/")
}

// session answers with the session; asked for by id, only with its own.
func (e *endpoint) session(w http.ResponseWriter, r *door.Request) {
	if !Read(w, r) {
		return
	}
	if id := Rest(r, "session"); id != "" && id != e.o.Session.ID {
		NotFound(w) // EG-73: another session's id is as unknown as one that never was
		return
	}
	s := e.o.Session
	s.Resources, s.Notice = e.names(), notice
	s.Reach = []Reach{}
	for _, g := range r.Gate.Grants() {
		s.Reach = append(s.Reach, Reach{Rule: g.Rule, Host: g.Hosts.String(), Port: g.Ports})
	}
	if s.Children == nil {
		s.Children = []string{}
	}
	if s.Operations == nil {
		s.Operations = []string{}
	}
	Answer(w, http.StatusOK, s)
}

func (e *endpoint) event(w http.ResponseWriter, r *door.Request) {
	if !Read(w, r) {
		return
	}
	if e.o.Event == nil || Rest(r, "event") != "" {
		NotFound(w)
		return
	}
	head(w, "application/json")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(e.o.Event)
}

// Explanation is why one decision came out as it did.
type Explanation struct {
	Receipt string `json:"receipt"`
	Action  string `json:"action"`
	To      string `json:"to,omitempty"`
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	Verdict string `json:"verdict"`
	Passed  bool   `json:"passed"`
	Mode    string `json:"mode"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Fault   string `json:"fault,omitempty"`
	By      string `json:"by,omitempty"`
	Steps   []Step `json:"steps"`
}

// Step is one enforcer's part.
type Step struct {
	Enforcer string `json:"enforcer"`
	Mode     string `json:"mode"`
	Verdict  string `json:"verdict"`
	Rule     string `json:"rule,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Fault    string `json:"fault,omitempty"`
}

// explain answers for receipts of this session's gate alone: it has no others.
func (e *endpoint) explain(w http.ResponseWriter, r *door.Request) {
	if !Read(w, r) {
		return
	}
	receipt, err := receipts.ParseHash(Rest(r, "explain"))
	if err != nil {
		NotFound(w)
		return
	}
	found, ok := r.Gate.Explain(receipt)
	if !ok {
		NotFound(w)
		return
	}
	Answer(w, http.StatusOK, explained(receipt, found))
}

// Refusal is one action that was stopped, as a list shows it.
type Refusal struct {
	Receipt string `json:"receipt"`
	Action  string `json:"action"`
	To      string `json:"to,omitempty"`
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	Code    string `json:"code"`
	Rule    string `json:"rule,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// maxRefusals is how many refusals a list has.
const maxRefusals = 20

// refusals lists what was stopped. Many programs do not show why a proxy said
// no: a tunnel that is refused has a body that nobody prints.
func (e *endpoint) refusals(w http.ResponseWriter, r *door.Request) {
	if !Read(w, r) {
		return
	}
	if Rest(r, "refusals") != "" {
		NotFound(w)
		return
	}
	list := []Refusal{}
	for _, x := range r.Gate.Refused(maxRefusals) {
		code, hint := door.Reason(x.Decision)
		list = append(list, Refusal{x.Receipt.String(), string(x.Kind), x.To, x.Method, x.Path, code, x.Decision.Rule, hint})
	}
	Answer(w, http.StatusOK, map[string]any{"refusals": list})
}

func explained(receipt receipts.Hash, x enforcers.Explanation) Explanation {
	d := x.Decision
	out := Explanation{
		Receipt: receipt.String(), Action: string(x.Kind), To: x.To, Method: x.Method, Path: x.Path,
		Verdict: string(d.Effect), Passed: d.Passed, Mode: string(d.Mode), Rule: d.Rule, Reason: d.Reason, Fault: d.Fault, By: d.By, Steps: []Step{},
	}
	for _, s := range d.Trace {
		out.Steps = append(out.Steps, Step{s.Enforcer, string(s.Mode), string(s.Verdict.Effect), s.Verdict.Rule, s.Verdict.Reason, s.Fault})
	}
	return out
}

// Read reports whether r only reads, and answers it otherwise.
func Read(w http.ResponseWriter, r *door.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	Problem(w, http.StatusMethodNotAllowed, "method_not_allowed", "This resource is only read.")
	return false
}

// Answer writes v as JSON.
func Answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		Problem(w, http.StatusInternalServerError, string(problem.Internal), "")
		return
	}
	head(w, "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// Problem writes an RFC 9457 answer that no decision stands behind; a refused
// action is answered by door.Refuse, with its receipt.
func Problem(w http.ResponseWriter, status int, code, hint string) {
	b, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Code   string `json:"code"`
		Hint   string `json:"hint,omitempty"`
	}{"about:blank", http.StatusText(status), status, code, hint})
	if err != nil {
		return // cannot happen: strings and a number
	}
	head(w, "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// NotFound answers for what is not there and for what is not this session's,
// in the same words.
func NotFound(w http.ResponseWriter) {
	Problem(w, http.StatusNotFound, string(problem.NotFound), "GET "+URL+" lists what there is.")
}

func head(w http.ResponseWriter, kind string) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
