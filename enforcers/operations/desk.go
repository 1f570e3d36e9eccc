package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

// Desk takes one session's calls. It is safe for concurrent use.
type Desk struct {
	Log *slog.Logger // of faults; by default nobody hears of them

	session string
	gate    *enforcers.Gate
	by      map[string]*prepared

	under sync.WaitGroup // calls under way
	clock func() time.Time

	mu     sync.Mutex
	closed bool
	calls  map[string]*called     // by key
	passed map[string][]time.Time // by operation: when its calls were made
}

// called is one key's call and, once done is closed, what came of it.
type called struct {
	name   string
	args   []byte
	done   chan struct{}
	result json.RawMessage
	dec    enforcers.Decision
	err    error
}

// New returns the desk of the gate's session. operations are what this node can
// do; which of them the session may is for the gate to say.
func New(g *enforcers.Gate, operations []Operation) (*Desk, error) {
	d := &Desk{Log: slog.New(slog.DiscardHandler), session: g.Session(), gate: g, by: map[string]*prepared{}, calls: map[string]*called{}, passed: map[string][]time.Time{}, clock: time.Now}
	for _, o := range operations {
		if d.by[o.Name] != nil {
			return nil, fmt.Errorf("operation %s stands twice", o.Name)
		}
		p, err := prepare(o)
		if err != nil {
			return nil, err
		}
		d.by[o.Name] = p
	}
	return d, nil
}

// keyForm is what an agent's key may be. It has no colon: see CallOwn.
var keyForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Call carries out one operation under a key that the agent chose. The same key
// with the same arguments gives the same result and has no second effect. Every
// refusal has its receipt, one of arguments too; an error is a *problem.Error.
func (d *Desk) Call(ctx context.Context, name, key string, args []byte) (json.RawMessage, enforcers.Decision, error) {
	p := d.by[name]
	if p == nil {
		return d.refuse(ctx, "", problem.New(CodeUnlisted, "there is no such operation", "GET /agent/v1/operations lists what there is."))
	}
	if !keyForm.MatchString(key) {
		return d.refuse(ctx, p.Name, problem.New(CodeKey, "a call needs a key of its own", "Send Idempotency-Key: letters, digits, . _ and -, at most 64; the same one when you try again."))
	}
	return d.call(ctx, p, key, args)
}

// refuse writes the receipt of a call that cannot even be judged. It names the
// operation, if there is one, and holds none of the agent's words.
func (d *Desk) refuse(ctx context.Context, name string, why error) (json.RawMessage, enforcers.Decision, error) {
	a := d.gate.Action(enforcers.OperationCall)
	a.Operation, a.HardSet = &enforcers.Operation{Name: name}, string(problem.CodeOf(why))
	_, dec := d.gate.Decide(ctx, a)
	return nil, dec, why
}

// ownPrefix begins the keys of the node's own calls, and with them the marks that
// these leave outside.
const ownPrefix = "node:"

// CallOwn is Call for what the node itself does for the session. Its keys are apart
// from those that an agent can choose: an agent could otherwise write under the key
// of the session's last words, which would then be found said.
func (d *Desk) CallOwn(ctx context.Context, name, key string, args []byte) (json.RawMessage, enforcers.Decision, error) {
	p := d.by[name]
	if p == nil {
		return nil, enforcers.Decision{}, problem.New(CodeUnlisted, "there is no such operation", "list operations of this node's connections only")
	}
	return d.call(ctx, p, ownPrefix+key, args)
}

func (d *Desk) call(ctx context.Context, p *prepared, key string, args []byte) (json.RawMessage, enforcers.Decision, error) {
	canonical, err := p.arguments(args)
	if err != nil {
		return d.refuse(ctx, p.Name, err)
	}
	d.mu.Lock()
	c := d.calls[key]
	if c == nil {
		if d.closed {
			d.mu.Unlock()
			return nil, enforcers.Decision{}, problem.New(enforcers.CodeRevoked, "the session has ended", "")
		}
		c = &called{name: p.Name, args: canonical, done: make(chan struct{})}
		d.calls[key] = c
		// Whoever asked may leave; what was begun is carried to its end.
		d.under.Go(func() {
			defer close(c.done)
			c.result, c.dec, c.err = d.run(context.WithoutCancel(ctx), p, key, canonical)
			if c.err != nil && !(p.Once && unsure(c.err)) {
				d.forget(key) // it had no effect, or Do finds the effect that it had
			}
		})
		d.mu.Unlock()
	} else {
		d.mu.Unlock()
		if c.name != p.Name || !bytes.Equal(c.args, canonical) {
			return d.refuse(ctx, p.Name, problem.New(CodeKey, "the key was used for another call", "Use a new key for a new call."))
		}
	}
	select {
	case <-c.done:
		return c.result, c.dec, c.err
	case <-ctx.Done():
		return nil, enforcers.Decision{}, problem.Wrap(ctx.Err(), CodeLimit, "the call is still under way", "Ask again with the same key.")
	}
}

// Close takes no more calls and waits for those under way. The gate's end cuts
// them short.
func (d *Desk) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.under.Wait()
}

func (d *Desk) forget(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, key)
}

