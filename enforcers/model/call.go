package model

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/spend"
	"gatehouse/internal/problem"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// serve carries one request to a connection.
func (m *Mediator) serve(w http.ResponseWriter, r *door.Request) {
	c, at := m.find(r)
	began := time.Now()
	credentials := r.TakeCredentials()
	rt, code := c.adapter.route(r.Method, at)
	if code == "" && (r.Upgrade != "" || !c.query(r, &rt)) {
		code = CodeRoute
	}
	if code != "" {
		m.turnAway(w, r, c, at, code)
		return
	}
	x := &call{m: m, c: c, r: r, rt: rt, began: began, model: rt.model}
	if code := c.foreign(credentials); code != "" {
		x.refuse(w, code, "")
		return
	}
	if wait := c.rate.begin(began); wait > 0 {
		w.Header().Set("Retry-After", itoa(int64(wait/time.Second)+1))
		x.refuse(w, CodeRate, "")
		return
	}
	if !m.enter() {
		w.Header().Set("Retry-After", "2")
		x.refuse(w, CodeTooMany, "")
		return
	}
	defer m.leave()
	x.run(w)
}

// turnAway refuses a request that is no model call: it is an http.request to a
// host that a credential is bound to.
func (m *Mediator) turnAway(w http.ResponseWriter, r *door.Request, c *conn, at, code string) {
	a := r.Action()
	a.Connection, a.HardSet = c.Name, code
	a.HTTP.To, a.HTTP.Path = c.To, at
	_, d := r.Decide(a)
	answer(w, d, refusal{Code: code})
}

// query keeps what of the query passes. ME-10: everything else might name a
// feature.
func (c *conn) query(r *door.Request, rt *route) bool {
	var kept []string
	for pair := range strings.SplitSeq(r.Query, "&") {
		switch {
		case pair == "":
		case c.adapter.query(pair):
			kept = append(kept, pair)
		default:
			return false
		}
	}
	rt.query = strings.Join(kept, "&")
	return rt.needs == "" || slices.Contains(kept, rt.needs)
}

// foreign says what is wrong with the credentials that stood in a request, ""
// if nothing: only the connection's own placeholder may (ME-03, ME-04, ME-05).
func (c *conn) foreign(credentials []string) string {
	for _, v := range credentials {
		if scheme, token, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "bearer") {
			v = strings.TrimSpace(token)
		}
		switch {
		case v == "" || v == c.placeholder:
		case strings.Contains(v, placeholderPrefix):
			return enforcers.CodePlaceholder
		default:
			return enforcers.CodeForeignCredential
		}
	}
	return ""
}

// call is one model call.
type call struct {
	m     *Mediator
	c     *conn
	r     *door.Request
	rt    route
	began time.Time
	model string
	req   *request

	price  *spend.Price
	factor spend.Factor
	tokens int64 // sent as the bound of one answer
	print  fingerprint
	state  state
}

// run judges the call and, if it may go on, carries it out.
func (x *call) run(w http.ResponseWriter) {
	body, code := x.read()
	if code == "" {
		code = x.inspect(body)
	}
	if code != "" {
		where := ""
		if x.req != nil {
			where = x.req.where
		}
		x.refuse(w, code, where)
		return
	}
	if x.print = fingerprintOf(x.rt.path, body); x.m.struck(x.print, x.began) {
		x.refuse(w, CodeRepeated, "")
		return
	}
	if !x.fetch(w) {
		return
	}
	hold, refused := x.hold()
	if refused != nil {
		x.unpaid(w, refused)
		return
	}
	a := x.action()
	a.Model.MaxTokens, a.Model.Held, a.Model.Prices = max(x.tokens*x.req.answers, 1), int64(hold.Amount()), x.m.digest()
	p, d := x.r.Decide(a)
	if p == nil {
		hold.Release()
		x.seen(Event{Code: d.Reason})
		door.Refuse(w, d)
		return
	}
	x.state.hold = hold
	p.Settles(x.settle)
	x.send(w, p, d)
}

