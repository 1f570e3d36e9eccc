package event

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// check holds the rules of the fields. They keep a sender's sentence out of
// every place where a closed-form value is read: facts, ids, subjects.
func (e *Event) check() error {
	if !IsToken(e.Source) || !IsToken(e.Endpoint) || !IsToken(e.Kind) || e.Action != "" && !IsToken(e.Action) {
		return errors.New("source, endpoint, kind and action are tokens")
	}
	if !strings.HasPrefix(e.ID, e.Source+":"+e.Endpoint+":") || !IsClosed(e.ID) {
		return errors.New("id is not <source>:<endpoint>:<key>")
	}
	if e.Trust != TrustUntrusted && e.Trust != TrustOperator {
		return errors.New("trust is not a known value")
	}
	if !isDigest(e.BodySHA256) || e.SameSHA256 != "" && !isDigest(e.SameSHA256) {
		return errors.New("a digest is not lower hex SHA-256")
	}
	if e.Time.IsZero() || e.Received.IsZero() {
		return errors.New("time or received is missing")
	}
	if !e.Actor.Level.Valid() {
		return errors.New("actor level is not an origin")
	}
	for _, s := range []string{e.EntityPath, e.Delivery, e.Entity.Kind, e.Entity.ID, e.Entity.Number,
		e.Actor.ID, e.Actor.Kind, e.Auth.Scheme, e.Auth.Key, e.Raw} {
		if s != "" && !IsClosed(s) {
			return errors.New("an id holds free text")
		}
	}
	for _, list := range [][]string{e.Anomalies, e.Auth.Signed} {
		if err := closedList(list); err != nil {
			return err
		}
	}
	for _, m := range []map[string]string{e.Facts, e.Entity.Scope} {
		for k, v := range m {
			if !IsClosed(k) || !IsClosed(v) {
				return fmt.Errorf("fact %q holds free text", k)
			}
		}
	}
	for k, list := range e.Lists {
		if !IsClosed(k) || closedList(list) != nil {
			return fmt.Errorf("list %q holds free text", k)
		}
	}
	if err := e.checkText(); err != nil {
		return err
	}
	return e.checkPayload()
}

func (e *Event) checkText() error {
	for row, o := range e.Prov {
		if !o.Valid() || !isPointer(row) {
			return errors.New("provenance row is malformed")
		}
	}
	for i := range e.Text {
		p := &e.Text[i]
		// IN-13: a credential is never text for a session.
		if !p.Origin.Valid() || p.Origin == Credential {
			return fmt.Errorf("passage %d has no deliverable origin", i)
		}
		if !isPointer(p.Pointer) || !IsClosed(p.As) || p.Author != "" && !IsClosed(p.Author) || closedList(p.Marks) != nil {
			return fmt.Errorf("passage %d is malformed", i)
		}
		if len(p.Value.v) > MaxText || !utf8.ValidString(p.Value.v) || p.Len < 0 {
			return fmt.Errorf("passage %d was not made by NewPassage", i)
		}
	}
	return nil
}

func (e *Event) checkPayload() error {
	switch {
	case e.Payload == nil:
		return nil
	case e.Raw != "":
		return errors.New("payload and raw exclude each other")
	case len(e.Payload) < 2 || e.Payload[0] != '{' || e.Payload[len(e.Payload)-1] != '}':
		return errors.New("payload is not a JSON object")
	}
	return nil
}

func closedList(l []string) error {
	for _, s := range l {
		if !IsClosed(s) {
			return errors.New("a list of codes holds free text")
		}
	}
	return nil
}

// IsToken reports whether s may be one token of a NATS subject: 1 to 64
// characters of [a-z0-9_-]. IN-21: nothing else reaches a subject.
func IsToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// IsClosed reports whether s has the form of an id, enum, number, digest or
// time: 1 to 512 printable ASCII characters without blank, quote, backslash,
// angle bracket or brace. A sentence does not pass.
func IsClosed(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ', c > '~', c == '"', c == '\'', c == '`', c == '\\', c == '<', c == '>', c == '{', c == '}':
			return false
		}
	}
	return s != "" && len(s) <= 512
}

func isDigest(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 64
}

func isPointer(s string) bool {
	return s == "" || s[0] == '/' && len(s) <= 1024 && utf8.ValidString(s)
}