// run asks the gate and carries out what it permits.
func (d *Desk) run(ctx context.Context, p *prepared, key string, args json.RawMessage) (json.RawMessage, enforcers.Decision, error) {
	a := d.gate.Action(enforcers.OperationCall)
	a.Operation = &enforcers.Operation{Name: p.Name, Args: args}
	permit, dec := d.gate.Decide(ctx, a)
	if permit == nil {
		hint := "Another way of asking changes nothing; request access with the receipt if the task needs it."
		if d.gate.Context().Err() != nil {
			hint = ""
		}
		return nil, dec, problem.New(problem.Code(dec.Reason), "the operation is refused", hint)
	}
	if err := permit.Use(); err != nil {
		permit.Void(string(problem.CodeOf(err)))
		return nil, dec, err
	}
	if err := d.count(p); err != nil {
		permit.Done(enforcers.Outcome{Effect: enforcers.NotForwarded, Code: CodeLimit})
		return nil, dec, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Limits.Timeout)
	defer cancel()
	stop := context.AfterFunc(permit.Context(), cancel) // the session's end cuts it
	defer stop()
	call := &Call{Session: d.session, Key: key, Args: args}
	v, err := d.do(ctx, p, call)
	if err != nil {
		code := string(problem.CodeOf(err))
		effect := enforcers.NotForwarded
		if unsure(err) {
			effect = enforcers.Unknown
		} else if call.outcome("", "").Status != 0 {
			effect = enforcers.Forwarded
		}
		permit.Done(call.outcome(effect, code))
		if code == enforcers.CodeReflected {
			d.gate.Revoke(code)
		}
		return nil, dec, err
	}
	result, err := json.Marshal(v)
	switch {
	case err != nil || len(result) > p.Limits.Result:
		permit.Done(call.outcome(enforcers.Forwarded, CodeResult))
		return nil, dec, problem.New(CodeResult, "it was carried out, and its result is too large to be returned", "")
	case call.holds(result):
		// ME-13: the other side has shown the credential.
		permit.Done(call.outcome(enforcers.Forwarded, enforcers.CodeReflected))
		d.gate.Revoke(enforcers.CodeReflected)
		return nil, dec, problem.New(enforcers.CodeReflected, "the result held a credential; the session has ended", "")
	}
	permit.Done(call.outcome(enforcers.Forwarded, ""))
	return result, dec, nil
}

// do carries out one call. A fault in an operation ends the call, not the node:
// nobody knows then what it had done.
func (d *Desk) do(ctx context.Context, p *prepared, c *Call) (v any, err error) {
	defer func() {
		if r := recover(); r != nil {
			d.Log.ErrorContext(ctx, "operation.panic", slog.String("operation", p.Name), slog.Any("value", r), slog.String("stack", string(debug.Stack())))
			v, err = nil, Unknown(problem.New(problem.Internal, "the operation broke off", "Nobody knows whether it had its effect."))
		}
	}()
	return p.Do(ctx, c)
}

// count takes one call of what the operation's limits leave.
func (d *Desk) count(p *prepared) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	made := d.passed[p.Name]
	if len(made) >= p.Limits.Calls {
		return problem.New(CodeLimit, fmt.Sprintf("%s was called %d times in this session", p.Name, p.Limits.Calls), "Go on without it.")
	}
	now := d.clock()
	if n := len(made) - p.Limits.Minute; n >= 0 && now.Sub(made[n]) < time.Minute {
		return problem.New(CodeLimit, fmt.Sprintf("%s was called %d times in a minute", p.Name, p.Limits.Minute), "Wait a minute and ask again with the same key.")
	}
	d.passed[p.Name] = append(made, now)
	return nil
}

func unsure(err error) bool {
	var u unknown
	return errors.As(err, &u)
}

// Listed is one operation as agents are shown it.
type Listed struct {
	Name    string          `json:"name"`
	Summary string          `json:"summary"`
	Schema  json.RawMessage `json:"schema"`
}

// List returns what this node can do, by name.
func (d *Desk) List() []Listed {
	out := []Listed{}
	for _, p := range d.by {
		out = append(out, Listed{p.Name, p.Summary, p.Schema})
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Prefix is where Desk serves on the door's own host.
const Prefix = "/agent/v1/operations"

// ServeHTTP serves GET Prefix, which lists, and POST Prefix/NAME with arguments
// as JSON and the key in Idempotency-Key, which calls. A refusal is 403 problem
// JSON with the code, the rule and the receipt.
func (d *Desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, call := strings.CutPrefix(r.URL.Path, Prefix+"/")
	switch {
	case r.URL.Path == Prefix && r.Method == http.MethodGet:
		reply(w, http.StatusOK, map[string]any{"operations": d.List()})
	case call && r.Method == http.MethodPost:
		args, err := readAll(r)
		if err != nil {
			refuse(w, enforcers.Decision{}, err)
			return
		}
		result, dec, err := d.Call(r.Context(), name, r.Header.Get("Idempotency-Key"), args)
		if err != nil {
			refuse(w, dec, err)
			return
		}
		reply(w, http.StatusOK, map[string]any{"result": result, "receipt": dec.Receipt.String()})
	case call || r.URL.Path == Prefix:
		w.Header().Set("Allow", http.MethodGet+", "+http.MethodPost)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	default:
		http.NotFound(w, r)
	}
}
