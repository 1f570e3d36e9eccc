package enforcers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"gatehouse/internal/authority"
	"gatehouse/internal/canon"
)

// Canonical returns the action as canonical JSON (internal/canon): what every
// enforcer is given and what a receipt commits to. The body stands under its
// kind with the dot replaced by an underscore. Mode and generation are left
// out, so that an enforcer judges the same bytes in shadow and in hard. Text
// outside the profile is replaced (canon.Clean); a number outside it is an
// error.
func (a *Action) Canonical() ([]byte, error) {
	// Keys rise, so the body's place depends on its name.
	name := a.Kind.member()
	t := text{b: make([]byte, 0, 512)}
	t.raw(`{"at":`)
	t.time(a.At)
	t.str(`,"connection":`, a.Connection)
	if name < "id" {
		a.writeBody(&t, name)
	}
	t.str(`,"id":`, a.ID)
	t.str(`,"kind":`, string(a.Kind))
	if name > "kind" && name < "seq" {
		a.writeBody(&t, name)
	}
	if a.Seq > canon.MaxInt {
		t.fail(canon.ErrNumber)
	}
	t.num(`,"seq":`, int64(a.Seq))
	t.str(`,"session":`, a.Session)
	if name > "session" {
		a.writeBody(&t, name)
	}
	t.raw(`}`)
	if t.err != nil {
		return nil, fmt.Errorf("action %s: %w", a.Kind, t.err)
	}
	return t.b, nil
}

// member returns the key under which the body of a kind stands, "" for no kind.
func (k Kind) member() string {
	switch k {
	case NetConnect:
		return "net_connect"
	case HTTPRequest:
		return "http_request"
	case DNSQuery:
		return "dns_query"
	case GitFetch:
		return "git_fetch"
	case GitPush:
		return "git_push"
	case ModelCall:
		return "model_call"
	case OperationCall:
		return "operation_call"
	case TelemetryEmit:
		return "telemetry_emit"
	case SessionSpawn:
		return "session_spawn"
	}
	return ""
}

// Judged returns what Canonical does. Inside Recorder.Decision these are the
// very bytes that the enforcers were given, not made again; the caller must not
// change them.
func (a *Action) Judged() ([]byte, error) {
	if a.judged != nil {
		return a.judged, nil
	}
	return a.Canonical()
}

func (a *Action) writeBody(t *text, name string) {
	if name == "" {
		t.fail(errors.New("no such kind"))
		return
	}
	t.raw(`,"`)
	t.raw(name)
	t.raw(`":{`)
	switch {
	case a.Connect != nil:
		t.boolean(`"blind":`, a.Connect.Blind)
		t.boolean(`,"literal":`, a.Connect.Literal)
		t.to(a.Connect.To)
	case a.HTTP != nil:
		a.HTTP.write(t)
	case a.DNS != nil:
		t.str(`"name":`, a.DNS.Name)
		t.str(`,"type":`, a.DNS.Type)
	case a.Fetch != nil:
		t.str(`"path":`, a.Fetch.Path)
		t.num(`,"protocol":`, int64(a.Fetch.Protocol))
		t.str(`,"repository":`, a.Fetch.Repository)
		t.to(a.Fetch.To)
	case a.Push != nil:
		a.Push.write(t)
	case a.Model != nil:
		t.num(`"held":`, a.Model.Held)
		t.num(`,"max_tokens":`, a.Model.MaxTokens)
		t.str(`,"model":`, a.Model.Model)
		t.str(`,"provider":`, a.Model.Provider)
		t.boolean(`,"stream":`, a.Model.Stream)
		t.to(a.Model.To)
	case a.Operation != nil:
		a.Operation.write(t)
	case a.Telemetry != nil:
		t.str(`"path":`, a.Telemetry.Path)
		t.num(`,"size":`, a.Telemetry.Size)
		t.to(a.Telemetry.To)
	case a.Spawn != nil:
		t.str(`"bundle":`, a.Spawn.Bundle)
		t.num(`,"count":`, int64(a.Spawn.Count))
		t.num(`,"depth":`, int64(a.Spawn.Depth))
	}
	t.raw(`}`)
}

