package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/internal/problem"
)

// Codes of this package.
const (
	CodeRoute   = "telemetry_route"       // not a write path of the connection
	CodeDSN     = "telemetry_foreign_dsn" // another project, host or key than the connection's
	CodeBody    = "telemetry_body"        // not what the route takes
	CodeSize    = "telemetry_size"        // too large, packed or unpacked, or of too many parts
	CodeSecret  = "telemetry_secret"      // something in it is marked as a credential
	CodeItem    = "telemetry_item"        // an attachment, a replay, a profile
	CodeRate    = "telemetry_rate"        // too many in a second
	CodeLimit   = "telemetry_limit"       // too much in one session
	CodeBusy    = "telemetry_busy"        // dropped: too many under way
	CodeResting = "telemetry_resting"     // dropped: the sink failed a moment ago
	CodeRefused = "telemetry_refused"     // the sink refused it
)

var hints = map[string]string{
	CodeRoute:                       "Only reports pass to this host; nothing is read from it.",
	CodeDSN:                         "Use the DSN in SENTRY_DSN as it stands.",
	CodeBody:                        "Send what the protocol documents, with distinct keys; see docs/telemetry.md.",
	CodeSize:                        "Send smaller batches.",
	CodeSecret:                      "Take the credential out of the report.",
	CodeItem:                        "Send events without attachments, replays and profiles.",
	CodeRate:                        "Send larger batches less often.",
	CodeLimit:                       "The session has reported as much as it may.",
	enforcers.CodeForeignCredential: "Send the report without a credential; Gatehouse adds the right one.",
	enforcers.CodePlaceholder:       "Use the placeholder of this session and connection, as it stands in the variable.",
}

// message is one report on its way.
type message struct {
	m  *Mediator
	s  *sink
	r  *door.Request
	rt route
}

// serve carries one request to a connection.
func (m *Mediator) serve(w http.ResponseWriter, r *door.Request) {
	s, at := m.find(r)
	credentials := r.TakeCredentials()
	rt, ok := s.route(r.Method, at)
	if !ok || r.Upgrade != "" {
		m.turnAway(w, r, s, at)
		return
	}
	x := &message{m: m, s: s, r: r, rt: rt}
	code := s.foreign(credentials, r)
	var body []byte
	if code == "" {
		body, code = x.read()
	}
	if code == "" {
		code = m.enter(int64(len(body)))
	}
	var out *rewritten
	if code == "" {
		out, code = x.rewrite(body)
	}
	if code != "" {
		x.refuse(w, len(body), code)
		return
	}
	if out.dropped > 0 {
		// What is taken out is refused by itself, so that a receipt says so.
		_, d := r.Decide(x.action(out.dropped, CodeItem))
		m.seen(s, CodeItem)
		if out.body == nil {
			answer(w, d, CodeItem)
			return
		}
	}
	p, d := r.Decide(x.action(len(out.body), ""))
	if p == nil {
		m.seen(s, d.Reason)
		door.Refuse(w, d)
		return
	}
	x.send(p, out)
	x.succeed(w)
}

// turnAway refuses a request that is no report: it is an http.request to a host
// that a credential is bound to. The same keys that write also read.
func (m *Mediator) turnAway(w http.ResponseWriter, r *door.Request, s *sink, at string) {
	a := r.Action()
	a.Connection, a.HardSet = s.Name, CodeRoute
	a.HTTP.To, a.HTTP.Path = s.to, s.base+at
	_, d := r.Decide(a)
	m.seen(s, CodeRoute)
	answer(w, d, CodeRoute)
}

func (x *message) action(size int, code string) *enforcers.Action {
	a := x.r.Gate.Action(enforcers.TelemetryEmit)
	a.Connection, a.HardSet = x.s.Name, code
	a.Telemetry = &enforcers.Telemetry{To: x.s.to, Path: x.s.base + x.rt.path, Size: int64(size)}
	return a
}

// refuse answers what no policy could allow, with its receipt.
func (x *message) refuse(w http.ResponseWriter, size int, code string) {
	_, d := x.r.Decide(x.action(size, code))
	x.m.seen(x.s, code)
	answer(w, d, code)
}

func (m *Mediator) seen(s *sink, code string) {
	if m.o.Seen != nil {
		m.o.Seen(Event{s.Name, code})
	}
}