// read reads the body whole, before anything is decided. Only plain JSON can be
// looked into.
func (x *call) read() ([]byte, string) {
	kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || len(x.r.Header["Content-Encoding"]) > 0 {
		return nil, enforcers.CodeBodyNotInspected
	}
	if x.r.ContentLength > maxBody {
		return nil, enforcers.CodeUpCap
	}
	b, err := io.ReadAll(io.LimitReader(x.r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, CodeBody
	case len(b) > maxBody:
		return nil, enforcers.CodeUpCap
	}
	return b, ""
}

// inspect holds the body against the provider's closed lists.
func (x *call) inspect(body []byte) string {
	root, err := parse(body)
	if err != nil || root.kind != object {
		return CodeBody
	}
	req := &request{b: body, root: root, model: x.rt.model, answers: 1, stream: x.rt.stream, free: x.rt.free}
	x.req = req
	x.c.adapter.inspect(req, x.rt)
	if req.code == "" && req.model == "" {
		req.refuse(CodeBody, "model")
	}
	if req.code != "" {
		return req.code
	}
	if real, ok := x.c.Aliases[req.model]; ok {
		req.model = real
		if req.modelAt != nil {
			quoted, err := json.Marshal(real)
			if err != nil {
				return CodeBody
			}
			req.edits = append(req.edits, edit{req.modelAt.start, req.modelAt.end, string(quoted)})
		} else {
			x.rt.path = strings.Replace(x.rt.path, "/"+x.rt.model+":", "/"+url.PathEscape(real)+":", 1)
		}
	}
	x.model = req.model
	if code := x.c.betas(x.r.Header); code != "" {
		return code
	}
	return ""
}

// betas holds the beta header against the list. A beta that is stripped would
// leave half a feature, so an unknown one refuses the call.
func (c *conn) betas(h http.Header) string {
	for _, v := range h["Anthropic-Beta"] {
		for name := range strings.SplitSeq(v, ",") {
			name = strings.TrimSpace(name)
			if name != "" && !slices.Contains(defaultBetas, name) && !slices.Contains(c.Betas, name) {
				return CodeBeta
			}
		}
	}
	return ""
}

// hold finds the bound that the call is sent with and holds its worst case.
func (x *call) hold() (*spend.Hold, *refusal) {
	req := x.req
	most := x.m.bound(x.c, req.model)
	if req.free || most == 0 {
		// What the bundle does not list is the enforcer's to deny.
		h, no := x.m.o.Ledger.Hold(x.m.o.Session, spend.Exactly(0))
		if no != nil {
			return nil, notPaid(no)
		}
		x.tokens = req.asked
		return h, nil
	}
	price, ok := x.m.o.Prices.Find(x.c.adapter.prices(), req.model)
	if !ok {
		return nil, &refusal{Code: CodeUnpriced}
	}
	const regional = "regional" // the table's name for the surcharge of a location, no tier that can be asked for
	tier, placed := req.tier, x.c.Location != "" && x.c.Location != "global"
	if tier == regional || placed && tier != "" {
		return nil, &refusal{Code: CodeTier} // ME-19: no price for a tier in a location
	}
	if placed {
		tier = regional
	}
	if x.factor, ok = price.Factor(tier); !ok {
		return nil, &refusal{Code: CodeTier}
	}
	x.price = price
	// The rule's bound is for the call, however many answers it asks for.
	want := min(most/req.answers, price.MaxOutput)
	if req.asked > 0 {
		want = min(want, req.asked)
	}
	least := max(min(floor, want), req.least)
	if least > want || want < 1 { // EG-91
		return nil, &refusal{Code: CodeBody, Hint: "The thinking budget, or the number of answers, does not fit into the bound on output tokens."}
	}
	ask := spend.Ask{
		Input: req.input(price), Window: x.window(), Caching: req.caching, Want: want * req.answers, Least: least * req.answers, Each: req.answers, Factor: x.factor,
	}
	h, no := x.m.o.Ledger.Hold(x.m.o.Session, func(room spend.Nano) (spend.Nano, bool) {
		tokens, worst, ok := price.Fit(ask, room)
		x.tokens = tokens / req.answers
		return worst, ok
	})
	if no != nil {
		return nil, notPaid(no)
	}
	if req.thinkAt != nil && req.think >= x.tokens {
		// A lowered bound leaves less to think with: the rest is for the answer.
		req.edits = append(req.edits, edit{req.thinkAt.start, req.thinkAt.end, itoa(x.tokens - floor)})
	}
	switch {
	case req.askedAt == nil:
		req.edits = append(req.edits, req.bound(x.tokens))
	case x.tokens != req.asked:
		req.edits = append(req.edits, edit{req.askedAt.start, req.askedAt.end, itoa(x.tokens)})
	}
	return h, nil
}

// window returns the context window that a beta feature asks for, 0 if none.
func (x *call) window() int64 {
	for _, v := range x.r.Header["Anthropic-Beta"] {
		if strings.Contains(v, "context-1m-") {
			return 1_000_000
		}
	}
	return 0
}

// input bounds the tokens of what is sent. A byte is at most one token; what
// frames messages and tools for the model is covered by the JSON around them.
func (r *request) input(p *spend.Price) int64 {
	if r.opaque || r.images > 0 && p.Image == 0 {
		return 1 << 40 // the context window is the bound
	}
	const hidden = 2048 // what a provider adds for tools
	return int64(len(r.b)) + hidden + r.images*p.Image
}

func (x *call) action() *enforcers.Action {
	a := x.r.Gate.Action(enforcers.ModelCall)
	a.Connection = x.c.Name
	model := x.model
	if len(model) > 256 {
		model = model[:256]
	}
	a.Model = &enforcers.Model{To: x.c.To, Provider: x.c.adapter.provider(), Model: model, Stream: x.rt.stream}
	if x.req != nil {
		a.Model.Stream, a.Model.Asked = x.req.stream, x.req.asked*x.req.answers
	}
	return a
}

// refuse answers what no policy could allow, with its receipt.
func (x *call) refuse(w http.ResponseWriter, code, where string) {
	a := x.action()
	a.HardSet = code
	_, d := x.r.Decide(a)
	x.seen(Event{Code: code})
	no := refusal{Code: code, Where: where}
	if code == CodeField && x.req != nil && x.req.field != "" {
		no.Hint = "The " + where + " " + x.req.field + " is not in the closed list; see docs/models.md."
	}
	answer(w, d, no)
}

// unpaid answers what cannot be paid for.
func (x *call) unpaid(w http.ResponseWriter, no *refusal) {
	a := x.action()
	a.HardSet = no.Code
	_, d := x.r.Decide(a)
	if no.Code == spend.CodeHeld {
		w.Header().Set("Retry-After", "2")
	}
	x.seen(Event{Code: no.Code})
	answer(w, d, *no)
}

func (x *call) seen(e Event) {
	if x.m.o.Seen != nil {
		e.Connection = x.c.Name
		x.m.o.Seen(e)
	}
}

// Fields of the agent's request that go on. Everything else (attribution,
// billing, telemetry, the client's own connection) ends here.
var sentFields = []string{"Accept", "Anthropic-Beta", "Anthropic-Version", "Content-Type", "User-Agent"}

// outgoing builds the request that was permitted.
func (x *call) outgoing() (*http.Request, error) {
	body := rewrite(x.req.b, x.req.edits)
	plain, err := url.PathUnescape(x.rt.path)
	if err != nil {
		return nil, problem.Wrap(err, enforcers.CodeBadPath, "the path is malformed", "")
	}
	h := http.Header{}
	for _, name := range sentFields {
		if v := x.r.Header[name]; len(v) > 0 {
			h[name] = slices.Clone(v)
		}
	}
	return &http.Request{
		Method: x.r.Method, URL: &url.URL{Path: plain, RawPath: x.rt.path, RawQuery: x.rt.query},
		Header: h, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}
