package model

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/spend"
	"gatehouse/internal/problem"
)

// Header fields of an answer.
const (
	HeaderMaxTokens = "Gatehouse-Max-Tokens"       // the bound that was sent, when it is not the one asked for
	HeaderAsked     = "Gatehouse-Max-Tokens-Asked" // the one asked for, 0 = none
	HeaderHeld      = "Gatehouse-Held"             // worst case, in dollars
)

// refusal is what a client is told of a call that does not go on.
type refusal struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Rule      string `json:"rule,omitempty"`
	Receipt   string `json:"receipt,omitempty"`
	Hint      string `json:"hint,omitempty"`
	Where     string `json:"where,omitempty"`
	Budget    string `json:"budget,omitempty"`
	Remaining string `json:"remaining,omitempty"`
	Limit     string `json:"limit,omitempty"`
}

func notPaid(no *spend.Refusal) *refusal {
	return &refusal{Code: no.Code, Budget: no.Budget, Remaining: no.Remaining.String(), Limit: no.Limit.String()}
}

// hints name the next step. They never repeat what was asked for, but for the
// name of a field or type that is on no list.
var hints = map[string]string{
	CodeRoute:                        "Only model calls pass to this host; anything else of the provider's is closed.",
	CodeBody:                         "Send one JSON object with distinct keys and the documented types.",
	CodeField:                        "The field or block type is not in the closed list; see docs/models.md.",
	CodeTool:                         "Tools that the provider runs are closed; use tools that run in the session.",
	CodeSource:                       "Send the content inline, or ask for the URL's host to be listed in the egress rules.",
	CodeFetch:                        "The URL did not answer with an image (PNG, JPEG, GIF, WebP) or a PDF of at most 20 MiB; send the content inline.",
	CodeMedia:                        "Audio, video and image output are not priced; send text, images or documents.",
	CodeBeta:                         "Ask the operator to list the beta feature in the connection's betas.",
	CodePlace:                        "Use the connection's own project and location.",
	CodeUnpriced:                     "The model is not in the price table, so its cost cannot be bounded.",
	CodeFeature:                      "Batches, files, stored and background work are closed: they outlive the session.",
	CodeTier:                         "The service tier is not in the price table.",
	CodeTooMany:                      "Too many calls at once; wait for one to end.",
	CodeRate:                         "Too many calls within a minute; wait as long as Retry-After says.",
	CodeRepeated:                     "This request was paid for three times without an answer. Change it, or report what is done.",
	spend.CodeExceeded:               "The budget is used up. This is final: stop, or report what is done.",
	spend.CodeHeld:                   "Other calls hold what is left; try again when one of them has ended.",
	spend.CodeFrozen:                 "A call cost more than its bound; the operator must look before more is spent.",
	spend.CodeClosed:                 "This session spends no money.",
	enforcers.CodeForeignCredential:  "Send the request without a credential; Gatehouse adds the right one.",
	enforcers.CodePlaceholder:        "Use the placeholder of this session and connection, as it stands in the variable.",
	enforcers.CodeBodyNotInspected:   "Send the body as application/json, without an encoding.",
	enforcers.CodeUpCap:              "The request is larger than a model call may be.",
	enforcers.CodeReceiptUnavailable: "The node cannot write receipts; try again later.",
}

