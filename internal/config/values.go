package config

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Secret is a reference to a secret: ${env:NAME}, ${file:PATH}, or ${secret:NAME}
// for one in the node's encrypted store. A literal is refused, so that a
// configuration file can be shown to anyone.
type Secret struct {
	ref   string // as written
	value secret.Value
}

var reference = regexp.MustCompile(`^\$\{(env|file|secret):([^}]+)\}$`)

// UnmarshalText keeps the reference; Load resolves it.
func (s *Secret) UnmarshalText(b []byte) error {
	if !reference.Match(b) {
		return problem.New(problem.ConfigInvalid, "a secret is written as a reference, never as a literal",
			"use ${env:NAME}, ${file:PATH} or ${secret:NAME}")
	}
	s.ref = string(b)
	return nil
}

// MarshalText returns the reference, which names the secret and is not one.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.ref), nil }

// Ref returns the reference as written, "" if none.
func (s Secret) Ref() string { return s.ref }

// IsZero reports whether nothing is referred to. Without it the encoder, which
// sees no field of a Secret, leaves every one out.
func (s Secret) IsZero() bool { return s.ref == "" }

// Value returns the resolved secret.
func (s Secret) Value() secret.Value { return s.value }

// Lookup reads a secret from the node's encrypted store. It is called for
// ${secret:NAME} alone, when the other references of c's own are resolved.
type Lookup func(c *Config, name string) (secret.Value, error)

// resolve reads the secret. where names the key for the error.
func (s *Secret) resolve(where string, c *Config, store Lookup) error {
	if s.ref == "" {
		return nil
	}
	m := reference.FindStringSubmatch(s.ref)
	var text string
	switch m[1] {
	case "env":
		v, ok := os.LookupEnv(m[2])
		if !ok {
			return problem.New(problem.ConfigInvalid, fmt.Sprintf("%s: environment variable %s is not set", where, m[2]),
				"set it for the process that runs gatehouse")
		}
		text = v
	case "file":
		b, err := os.ReadFile(c.Path(m[2]))
		if err != nil {
			return problem.Wrap(err, problem.ConfigInvalid, fmt.Sprintf("%s: couldn't read the secret's file", where), "check the path and its mode (0600)")
		}
		// Editors end files with a newline that no vendor signed with.
		text = strings.TrimRight(string(b), "\r\n")
	case "secret":
		if store == nil {
			return problem.New(problem.ConfigInvalid, where+": the secret store is not open here", "use ${env:NAME} or ${file:PATH}")
		}
		v, err := store(c, m[2])
		if err != nil {
			return problem.Wrap(err, problem.ConfigInvalid, fmt.Sprintf("%s: couldn't read the secret %s", where, m[2]), problem.HintOf(err))
		}
		text = string(v.Reveal())
	}
	if text == "" {
		return problem.New(problem.ConfigInvalid, fmt.Sprintf("%s: the secret %s is empty", where, s.ref),
			"an empty secret would accept what anyone signs with nothing")
	}
	s.value = secret.FromString(text)
	return nil
}

// Duration is a time.Duration that also reads days: "90d", "36h".
type Duration time.Duration

// UnmarshalText reads "90d", "36h", "15m".
func (d *Duration) UnmarshalText(b []byte) error {
	s := string(b)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return problem.New(problem.ConfigInvalid, fmt.Sprintf("%q is not a duration", s), "write 90d, 36h or 15m")
		}
		*d = Duration(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return problem.New(problem.ConfigInvalid, fmt.Sprintf("%q is not a duration", s), "write 90d, 36h or 15m")
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes whole days as days.
func (d Duration) MarshalText() ([]byte, error) {
	v := time.Duration(d)
	if v > 0 && v%(24*time.Hour) == 0 {
		return fmt.Appendf(nil, "%dd", v/(24*time.Hour)), nil
	}
	return []byte(v.String()), nil
}

// UIDRange is an inclusive range of bare numeric uids, written "610000-610999".
type UIDRange struct{ First, Last uint32 }

// UnmarshalText reads "first-last".
func (r *UIDRange) UnmarshalText(b []byte) error {
	first, last, ok := strings.Cut(string(b), "-")
	f, err1 := strconv.ParseUint(first, 10, 32)
	l, err2 := strconv.ParseUint(last, 10, 32)
	// uid 0 is never a sandbox's, and ids below 1000 belong to the system.
	if !ok || err1 != nil || err2 != nil || f < 1000 || l < f {
		return problem.New(problem.ConfigInvalid, fmt.Sprintf("%q is not a range of uids", b), "write first-last, both at least 1000, for example 610000-610999")
	}
	r.First, r.Last = uint32(f), uint32(l)
	return nil
}

// MarshalText writes "first-last".
func (r UIDRange) MarshalText() ([]byte, error) {
	if r == (UIDRange{}) {
		return nil, nil
	}
	return fmt.Appendf(nil, "%d-%d", r.First, r.Last), nil
}
