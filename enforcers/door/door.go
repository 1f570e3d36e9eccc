package door

import (
	"context"
	"errors"
	"net"
	"net/http"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
)

// Request is one HTTP request from the sandbox. To is where it goes; the
// embedded request's Host, URL.Host and RemoteAddr are the agent's words.
type Request struct {
	*http.Request
	To   authority.Authority
	Path string // canonical path, judged and sent
	Gate *enforcers.Gate
	Up   *upstream.Client
}

// Handler carries out one recognized request: a mediator, or the door's own
// plain forward.
type Handler interface {
	ServeDoor(w http.ResponseWriter, r *Request)
}

// Route sends the requests that Match to Handler.
type Route struct {
	Match   func(*Request) bool
	Handler Handler
}

// Options configure a Door.
type Options struct {
	Routes []Route          // asked in order; what none takes is forwarded plainly
	Up     *upstream.Client //
	CA     *CA              // the session's, nil = a new one
}

// CA is a session's certificate authority. Its key lives in memory only.
type CA struct{}

// Door serves one session's listener.
type Door struct{}

// Open serves l until Close or ctx's end.
func Open(ctx context.Context, l net.Listener, g *enforcers.Gate, o Options) (*Door, error) {
	return nil, errors.ErrUnsupported
}

// Trust returns the PEM certificate that clients inside must trust.
func (d *Door) Trust() []byte { return nil }

// Close ends the session's exit: every connection is cut, the gate revoked
// with code, and every outstanding Permit gets its outcome.
func (d *Door) Close(code string) {}