// answer writes a refusal. 403 is final for every client; what may be tried
// again is 429.
func answer(w http.ResponseWriter, d enforcers.Decision, no refusal) {
	no.Type, no.Title, no.Status, no.Rule = "about:blank", "refused by Gatehouse", http.StatusForbidden, d.Rule
	if d.Reason == enforcers.CodeReceiptUnavailable || d.Reason == enforcers.CodeRevoked {
		no.Code = d.Reason
	}
	switch no.Code {
	case spend.CodeHeld, CodeTooMany, CodeRate:
		no.Status = http.StatusTooManyRequests
	case enforcers.CodeReceiptUnavailable:
		no.Status = http.StatusServiceUnavailable
	case CodeBody:
		no.Status = http.StatusBadRequest
	}
	if no.Hint == "" {
		no.Hint = hints[no.Code]
	}
	if !d.Receipt.IsZero() {
		no.Receipt = d.Receipt.String()
		w.Header().Set(door.ReceiptHeader, no.Receipt)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(no.Status)
	b, err := json.Marshal(no)
	if err != nil {
		return // cannot happen: strings and a number
	}
	_, _ = w.Write(append(b, '\n'))
}

// state is what is known of a call under way. settle reads it, whoever ends the
// call.
type state struct {
	mu     sync.Mutex
	hold   *spend.Hold
	rep    report
	status int
	unary  bool // the answer is no stream
	first  time.Duration
}

// free are the statuses by which a provider says that it did nothing.
var free = []int{400, 401, 403, 404, 413, 429}

// settle charges the call as its outcome is written.
func (x *call) settle(o enforcers.Outcome) int64 {
	x.state.mu.Lock()
	defer x.state.mu.Unlock()
	s := &x.state
	var spent spend.Nano
	switch cost, known := x.cost(); {
	case o.Effect == enforcers.NotForwarded:
		s.hold.Release()
	case known:
		spent = s.hold.Settle(cost)
		x.m.strike(x.print, true, time.Now())
		if cost > s.hold.Amount() {
			x.m.o.Log.Error("model.cost_above_bound", slog.String("session", x.m.o.Session), slog.String("connection", x.c.Name),
				slog.String("held", s.hold.Amount().String()), slog.String("spent", cost.String()))
		}
	case o.Effect == enforcers.Forwarded && s.unary && slices.Contains(free, s.status):
		s.hold.Release()
	default:
		spent = s.hold.Keep() // ME-18: nobody knows what it cost
		if spent > 0 {
			x.m.strike(x.print, false, time.Now())
		}
	}
	x.seen(Event{Code: o.Code, Status: s.status, Held: s.hold.Amount(), Spent: spent, First: s.first})
	return int64(spent)
}

// cost prices what the provider reported, at the dearer of the model that was
// asked for and the one that answered. It must be called with state.mu held.
func (x *call) cost() (spend.Nano, bool) {
	rep := x.state.rep
	if x.price == nil {
		return 0, x.req.free && rep.final
	}
	if !rep.media && (!rep.final || rep.extra) {
		return 0, false
	}
	price := (*spend.Price).Cost
	if rep.media {
		price = (*spend.Price).Dearest
	}
	f := x.factor
	if rep.tier != "" {
		served, ok := x.price.Factor(rep.tier)
		if !ok {
			return 0, false
		}
		f = max(f, served)
	}
	cost, err := price(x.price, rep.Usage, f)
	if err != nil {
		return 0, false
	}
	if rep.model != "" && rep.model != x.model {
		if other, ok := x.m.o.Prices.Find(x.c.adapter.prices(), rep.model); ok && other != x.price {
			if dearer, err := price(other, rep.Usage, f); err == nil {
				cost = max(cost, dearer)
			}
		}
	}
	if rep.media {
		cost = max(cost, x.state.hold.Amount()) // EG-90: nobody knows the rate, so never less than the worst case
	}
	return cost, true
}

// send carries the permitted call out. When the client leaves, the answer is
// read on for a while: a provider tells at the end what a call used.
func (x *call) send(w http.ResponseWriter, p *enforcers.Permit, d enforcers.Decision) {
	out, err := x.outgoing()
	if err != nil {
		p.Void(string(problem.CodeOf(err)))
		door.Fail(w, d, err)
		return
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(x.r.Context()))
	defer cancel(nil)
	gone := make(chan struct{})
	leave := context.AfterFunc(x.r.Context(), func() {
		defer close(gone)
		x.linger(ctx, cancel)
	})
	defer func() {
		if !leave() {
			cancel(nil)
			<-gone
		}
	}()
	resp, err := x.r.Up.Do(p, out.WithContext(ctx))
	if err != nil {
		if x.r.Context().Err() == nil {
			door.Fail(w, d, err)
		}
		return
	}
	x.relay(w, resp, d)
}

// linger waits, after the client has left, until the answer is read or the
// drain's time is over.
func (x *call) linger(ctx context.Context, cancel context.CancelCauseFunc) {
	left := problem.New(enforcers.CodeClientGone, "the client left", "")
	if !x.m.drain(true) {
		cancel(left)
		return
	}
	defer x.m.drain(false)
	t := time.NewTimer(x.m.o.Drain)
	defer t.Stop()
	select {
	case <-t.C:
		cancel(left)
	case <-ctx.Done():
	}
}

// Fields of a provider's answer that a client is shown. Others name accounts
// and machines.
var shownFields = []string{"Content-Type", "Retry-After", "Retry-After-Ms", "Request-Id", "X-Request-Id", "X-Should-Retry", "Openai-Processing-Ms"}

var shownPrefixes = []string{"Anthropic-Ratelimit-", "X-Ratelimit-"}

// relay copies the answer to the client as it comes and reads its usage as it
// passes.
func (x *call) relay(w http.ResponseWriter, resp *http.Response, d enforcers.Decision) {
	defer resp.Body.Close()
	stream := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	x.state.mu.Lock()
	x.state.status, x.state.unary, x.state.first = resp.StatusCode, !stream, time.Since(x.began)
	x.state.mu.Unlock()
	x.head(w, resp, d)

	usage := x.c.adapter.usage()
	note := func() {
		x.state.mu.Lock()
		x.state.rep = usage.report()
		x.state.mu.Unlock()
	}
	split := events{each: func(data []byte) { usage.event(data); note() }}
	var strain *sieve
	if stream && x.req.hideLast {
		strain = newSieve(func(data []byte) bool { return !usageOnly(data) })
	}
	flusher, _ := w.(http.Flusher)
	if stream && flusher != nil {
		flusher.Flush()
	}
	var unary []byte
	pool := &buffers
	if stream {
		pool = &small
	}
	buf := pool.Get().(*[]byte)
	defer pool.Put(buf)
	broken := false // the client takes nothing any more
	write := func(b []byte) {
		if broken || len(b) == 0 {
			return
		}
		if _, err := w.Write(b); err != nil || x.r.Context().Err() != nil {
			broken = true
			return
		}
		if flusher != nil && (stream || resp.ContentLength < 0) {
			flusher.Flush()
		}
	}
	for {
		n, err := resp.Body.Read(*buf)
		b := (*buf)[:n]
		switch {
		case stream:
			split.feed(b)
		case len(unary)+n <= maxUnary:
			unary = append(unary, b...)
		default:
			unary = nil
		}
		if strain != nil {
			b = strain.feed(b)
		}
		if err == io.EOF {
			if stream {
				split.finish()
				usage.end()
				note()
			} else if resp.StatusCode < 300 {
				usage.body(unary)
				note()
			}
			if strain != nil {
				b = append(b, strain.rest()...)
			}
			write(b)
			break
		}
		write(b)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	if broken {
		panic(http.ErrAbortHandler)
	}
}

// What an answer is read into. Events are short and streams are many and long:
// what one of them holds on to is most of its memory.
var (
	buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
	small   = sync.Pool{New: func() any { b := make([]byte, 4<<10); return &b }}
)

// head writes the head of the answer.
func (x *call) head(w http.ResponseWriter, resp *http.Response, d enforcers.Decision) {
	h := w.Header()
	for name, values := range resp.Header {
		if slices.Contains(shownFields, name) || slices.ContainsFunc(shownPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			h[name] = values
		}
	}
	h.Set(door.ReceiptHeader, d.Receipt.String())
	if x.price != nil {
		h.Set(HeaderHeld, x.state.hold.Amount().String())
		if x.tokens != x.req.asked {
			h.Set(HeaderMaxTokens, itoa(x.tokens))
			h.Set(HeaderAsked, itoa(x.req.asked))
		}
	}
	if resp.ContentLength >= 0 && !x.req.hideLast {
		h.Set("Content-Length", itoa(resp.ContentLength))
	}
	w.WriteHeader(resp.StatusCode)
}

// usageOnly tells the chunk of a stream that holds nothing but usage.
func usageOnly(data []byte) bool {
	var c struct {
		Choices []json.RawMessage `json:"choices"`
		Usage   json.RawMessage   `json:"usage"`
	}
	return json.Unmarshal(data, &c) == nil && c.Choices != nil && len(c.Choices) == 0 && len(c.Usage) > 0 && string(c.Usage) != "null"
}
