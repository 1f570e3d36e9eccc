package operations

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Operation is one thing that is done outside on a session's behalf.
type Operation struct {
	Name    string          // as bundles list it: scm.pr.create
	Summary string          // one line, for agents
	Schema  json.RawMessage // JSON Schema of the arguments; it must close its objects
	Limits  Limits

	// Do carries out one permitted call. It may be given the same Call.Key again
	// after a crash, and must then find what it did rather than do it again. An
	// error is a *problem.Error whose code the agent sees; see Unknown.
	Do func(ctx context.Context, c *Call) (result any, err error)

	// Once says that Do cannot find what it did. A call of which nobody knows
	// whether it had its effect is then never made again under its key.
	Once bool
}

// Limits bound an operation. Zero fields take the defaults.
type Limits struct {
	Calls   int           // that passed, in one session: 100
	Minute  int           // of them, in any minute: 30
	Args    int           // bytes of arguments: 64 KiB
	Result  int           // bytes of the result: 256 KiB
	Timeout time.Duration // of one call: 1 min
}

func (l Limits) or() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Calls, 100)
	def(&l.Minute, 30)
	def(&l.Args, 64<<10)
	def(&l.Result, 256<<10)
	if l.Timeout == 0 {
		l.Timeout = time.Minute
	}
	return l
}

// Call is one permitted call.
type Call struct {
	Session string
	Key     string          // unique in the session; the node's own have a colon, which no agent's has
	Args    json.RawMessage // valid under the schema, without duplicate keys

	mu      sync.Mutex
	watched []secret.Value
	status  int
}

// Into decodes the arguments.
func (c *Call) Into(v any) error { return json.Unmarshal(c.Args, v) }

// Watch names a credential that the call uses. A result that holds it is not
// returned, and ends the session.
func (c *Call) Watch(v secret.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = append(c.watched, v)
}

// Status notes the status of the answer from outside for the outcome receipt.
func (c *Call) Status(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = code
}

func (c *Call) outcome(effect, code string) enforcers.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return enforcers.Outcome{Effect: effect, Code: code, Status: c.status}
}

// holds reports whether a result has a watched credential in it.
func (c *Call) holds(result []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.watched {
		s := v.Reveal()
		for _, form := range [][]byte{s, []byte(base64.StdEncoding.EncodeToString(s)), []byte(base64.URLEncoding.EncodeToString(s))} {
			if len(s) > 0 && bytes.Contains(result, form) {
				return true
			}
		}
	}
	return false
}

// unknown is an error after which nobody knows whether the call had an effect.
type unknown struct{ error }

func (u unknown) Unwrap() error { return u.error }

// Unknown marks an error of Do: the request went out, and no answer says
// whether it had its effect. The outcome receipt says so.
func Unknown(err error) error { return unknown{err} }

// Codes of this package.
const (
	CodeArguments = "operation_arguments" // not what the schema asks for
	CodeUnlisted  = "operation_unknown"   // no such operation on this node
	CodeKey       = "operation_key"       // missing, malformed, or used for other arguments
	CodeLimit     = "operation_limit"     // called too often, or too long
	CodeFailed    = "operation_failed"    // the other side refused
	CodeResult    = "operation_result"    // too large, or not to be returned
)

// prepared is an operation with its schema resolved.
type prepared struct {
	Operation
	schema *jsonschema.Resolved
}

// Check says what is wrong with an operation before a desk is given it.
func Check(o Operation) error {
	_, err := prepare(o)
	return err
}

func prepare(o Operation) (*prepared, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(o.Schema, &s); err != nil {
		return nil, fmt.Errorf("operation %s: schema: %w", o.Name, err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("operation %s: schema: %w", o.Name, err)
	}
	if o.Do == nil || s.Type != "object" || !nothing(s.AdditionalProperties) {
		return nil, fmt.Errorf("operation %s: its arguments must be a closed object, and it must do something", o.Name)
	}
	o.Limits = o.Limits.or()
	return &prepared{o, r}, nil
}

// nothing reports whether a schema is false: additionalProperties can be there
// and leave an object open.
func nothing(s *jsonschema.Schema) bool {
	return s != nil && reflect.DeepEqual(*s, jsonschema.Schema{Not: &jsonschema.Schema{}})
}

// arguments holds raw against the schema and returns it in one spelling.
func (p *prepared) arguments(raw []byte) (json.RawMessage, error) {
	bad := func(why string) error {
		return problem.New(CodeArguments, "the arguments are not what "+p.Name+" takes: "+why, "GET /agent/v1/operations shows its schema.")
	}
	if len(raw) > p.Limits.Args {
		return nil, bad(fmt.Sprintf("more than %d bytes", p.Limits.Args))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := unique(d)
	if err != nil {
		return nil, bad(err.Error())
	}
	if _, err := d.Token(); err == nil {
		return nil, bad("more than one value")
	}
	one, err := json.Marshal(v) // sorts keys
	if err != nil {
		return nil, bad("not JSON")
	}
	var plain any
	if err := json.Unmarshal(one, &plain); err != nil {
		return nil, bad("not JSON")
	}
	if err := p.schema.Validate(plain); err != nil {
		return nil, bad(firstLine(err))
	}
	return one, nil
}

func firstLine(err error) string {
	line, _, _ := bytes.Cut([]byte(err.Error()), []byte("\n"))
	return string(line[:min(len(line), 200)])
}

var errTwice = errors.New("a key stands twice")

// unique decodes one value and refuses a key that stands twice: two readers
// could take either.
func unique(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, errors.New("not JSON")
	}
	switch t {
	case json.Delim('{'):
		m := map[string]any{}
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, errors.New("not JSON")
			}
			key := k.(string) // the decoder allows no other key
			if _, twice := m[key]; twice {
				return nil, errTwice
			}
			if m[key], err = unique(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return m, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := unique(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	return t, nil
}
