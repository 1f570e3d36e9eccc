package enforcers

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gatehouse/internal/authority"
)

// timeLayout writes exactly nine decimals, UTC.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

// Canonical returns the action as canonical JSON: sorted keys, no white space,
// integers only. It is what every enforcer is given and what a receipt commits
// to. The body stands under its kind with the dot replaced by an underscore.
// The mode and the generation are left out: an enforcer judges the same bytes
// in shadow and in hard. The connection is there when the action names one:
// models and telemetry are listed by connection.
func (a *Action) Canonical() []byte {
	return a.AppendCanonical(make([]byte, 0, 512))
}

// AppendCanonical appends Canonical's bytes to b.
func (a *Action) AppendCanonical(b []byte) []byte {
	// Keys are written in sorted order, so the body's place depends on its
	// name.
	name := strings.ReplaceAll(string(a.Kind), ".", "_")
	body := func(b []byte) []byte {
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
		b = a.appendBody(b)
		return append(b, ',')
	}
	b = append(b, `{"at":"`...)
	b = a.At.UTC().AppendFormat(b, timeLayout)
	b = append(b, `",`...)
	if a.Connection != "" {
		b = append(b, `"connection":`...)
		b = appendString(b, a.Connection)
		b = append(b, ',')
	}
	if name < "id" {
		b = body(b)
	}
	b = append(b, `"id":`...)
	b = appendString(b, a.ID)
	b = append(b, `,"kind":`...)
	b = appendString(b, string(a.Kind))
	b = append(b, ',')
	if name > "kind" && name < "seq" {
		b = body(b)
	}
	b = append(b, `"seq":`...)
	b = strconv.AppendUint(b, a.Seq, 10)
	b = append(b, `,"session":`...)
	b = appendString(b, a.Session)
	if name > "session" {
		b = append(b, ',')
		b = body(b)
		b = b[:len(b)-1]
	}
	return append(b, '}')
}

func (a *Action) appendBody(b []byte) []byte {
	switch {
	case a.Connect != nil:
		o := newObject(b)
		o.bool("blind", a.Connect.Blind)
		o.to(a.Connect.To)
		o.bool("literal", a.Connect.Literal)
		o.port(a.Connect.To)
		o.string("scheme", a.Connect.To.Scheme())
		return o.end()
	case a.HTTP != nil:
		return a.HTTP.append(b)
	case a.DNS != nil:
		o := newObject(b)
		o.string("name", a.DNS.Name)
		o.string("type", a.DNS.Type)
		return o.end()
	case a.Fetch != nil:
		o := newObject(b)
		o.to(a.Fetch.To)
		o.string("path", a.Fetch.Path)
		o.port(a.Fetch.To)
		o.int("protocol", int64(a.Fetch.Protocol))
		o.string("repository", a.Fetch.Repository)
		o.string("scheme", a.Fetch.To.Scheme())
		return o.end()
	case a.Push != nil:
		return a.Push.append(b)
	case a.Model != nil:
		o := newObject(b)
		o.int("held", a.Model.Held)
		o.to(a.Model.To)
		o.int("max_tokens", a.Model.MaxTokens)
		o.string("model", a.Model.Model)
		o.port(a.Model.To)
		o.string("provider", a.Model.Provider)
		o.string("scheme", a.Model.To.Scheme())
		o.bool("stream", a.Model.Stream)
		return o.end()
	case a.Operation != nil:
		o := newObject(b)
		args := a.Operation.Args
		if len(args) == 0 {
			args = []byte("{}")
		}
		o.raw("args", args)
		o.string("name", a.Operation.Name)
		return o.end()
	case a.Telemetry != nil:
		o := newObject(b)
		o.to(a.Telemetry.To)
		o.string("path", a.Telemetry.Path)
		o.port(a.Telemetry.To)
		o.string("scheme", a.Telemetry.To.Scheme())
		o.int("size", a.Telemetry.Size)
		return o.end()
	case a.Spawn != nil:
		o := newObject(b)
		o.string("bundle", a.Spawn.Bundle)
		o.int("count", int64(a.Spawn.Count))
		o.int("depth", int64(a.Spawn.Depth))
		return o.end()
	default:
		return append(b, "{}"...)
	}
}

func (h *HTTP) append(b []byte) []byte {
	o := newObject(b)
	o.key("body")
	body := newObject(o.b)
	if len(h.Body.Bytes) > 0 {
		body.string("bytes", base64.StdEncoding.EncodeToString(h.Body.Bytes))
	}
	body.int("length", h.Body.Length)
	body.string("mode", h.Body.Mode)
	o.b = body.end()
	o.key("headers")
	headers := newObject(o.b)
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		headers.strings(name, h.Headers[name])
	}
	o.b = headers.end()
	o.to(h.To)
	o.string("method", h.Method)
	o.string("path", h.Path)
	o.port(h.To)
	o.string("query", h.Query)
	o.string("scheme", h.To.Scheme())
	o.string("upgrade", h.Upgrade)
	return o.end()
}

func (p *Push) append(b []byte) []byte {
	o := newObject(b)
	o.strings("changed", p.Changed)
	o.key("commands")
	o.b = append(o.b, '[')
	for i, c := range p.Commands {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		cmd := newObject(o.b)
		cmd.bool("forced", c.Forced)
		cmd.string("new", c.New)
		cmd.string("old", c.Old)
		cmd.string("ref", c.Ref)
		o.b = cmd.end()
	}
	o.b = append(o.b, ']')
	o.to(p.To)
	o.string("path", p.Path)
	o.port(p.To)
	o.string("repository", p.Repository)
	o.string("scheme", p.To.Scheme())
	return o.end()
}

// object appends the members of one JSON object, which its caller gives in
// sorted order.
type object struct {
	b     []byte
	first bool
}

func newObject(b []byte) *object { return &object{b: append(b, '{'), first: true} }

func (o *object) key(k string) {
	if !o.first {
		o.b = append(o.b, ',')
	}
	o.first = false
	o.b = appendString(o.b, k)
	o.b = append(o.b, ':')
}

func (o *object) string(k, v string) { o.key(k); o.b = appendString(o.b, v) }
func (o *object) bool(k string, v bool) {
	o.key(k)
	o.b = strconv.AppendBool(o.b, v)
}
func (o *object) int(k string, v int64) { o.key(k); o.b = strconv.AppendInt(o.b, v, 10) }
func (o *object) raw(k string, v []byte) {
	o.key(k)
	o.b = append(o.b, v...)
}

func (o *object) to(a authority.Authority) { o.string("host", a.Host()) }

func (o *object) port(a authority.Authority) { o.int("port", int64(a.Port())) }

func (o *object) strings(k string, vs []string) {
	o.key(k)
	o.b = append(o.b, '[')
	for i, v := range vs {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendString(o.b, v)
	}
	o.b = append(o.b, ']')
}

func (o *object) end() []byte { return append(o.b, '}') }

// appendString appends s as RFC 8785 wants strings: only what JSON demands is
// escaped. Bytes that are not UTF-8 become U+FFFD, so that no two enforcers
// can read them differently.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"', c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