func (h *HTTP) write(t *text) {
	t.raw(`"body":{`)
	if len(h.Body.Bytes) > 0 {
		t.str(`"bytes":`, base64.StdEncoding.EncodeToString(h.Body.Bytes))
		t.raw(`,`)
	}
	t.num(`"length":`, h.Body.Length)
	t.str(`,"mode":`, h.Body.Mode)
	t.raw(`},"headers":{`)
	for i, name := range canon.Keys(h.Headers) {
		t.fail(canon.CheckKey(name))
		if i > 0 {
			t.raw(`,`)
		}
		t.raw(`"`)
		t.raw(name)
		t.strs(`":`, h.Headers[name])
	}
	t.str(`},"method":`, h.Method)
	t.str(`,"path":`, h.Path)
	t.str(`,"query":`, h.Query)
	t.to(h.To)
	t.str(`,"upgrade":`, h.Upgrade)
}

func (p *Push) write(t *text) {
	t.strs(`"changed":`, p.Changed)
	t.raw(`,"commands":[`)
	for i, c := range p.Commands {
		if i > 0 {
			t.raw(`,`)
		}
		t.boolean(`{"forced":`, c.Forced)
		t.str(`,"new":`, c.New)
		t.str(`,"old":`, c.Old)
		t.str(`,"ref":`, c.Ref)
		t.raw(`}`)
	}
	t.str(`],"path":`, p.Path)
	t.str(`,"repository":`, p.Repository)
	t.to(p.To)
}

// write puts the arguments in as a value, re-encoded: an operation's arguments
// have one spelling whatever their maker wrote.
func (o *Operation) write(t *text) {
	var args any = map[string]any{}
	if len(o.Args) > 0 {
		d := json.NewDecoder(bytes.NewReader(o.Args))
		d.UseNumber()
		if err := d.Decode(&args); err != nil {
			t.fail(fmt.Errorf("arguments: %w", err))
			return
		}
	}
	var w canon.Writer
	w.Array() // two levels around them, as in the action: there is a deepest one
	w.Array()
	value(&w, args)
	w.EndArray()
	w.EndArray()
	b, err := w.Bytes()
	if err != nil {
		t.fail(err)
		return
	}
	t.raw(`"args":`)
	t.b = append(t.b, b[2:len(b)-2]...)
	t.str(`,"name":`, o.Name)
}

// value writes what encoding/json decoded. Null and fractions are outside the
// profile.
func value(w *canon.Writer, v any) {
	switch v := v.(type) {
	case map[string]any:
		w.Object()
		for _, k := range canon.Keys(v) {
			w.Key(k)
			value(w, v[k])
		}
		w.EndObject()
	case []any:
		w.Array()
		for _, e := range v {
			value(w, e)
		}
		w.EndArray()
	case string:
		w.Cleaned(v)
	case bool:
		w.Bool(v)
	case json.Number:
		n, err := v.Int64()
		w.Fail(err)
		w.Int(n)
	default:
		w.Fail(fmt.Errorf("%w: null", canon.ErrSyntax))
	}
}

// text is canonical JSON under way. The keys of an action are constants, and stand
// in the code with what surrounds them: TestCanonical fixes them, where a
// canon.Writer looks at each again for each action.
type text struct {
	b   []byte
	err error // the first
}

func (t *text) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *text) raw(s string) { t.b = append(t.b, s...) }

// str writes canon.Clean(v).
func (t *text) str(key, v string) {
	t.b = append(t.b, key...)
	b, err := canon.AppendString(t.b, v)
	if err != nil {
		b, err = canon.AppendString(t.b, canon.Clean(v))
		t.fail(err)
	}
	t.b = b
}

func (t *text) strs(key string, vs []string) {
	t.raw(key)
	t.raw(`[`)
	for i, v := range vs {
		if i > 0 {
			t.raw(`,`)
		}
		t.str("", v)
	}
	t.raw(`]`)
}

func (t *text) num(key string, v int64) {
	if v > canon.MaxInt || v < -canon.MaxInt {
		t.fail(fmt.Errorf("%w: %d", canon.ErrNumber, v))
	}
	t.b = strconv.AppendInt(append(t.b, key...), v, 10)
}

func (t *text) boolean(key string, v bool) { t.b = strconv.AppendBool(append(t.b, key...), v) }

func (t *text) time(v time.Time) {
	b, err := canon.AppendTime(append(t.b, '"'), v)
	t.fail(err)
	t.b = append(b, '"')
}

func (t *text) to(a authority.Authority) {
	t.str(`,"to":{"host":`, a.Host())
	t.boolean(`,"ip":`, a.IsIP())
	t.num(`,"port":`, int64(a.Port()))
	t.str(`,"scheme":`, a.Scheme())
	t.raw(`}`)
}
