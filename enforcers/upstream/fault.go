package upstream

import (
	"context"
	"errors"
	"net"
	"os"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

// fail returns an error whose code goes into the outcome and to the client.
func fail(code, msg string, err error) error {
	return problem.Wrap(err, problem.Code(code), msg, "")
}

// classify gives err the code an outcome needs. life is the permission's own
// context, request the caller's: a cut by policy is told from a client that
// left.
func classify(err error, life, request context.Context) error {
	var known *problem.Error
	var timeout net.Error
	switch {
	case life.Err() != nil:
		return context.Cause(life)
	case errors.As(err, &known):
		return err
	case request.Err() != nil && !errors.Is(context.Cause(request), errIdle):
		return fail(enforcers.CodeClientGone, "the client left", err)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.Is(context.Cause(request), errIdle), errors.As(err, &timeout) && timeout.Timeout():
		return fail(enforcers.CodeTimeout, "the upstream took too long", err)
	default:
		return fail(enforcers.CodeProtocol, "the upstream broke off or answered nonsense", err)
	}
}

var errIdle = errors.New("no byte within the idle limit")
