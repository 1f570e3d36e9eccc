package telemetry

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"

	"gatehouse/enforcers/door"
)

// maxEnvelopeItems bounds one envelope.
const maxEnvelopeItems = 100

// reported are the types of envelope items that pass. Attachments, replays,
// profiles and whatever else there is are taken out: they are files.
var reported = []string{"event", "transaction", "session", "sessions", "client_report", "check_in", "log"}

// envelope rewrites a Sentry envelope and returns how many bytes of it were
// taken out. A nil body means that nothing is left.
func (id identity) envelope(b []byte, s *sink) (out []byte, dropped int, code string) {
	line, rest := cutLine(b)
	head, ok := object(line)
	if !ok {
		return nil, 0, CodeBody
	}
	if dsn, there := head["dsn"]; there && !s.own(dsn) {
		return nil, 0, CodeDSN // ME-21
	}
	kept := map[string]any{}
	for _, name := range []string{"event_id", "sent_at", "sdk"} { // the sampling context would repeat the key
		if v, there := head[name]; there {
			kept[name] = v
		}
	}
	if out, code = appendJSON(out, kept); code != "" {
		return nil, 0, code
	}
	left := 0
	for n := 0; len(bytes.TrimLeft(rest, "\r\n")) > 0; n++ {
		if n == maxEnvelopeItems {
			return nil, 0, CodeSize
		}
		item, body, after, ok := cutItem(rest)
		if !ok {
			return nil, 0, CodeBody
		}
		rest = after
		kind, _ := item["type"].(string)
		if !slices.Contains(reported, kind) {
			dropped += max(len(body), 1)
			continue
		}
		payload, ok := object(body)
		if !ok {
			return nil, 0, CodeBody
		}
		id.mark(kind, payload)
		written, err := encode(payload)
		if err != nil {
			return nil, 0, CodeBody
		}
		as := map[string]any{"type": kind, "length": len(written)}
		for _, name := range []string{"content_type", "item_count"} {
			if v, there := item[name]; there {
				as[name] = v
			}
		}
		if out, code = appendJSON(out, as); code != "" {
			return nil, 0, code
		}
		out = append(append(out, written...), '\n')
		left++
	}
	if left == 0 && dropped == 0 {
		return nil, 0, CodeBody
	}
	if left == 0 {
		out = nil
	}
	return out, dropped, ""
}

// own reports whether a DSN is the session's own: its placeholder, at the door.
func (s *sink) own(dsn any) bool {
	text, _ := dsn.(string)
	u, err := url.Parse(text)
	if err != nil || u.User.Username() != s.placeholder {
		return false
	}
	return u.Host == door.Reserved && u.Path == Prefix+s.Name+"/"+localProject
}

func appendJSON(b []byte, v any) ([]byte, string) {
	j, err := encode(v)
	if err != nil {
		return nil, CodeBody
	}
	return append(append(b, j...), '\n'), ""
}

func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), rest
}

// cutItem cuts one item off: a line of JSON, and so many bytes as it says, or
// the next line.
func cutItem(b []byte) (item map[string]any, body, rest []byte, ok bool) {
	line, rest := cutLine(bytes.TrimLeft(b, "\r\n"))
	item, ok = object(line)
	if !ok {
		return nil, nil, nil, false
	}
	n, there := item["length"]
	if !there {
		body, rest = cutLine(rest)
		return item, body, rest, true
	}
	size, ok := count(n)
	if !ok || size > len(rest) {
		return nil, nil, nil, false
	}
	body, rest = rest[:size], rest[size:]
	if len(rest) > 0 && rest[0] != '\n' && !bytes.HasPrefix(rest, []byte("\r\n")) {
		return nil, nil, nil, false
	}
	return item, body, rest, true
}

// mark says in an item whose session it is.
func (id identity) mark(kind string, payload map[string]any) {
	switch kind {
	case "event", "transaction":
		payload["tags"] = id.tags(payload["tags"])
		delete(payload, "server_name")
	case "log":
		items, _ := payload["items"].([]any)
		for _, one := range items {
			m, ok := one.(map[string]any)
			if !ok {
				continue
			}
			attrs, ok := m["attributes"].(map[string]any)
			if !ok {
				attrs = map[string]any{}
			}
			for k := range attrs {
				if reserved(k) {
					delete(attrs, k)
				}
			}
			for _, a := range id.attributes()[1:] {
				attrs[a[0]] = map[string]any{"type": "string", "value": a[1]}
			}
			m["attributes"] = attrs
		}
	}
}

// tags adds the session to an event's tags, which are an object or a list of
// pairs.
func (id identity) tags(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		m = map[string]any{}
		pairs, _ := v.([]any)
		for _, p := range pairs {
			if pair, ok := p.([]any); ok && len(pair) == 2 {
				if k, ok := pair[0].(string); ok {
					m[k] = pair[1]
				}
			}
		}
	}
	for k := range m {
		if reserved(k) {
			delete(m, k)
		}
	}
	for _, a := range id.attributes()[1:] {
		m[a[0]] = a[1]
	}
	return m
}

// count reads a length that stands in JSON.
func count(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(n.String())
	return i, err == nil && i >= 0
}
