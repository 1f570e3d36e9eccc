package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/internal/problem"
)

// maxAsked bounds the body of a request to start a child.
const maxAsked = 4 << 10

// Family starts and shows the children of one session. The session cannot name
// itself: whoever makes the Family binds it.
type Family interface {
	// Reserve takes one place for a child under a named bundle, or says with a
	// code why there is none. Nothing has started yet.
	Reserve(ctx context.Context, bundle string) (Place, error)
	// List returns the children so far, the oldest first.
	List() []Child
}

// Place is a place for one child. Exactly one of Start and Release is called.
type Place interface {
	Depth() int // of the child, 1 below a root
	Count() int // children of this session, this one included
	// Start admits the child and returns its session id.
	Start(ctx context.Context) (id string, err error)
	Release()
}

// Child is what a session may know of its child.
type Child struct {
	ID     string `json:"id"`
	Bundle string `json:"bundle"`
	State  string `json:"state"`            // admitted | preparing | running | ended | refused
	Reason string `json:"reason,omitempty"` // of an end
	Exit   *int   `json:"exit,omitempty"`
}

// Children is the handler of the resource "children".
func Children(f Family) door.Handler { return children{f} }

type children struct{ family Family }

// ServeDoor starts a child, or shows one or all of them.
func (c children) ServeDoor(w http.ResponseWriter, r *door.Request) {
	id := Rest(r, "children")
	if r.Method == http.MethodPost && id == "" {
		c.start(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD, POST")
		Problem(w, http.StatusMethodNotAllowed, "method_not_allowed", "Start a child with POST "+URL+"children.")
		return
	}
	all := c.family.List()
	if id == "" {
		if all == nil {
			all = []Child{}
		}
		Answer(w, http.StatusOK, map[string]any{"children": all})
		return
	}
	for _, child := range all {
		if child.ID == id {
			Answer(w, http.StatusOK, child)
			return
		}
	}
	NotFound(w)
}

// codeNotCovered refuses whatever is no more than a name: a child is a bundle
// that its operator wrote, and nothing in it can be asked for in another way.
const codeNotCovered = string(problem.BundleNotCovered)

// start asks the gate before anything starts; every refusal is a receipt of
// the asking session, in every mode.
func (c children) start(w http.ResponseWriter, r *door.Request) {
	a := r.Gate.Action(enforcers.SessionSpawn)
	name, place, code := c.reserve(r)
	a.Spawn = &enforcers.Spawn{Bundle: name}
	if a.HardSet = code; place != nil {
		a.Spawn.Depth, a.Spawn.Count = place.Depth(), place.Count()
	}
	p, d := r.Decide(a)
	if p == nil {
		if place != nil {
			place.Release()
		}
		door.Refuse(w, d)
		return
	}
	if err := p.Use(); err != nil {
		place.Release()
		p.Done(enforcers.Outcome{Effect: enforcers.NotForwarded, Code: string(problem.CodeOf(err))})
		door.Fail(w, d, err)
		return
	}
	// The child is admitted even if the client goes away meanwhile.
	id, err := place.Start(context.WithoutCancel(r.Context()))
	if err != nil {
		p.Done(enforcers.Outcome{Effect: enforcers.NotForwarded, Code: string(problem.CodeOf(err))})
		door.Fail(w, d, err)
		return
	}
	p.Done(enforcers.Outcome{Effect: enforcers.Forwarded})
	w.Header().Set("Location", Root+"children/"+id)
	w.Header().Set(door.ReceiptHeader, d.Receipt.String())
	Answer(w, http.StatusCreated, map[string]string{"id": id, "receipt": d.Receipt.String()})
}

// reserve reads what is asked for. A code says why it can only be refused.
func (c children) reserve(r *door.Request) (name string, place Place, code string) {
	name, err := asked(r.Body)
	if err != nil {
		return name, nil, codeNotCovered
	}
	place, err = c.family.Reserve(r.Context(), name)
	if err != nil {
		return name, nil, string(problem.CodeOf(err))
	}
	return name, place, ""
}

// label is the form of a bundle's name.
var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// asked reads {"bundle": NAME} and nothing else.
func asked(body io.Reader) (string, error) {
	raw, err := io.ReadAll(io.LimitReader(body, maxAsked+1))
	if err != nil {
		return "", err
	}
	if len(raw) > maxAsked {
		return "", errors.New("too long")
	}
	var ask struct {
		Bundle string `json:"bundle"`
	}
	if err := one(raw, &ask); err != nil {
		return "", err
	}
	if !label.MatchString(ask.Bundle) {
		return "", errors.New("no bundle's name") // a receipt holds none of the agent's words
	}
	return ask.Bundle, nil
}
