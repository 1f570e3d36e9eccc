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
// context, and ended says why the exchange's has ended, nil while it runs: a cut
// by policy is told from a client that left.
func classify(err error, life context.Context, ended error) error {
	var known *problem.Error
	var timeout net.Error
	switch {
	case life.Err() != nil:
		return context.Cause(life)
	case errors.As(err, &known):
		return err
	case ended != nil && !errors.Is(ended, errIdle) && !errors.Is(ended, errLate):
		return fail(enforcers.CodeClientGone, "the client left", err)
	case ended != nil, errors.Is(err, errLate), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return fail(enforcers.CodeTimeout, "the upstream took too long", err)
	default:
		return fail(enforcers.CodeProtocol, "the upstream broke off or answered nonsense", err)
	}
}

var (
	errIdle = errors.New("no byte within the idle limit")
	errLate = errors.New("no answer in time")
)
