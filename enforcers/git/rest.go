package git

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
)

// Reason codes of requests to a host's API.
const (
	CodeAPIPlace      = "api_not_listed"     // not about a repository, or about more than one
	CodeAPIRepository = "sibling_repository" // about one that the session may not read
	CodeAPIWrite      = "api_write"          // a change: operations and pushes are for those
)

// readable are the parts of a repository that may be read through the API, by
// the first segment after the repository. The list is closed: hooks, keys,
// secrets, variables, environments, runners and what starts something are not
// in it, and neither is what answers with an address that works by itself
// (tarball, zipball) but a release's asset, for which the door has door URLs.
// Everything in it is only read (EG-85).
var readable = map[string]bool{
	"": true, "assignees": true, "branches": true, "check-runs": true, "check-suites": true, "commits": true, "compare": true, "contents": true,
	"git": true, "issues": true, "labels": true, "languages": true, "license": true, "milestones": true, "pulls": true, "readme": true,
	"releases": true, "statuses": true, "tags": true, "topics": true,
}

// readableActions are the same below actions/.
var readableActions = map[string]bool{"runs": true, "jobs": true, "workflows": true, "artifacts": true}

// place is what a request to the API is about.
type place struct {
	repository Repository
	path       string // as it is judged and sent: /repos/OWNER/NAME/…
	tail       string // what of it lies below the repository
	query      string // as it is judged and sent
	code       string // why it goes no further, "" if it may be judged
}

// apiPlace reads a path and query of the REST API (EG-85).
func (h *host) apiPlace(method, path, query string) place {
	rest, ok := strings.CutPrefix(path, h.APIPath)
	if !ok {
		return place{code: CodeAPIPlace}
	}
	p := h.namedPlace(rest)
	if h.Provider == GitLab {
		p = h.gitLabPlace(rest)
	}
	if p.code != "" {
		return p
	}
	if p.query = query; p.tail != "" {
		p.path += "/" + p.tail
	}
	f, closed := forges[h.Provider]
	switch {
	case method != http.MethodGet && method != http.MethodHead:
		p.code = CodeAPIWrite
	case closed:
		var ok bool
		if p.query, ok = f.query(query, p.repository.ID); !ok || !f.listed(p.tail) {
			p.query, p.code = query, CodeAPIPlace
		}
	case !h.gitHubListed(p.tail):
		p.code = CodeAPIPlace
	}
	return p
}

// namedPlace reads a path in which the repository stands by name, in any spelling
// that the host takes for it, or by id, as in the links that GitHub's API itself
// gives.
func (h *host) namedPlace(rest string) place {
	var r Repository
	var tail string
	var ok bool
	parts := strings.SplitN(strings.TrimPrefix(rest, "/"), "/", 4)
	switch {
	case len(parts) >= 3 && parts[0] == "repos":
		name, bad := canonical(parts[1], parts[2])
		if r, ok = h.by[name]; bad || !ok {
			return place{code: CodeAPIRepository}
		}
		tail = strings.Join(parts[3:], "/")
	case len(parts) >= 2 && parts[0] == "repositories":
		if r, ok = h.ids[parts[1]]; !ok {
			return place{code: CodeAPIRepository}
		}
		tail = strings.Join(parts[2:], "/")
	default:
		return place{code: CodeAPIPlace}
	}
	return place{repository: r, path: h.APIPath + "/repos/" + r.Name, tail: tail}
}

// gitHubListed reports whether a path below a repository on GitHub may be read.
func (h *host) gitHubListed(tail string) bool {
	segments := strings.Split(strings.ToLower(tail), "/")
	switch {
	case strings.Contains(tail, "%"):
		return false // an escape could be another path to the host
	case h.Static && leadsElsewhere(segments):
		return false
	case segments[0] == "branches" && slices.Contains(segments[min(2, len(segments)):], "protection"):
		return false // who may push, and what an administrator made them do
	case readable[segments[0]]:
		return true
	case segments[0] == "actions" && len(segments) > 1 && readableActions[segments[1]]:
		last := segments[len(segments)-1]
		return last != "logs" && last != "zip" // answered with an address that works by itself: scm.run.logs
	}
	return false
}

// leadsElsewhere reports whether the answer to a path can hold another repository's
// issues or files, when the credential may see those: comparing with a fork, and
// what lists the issues that refer to one or belong to it (M-11).
func leadsElsewhere(segments []string) bool {
	switch segments[0] {
	case "compare":
		return strings.Contains(strings.Join(segments, "/"), ":")
	case "issues":
		return len(segments) > 2 && slices.ContainsFunc(segments[2:], func(s string) bool {
			return s == "timeline" || s == "sub_issues" || s == "parent" || s == "dependencies"
		})
	}
	return false
}

// api handles a request to the API of a connection. The policy must list the
// path, under the connection; what is decided here only narrows it.
func (m *Mediator) api(w http.ResponseWriter, r *door.Request, h *host, code string) {
	if h.GraphQLPath != "" && r.Path == h.GraphQLPath {
		m.graphQL(w, r, h, code)
		return
	}
	if _, closed := forges[h.Provider]; closed && takeSudo(r) && code == "" {
		code = enforcers.CodeForeignCredential // EG-75
	}
	at := h.apiPlace(r.Method, r.Path, r.Query)
	if code == "" {
		code = at.code
	}
	if code == "" && r.ContentLength != 0 {
		code = CodeAPIPlace // a form in the body would be read as more of the query
	}
	if code == "" && !m.mayRead(at.repository) {
		code = CodeAPIRepository
	}
	a := r.Action()
	a.Connection, a.HardSet = h.Connection, code
	if at.path != "" {
		a.HTTP.Path, a.HTTP.Query = at.path, at.query
	}
	m.carry(w, r, a, Target{Repository: at.repository.ID, Access: Look, API: true})
}

// mayRead reports whether a repository is the session's own or one that its
// bundle names.
func (m *Mediator) mayRead(r Repository) bool {
	for _, id := range m.o.Readable {
		if id == r.ID && id != "" {
			return true
		}
	}
	return false
}

// carry asks the gate about a request to the API or the pages of a host, and
// carries it out.
func (m *Mediator) carry(w http.ResponseWriter, r *door.Request, a *enforcers.Action, t Target) {
	if r.Upgrade != "" {
		a.HardSet = enforcers.CodeUpgradeRefused
	}
	p, d := r.Decide(a)
	if p == nil {
		refuseAPI(w, d)
		return
	}
	resp, err := r.Send(p, r.Request.WithContext(context.WithValue(r.Context(), targetKey{}, t)))
	if err != nil {
		door.Fail(w, d, err)
		return
	}
	door.Relay(w, resp)
}

// Target is the repository and access that a request's credential must be for,
// where its action does not say.
type Target struct {
	Repository string
	Access     Access
	API        bool // not git's own: the credential is a bearer token there
}

type targetKey struct{}

// targetOf returns what carry noted, or the session's own repository, to look.
func targetOf(ctx context.Context) Target {
	if t, ok := ctx.Value(targetKey{}).(Target); ok {
		return t
	}
	return Target{Access: Look}
}