// foreign says what is wrong with the credentials that stood in a request, ""
// if nothing: only the connection's own placeholder may.
func (s *sink) foreign(credentials []string, r *door.Request) string {
	credentials = slices.Concat(credentials, r.Header["X-Langfuse-Public-Key"])
	query, err := url.ParseQuery(r.Query)
	if err != nil {
		return CodeBody
	}
	credentials = append(credentials, query["sentry_key"]...)
	for _, v := range r.Header["X-Sentry-Auth"] {
		for pair := range strings.SplitSeq(strings.TrimPrefix(v, "Sentry "), ",") {
			if name, value, _ := strings.Cut(strings.TrimSpace(pair), "="); name == "sentry_key" || name == "sentry_secret" {
				credentials = append(credentials, value)
			}
		}
	}
	for _, v := range credentials {
		if scheme, token, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "bearer") {
			v = strings.TrimSpace(token)
		}
		switch {
		case v == "" || v == s.placeholder || v == s.placeholder+":"+s.placeholder:
		case strings.Contains(v, placeholderPrefix):
			return enforcers.CodePlaceholder
		case s.Provider == "sentry":
			return CodeDSN // ME-21: the key of another tenant
		default:
			return enforcers.CodeForeignCredential // ME-21
		}
	}
	return ""
}

// errPatience ends a report that its sink does not answer.
var errPatience = problem.New(enforcers.CodeTimeout, "the sink took too long", "")

// send brings a permitted report to its sink. Whatever goes wrong stands in the
// outcome receipt and is counted; the agent has nothing to wait for.
func (x *message) send(p *enforcers.Permit, out *rewritten) {
	if code := x.m.begin(x.s); code != "" {
		p.Void(code)
		x.m.seen(x.s, code)
		return
	}
	failed := true
	defer func() { x.m.end(x.s, failed) }()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(x.r.Context()), x.m.o.Patience, errPatience)
	defer cancel()
	packed, err := x.pack(out)
	if err != nil {
		p.Void(string(problem.Internal))
		x.m.seen(x.s, string(problem.Internal))
		return
	}
	h := http.Header{"Content-Type": {out.kind}}
	if out.zipped {
		h["Content-Encoding"] = []string{"gzip"}
	}
	if x.s.Provider == "langfuse" && x.r.Header.Get("X-Langfuse-Ingestion-Version") == "4" {
		h["X-Langfuse-Ingestion-Version"] = []string{"4"}
	}
	resp, err := x.r.Up.Do(p, (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: x.s.base + x.rt.path}, Header: h,
		Body: io.NopCloser(bytes.NewReader(packed)), ContentLength: int64(len(packed)),
	}).WithContext(ctx))
	if err != nil {
		x.m.seen(x.s, string(problem.CodeOf(err)))
		return
	}
	// Nothing of the answer goes inside: it would be a way back.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
	switch failed = resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests; {
	case resp.StatusCode >= 300:
		x.m.seen(x.s, CodeRefused)
	default:
		x.m.seen(x.s, "")
	}
}

// succeed writes the protocol's smallest answer. It is the same whatever became
// of the report.
func (x *message) succeed(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	switch x.rt.format {
	case otlpProtobuf:
		w.Header().Set("Content-Type", protobufType)
		w.WriteHeader(http.StatusOK)
	case ingestion:
		w.Header().Set("Content-Type", jsonType)
		w.WriteHeader(http.StatusMultiStatus)
		_, _ = io.WriteString(w, `{"successes":[],"errors":[]}`)
	default:
		w.Header().Set("Content-Type", jsonType)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, `{}`)
	}
}

// answer writes a refusal as RFC 9457. 403 is final for every exporter; 429 may
// be tried again.
func answer(w http.ResponseWriter, d enforcers.Decision, code string) {
	status := http.StatusForbidden
	switch code {
	case CodeBody:
		status = http.StatusBadRequest
	case CodeSize:
		status = http.StatusRequestEntityTooLarge
	case CodeRate:
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", "1")
	}
	if d.Reason == enforcers.CodeReceiptUnavailable || d.Reason == enforcers.CodeRevoked {
		code, status = d.Reason, http.StatusServiceUnavailable
	}
	body := map[string]any{"type": "about:blank", "title": "refused by Gatehouse", "status": status, "code": code}
	if hint := hints[code]; hint != "" {
		body["hint"] = hint
	}
	if d.Rule != "" {
		body["rule"] = d.Rule
	}
	if !d.Receipt.IsZero() {
		body["receipt"] = d.Receipt.String()
		w.Header().Set(door.ReceiptHeader, d.Receipt.String())
	}
	b, err := json.Marshal(body)
	if err != nil {
		return // cannot happen: strings and a number
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// mediaType returns a request's content type without its parameters.
func mediaType(r *door.Request) string {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}
