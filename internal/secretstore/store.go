package secretstore

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Bounds of a store.
const (
	MaxValue   = 64 << 10 // bytes of one secret: more is no credential
	MaxSecrets = 1024
)

// Entry is what a listing shows of a secret.
type Entry struct {
	Name string
	Set  time.Time // when the value was last set, UTC
}

// Store keeps secrets by name. It is a plug point: storetest.Run states what an
// implementation must do.
//
//   - A value is returned exactly as it was set.
//   - Get of a name that is not there is an error with code not_found, and so
//     is Remove.
//   - Set replaces and Remove forgets; when they return nil the change is
//     durable, when they return an error nothing has changed.
//   - A name that CheckName refuses and a value that CheckValue refuses are
//     errors with code usage.
//   - List is in the order of names and never holds a value.
//   - No error holds a value.
//   - All methods may be called at the same time, from several processes too.
type Store interface {
	Get(ctx context.Context, name string) (secret.Value, error)
	Set(ctx context.Context, name string, v secret.Value) error
	List(ctx context.Context) ([]Entry, error)
	Remove(ctx context.Context, name string) error
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// CheckName says what is wrong with a secret's name.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return problem.New(problem.Usage, fmt.Sprintf("%q is not a secret's name", name), "1 to 64 letters, digits, dots, hyphens and underscores, beginning with a letter or digit")
	}
	return nil
}

// CheckValue says what is wrong with a value, without repeating it.
func CheckValue(v secret.Value) error {
	switch n := len(v.Reveal()); {
	case n == 0:
		return problem.New(problem.Usage, "the secret is empty", "an empty secret would accept what anyone signs with nothing")
	case n > MaxValue:
		return problem.New(problem.Usage, fmt.Sprintf("the secret has more than %d bytes", MaxValue), "")
	}
	return nil
}

func notFound(name string) error {
	return problem.New(problem.NotFound, "there is no secret "+name, "set it with `gatehouse secret set "+name+"`, its value on standard input")
}
