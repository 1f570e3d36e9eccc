package enforcers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

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
	w := new(canon.Writer)
	w.Reset(make([]byte, 0, 512))
	w.Object()
	w.Key("at")
	w.Time(a.At)
	str(w, "connection", a.Connection)
	// Keys rise, so the body's place depends on its name.
	name := strings.ReplaceAll(string(a.Kind), ".", "_")
	if name < "id" {
		a.writeBody(w, name)
	}
	str(w, "id", a.ID)
	str(w, "kind", string(a.Kind))
	if name > "kind" && name < "seq" {
		a.writeBody(w, name)
	}
	w.Key("seq")
	w.Uint(a.Seq)
	str(w, "session", a.Session)
	if name > "session" {
		a.writeBody(w, name)
	}
	w.EndObject()
	b, err := w.Bytes()
	if err != nil {
		return nil, fmt.Errorf("action %s: %w", a.Kind, err)
	}
	return b, nil
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

func (a *Action) writeBody(w *canon.Writer, name string) {
	w.Key(name)
	w.Object()
	switch {
	case a.Connect != nil:
		boolean(w, "blind", a.Connect.Blind)
		boolean(w, "literal", a.Connect.Literal)
		place(w, a.Connect.To)
	case a.HTTP != nil:
		a.HTTP.write(w)
	case a.DNS != nil:
		str(w, "name", a.DNS.Name)
		str(w, "type", a.DNS.Type)
	case a.Fetch != nil:
		str(w, "path", a.Fetch.Path)
		num(w, "protocol", int64(a.Fetch.Protocol))
		str(w, "repository", a.Fetch.Repository)
		place(w, a.Fetch.To)
	case a.Push != nil:
		a.Push.write(w)
	case a.Model != nil:
		num(w, "held", a.Model.Held)
		num(w, "max_tokens", a.Model.MaxTokens)
		str(w, "model", a.Model.Model)
		str(w, "provider", a.Model.Provider)
		boolean(w, "stream", a.Model.Stream)
		place(w, a.Model.To)
	case a.Operation != nil:
		a.Operation.write(w)
	case a.Telemetry != nil:
		str(w, "path", a.Telemetry.Path)
		num(w, "size", a.Telemetry.Size)
		place(w, a.Telemetry.To)
	case a.Spawn != nil:
		str(w, "bundle", a.Spawn.Bundle)
		num(w, "count", int64(a.Spawn.Count))
		num(w, "depth", int64(a.Spawn.Depth))
	}
	w.EndObject()
}

func (h *HTTP) write(w *canon.Writer) {
	w.Key("body")
	w.Object()
	if len(h.Body.Bytes) > 0 {
		str(w, "bytes", base64.StdEncoding.EncodeToString(h.Body.Bytes))
	}
	num(w, "length", h.Body.Length)
	str(w, "mode", h.Body.Mode)
	w.EndObject()
	w.Key("headers")
	w.Object()
	for _, name := range canon.Keys(h.Headers) {
		strs(w, name, h.Headers[name])
	}
	w.EndObject()
	str(w, "method", h.Method)
	str(w, "path", h.Path)
	str(w, "query", h.Query)
	place(w, h.To)
	str(w, "upgrade", h.Upgrade)
}

func (p *Push) write(w *canon.Writer) {
	strs(w, "changed", p.Changed)
	w.Key("commands")
	w.Array()
	for _, c := range p.Commands {
		w.Object()
		boolean(w, "forced", c.Forced)
		str(w, "new", c.New)
		str(w, "old", c.Old)
		str(w, "ref", c.Ref)
		w.EndObject()
	}
	w.EndArray()
	str(w, "path", p.Path)
	str(w, "repository", p.Repository)
	place(w, p.To)
}

// write puts the arguments in as a value, re-encoded: an operation's arguments
// have one spelling whatever their maker wrote.
func (o *Operation) write(w *canon.Writer) {
	w.Key("args")
	var args any = map[string]any{}
	if len(o.Args) > 0 {
		d := json.NewDecoder(bytes.NewReader(o.Args))
		d.UseNumber()
		if err := d.Decode(&args); err != nil {
			w.Fail(fmt.Errorf("arguments: %w", err))
			return
		}
	}
	value(w, args)
	str(w, "name", o.Name)
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

func place(w *canon.Writer, a authority.Authority) {
	w.Key("to")
	w.Object()
	str(w, "host", a.Host())
	boolean(w, "ip", a.IsIP())
	num(w, "port", int64(a.Port()))
	str(w, "scheme", a.Scheme())
	w.EndObject()
}

func str(w *canon.Writer, key, v string) {
	w.Key(key)
	w.Cleaned(v)
}

func strs(w *canon.Writer, key string, vs []string) {
	w.Key(key)
	w.Array()
	for _, v := range vs {
		w.Cleaned(v)
	}
	w.EndArray()
}

func num(w *canon.Writer, key string, v int64) {
	w.Key(key)
	w.Int(v)
}

func boolean(w *canon.Writer, key string, v bool) {
	w.Key(key)
	w.Bool(v)
}
