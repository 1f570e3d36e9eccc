package ingest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gatehouse/internal/blob"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
)

// Limits of requests: reference section 5.6.
const (
	maxHeaderFields = 64
	maxHeaderBytes  = 32 << 10
	headerTimeout   = 2 * time.Second
	defaultMemory   = 96 << 20
	defaultRate     = 50
	defaultBurst    = 200
)

// Options configures an Intake.
type Options struct {
	Journal   *journal.Journal
	Blobs     *blob.Store
	Endpoints []Endpoint
	// Memory is how many bytes of bodies may be in memory at once; 96 MiB by
	// default. A quarter of it is divided into reserves, one an endpoint.
	Memory int64
	Now    func() time.Time  // time.Now by default
	Log    *slog.Logger      // discarded by default
	Seen   func(Observation) // called after every answer; may be nil
	// Room says why no new delivery is taken just now, nil when one is; may be
	// nil. It is asked only for what the journal does not know yet: repeats are
	// answered as ever.
	Room func() error
}

// Observation is what metrics learn of one request.
type Observation struct {
	Endpoint string // "" when there is no such endpoint
	Source   string // its source, "unknown" without one
	Status   int    // HTTP status
	Result   string // accepted, duplicate, unrecognized, quarantined, or a problem code
	Bytes    int
	Took     time.Duration
}

// Intake is the handler of all endpoints. It is safe for concurrent use.
type Intake struct {
	o     Options
	mux   *http.ServeMux
	names map[string]*gate
	gates []*gate // in the order of Options.Endpoints
	mem   *memory
	twin  maphash.Seed // which endpoint an unknown name behaves like
	key   []byte       // of the MAC of unknown endpoints

	mu       sync.Mutex
	draining bool
	flight   sync.WaitGroup // Add only under mu, before draining
}

// gate is one endpoint with its state.
type gate struct {
	Endpoint
	traits Traits
	pool   pool
	rate   *rate.Limiter
	dedupe *dedupe
}

// New checks the endpoints and folds the journal into what has been delivered.
// It blocks until the fold is done.
func New(ctx context.Context, o Options) (*Intake, error) {
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	in := &Intake{o: o, mux: http.NewServeMux(), names: map[string]*gate{}, twin: maphash.MakeSeed(), key: make([]byte, 32)}
	if _, err := rand.Read(in.key); err != nil {
		return nil, fmt.Errorf("make a key for unknown endpoints: %w", err)
	}
	reserve := int64(0)
	if n := int64(len(o.Endpoints)); n > 0 {
		reserve = o.Memory / 4 / n
	}
	for _, ep := range o.Endpoints {
		g, err := in.gate(ep, reserve)
		if err != nil {
			return nil, err
		}
		in.names[ep.Name] = g
		in.gates = append(in.gates, g)
	}
	in.mem = newMemory(o.Memory-reserve*int64(len(o.Endpoints)), o.Now)
	if err := in.fold(ctx); err != nil {
		return nil, err
	}
	in.mux.HandleFunc("/hooks/{endpoint}", in.serve)
	return in, nil
}

func (in *Intake) gate(ep Endpoint, reserve int64) (*gate, error) {
	if !event.IsToken(ep.Name) {
		return nil, problem.New(problem.EndpointNameFormat, fmt.Sprintf("endpoint name %q is not a token", ep.Name),
			"Use 1 to 64 characters of a-z, 0-9, _ and -.")
	}
	if in.names[ep.Name] != nil {
		return nil, problem.New(problem.EndpointNameTaken, fmt.Sprintf("two endpoints are named %q", ep.Name), "Rename one of them.")
	}
	if ep.Rate == 0 {
		ep.Rate = defaultRate
	}
	if ep.Burst == 0 {
		ep.Burst = defaultBurst
	}
	t := ep.Source.Traits()
	return &gate{
		Endpoint: ep, traits: t,
		pool:   pool{reserve: reserve},
		rate:   rate.NewLimiter(rate.Limit(ep.Rate), ep.Burst),
		dedupe: newDedupe(t.Window, t.ByBody),
	}, nil
}

// fold reads the node's own events of the last window of each endpoint.
func (in *Intake) fold(ctx context.Context) error {
	now := in.o.Now()
	longest := time.Duration(0)
	for _, g := range in.gates {
		longest = max(longest, g.dedupe.window)
	}
	from, err := in.since(ctx, now.Add(-longest-clockSlack))
	if err != nil {
		return fmt.Errorf("fold deliveries: %w", err)
	}
	for group, err := range in.o.Journal.Groups(from) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("fold deliveries: %w", err)
		}
		for _, r := range group {
			if r.Kind != journal.KindEvent {
				continue
			}
			h, err := event.ReadHead(r.Data)
			if err != nil {
				return fmt.Errorf("fold deliveries: record %d: %w", r.Pos, err)
			}
			g := in.names[h.Endpoint]
			if g == nil || g.traits.Name != h.Source || now.Sub(h.Received) > g.dedupe.window {
				continue
			}
			k, err := keysOf(h.ID, h.BodySHA256, h.SameSHA256)
			if err != nil {
				return fmt.Errorf("fold deliveries: record %d: %w", r.Pos, err)
			}
			g.dedupe.add(h.ID, k, h.Received)
		}
	}
	return nil
}

// clockSlack is how far back this node's clock may have been set while the
// journal grew, for the search below.
const clockSlack = time.Hour

// nearby is how many records around a position are asked for the time of an
// event before the search takes the slower way.
const nearby = 4096

// since returns a position before which no event was received after t, 0 for the
// oldest: a journal of months holds a window of days. It halves; where no event
// is near, it goes on as if all there were newer, and so reads more than it must.
func (in *Intake) since(ctx context.Context, t time.Time) (uint64, error) {
	low, high := uint64(0), in.o.Journal.Next()
	oldest := true // there is nothing before low, or it was trimmed away
	for high-low > nearby {
		middle := low + (high-low)/2
		older, err := in.before(middle, t)
		gone := problem.CodeOf(err) == problem.JournalTrimmed
		if gone {
			err = nil // what is gone is older than what is there
		}
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case err != nil:
			return 0, err
		case gone || older:
			low, oldest = middle, gone
		default:
			high = middle
		}
	}
	if oldest {
		return 0, nil
	}
	return low, nil
}

// before reports whether the first event at or soon after a position was received
// before t.
func (in *Intake) before(at uint64, t time.Time) (bool, error) {
	for group, err := range in.o.Journal.Groups(at) {
		if err != nil {
			return false, err
		}
		for _, r := range group {
			switch {
			case r.Kind == journal.KindEvent:
				h, err := event.ReadHead(r.Data)
				return err == nil && h.Received.Before(t), err
			case r.Pos > at+nearby:
				return false, nil
			}
		}
	}
	return false, nil
}

func keysOf(id, body, same string) (keys, error) {
	k := keys{id: digestOf(id)}
	b, err := hex.DecodeString(body)
	if err != nil || len(b) != 32 {
		return keys{}, errors.New("body digest is malformed")
	}
	k.body = digest(b[:16])
	if same == "" {
		return k, nil
	}
	if b, err = hex.DecodeString(same); err != nil || len(b) != 32 {
		return keys{}, errors.New("second digest is malformed")
	}
	k.same = digest(b[:16])
	return k, nil
}

// ServeHTTP answers POST /hooks/{endpoint} as reference section 5.5 says.
func (in *Intake) ServeHTTP(w http.ResponseWriter, r *http.Request) { in.mux.ServeHTTP(w, r) }

// Server returns a server for h with the time and size limits that the intake
// relies on. The caller listens.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}

// Drain refuses new requests with 503 and returns when those in flight have
// been answered, or when ctx ends (IN-33).
func (in *Intake) Drain(ctx context.Context) error {
	in.mu.Lock()
	in.draining = true
	in.mu.Unlock()
	done := make(chan struct{})
	go func() {
		in.flight.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain: %w", ctx.Err())
	}
}

// Known reports whether a delivery id of an endpoint is in the journal, or on its
// way into it.
func (in *Intake) Known(endpoint, delivery string) bool {
	g := in.names[endpoint]
	if g == nil {
		return false
	}
	g.dedupe.mu.Lock()
	defer g.dedupe.mu.Unlock()
	return g.dedupe.knows(digestOf(g.id(delivery)))
}

func (in *Intake) enter() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.draining {
		return false
	}
	in.flight.Add(1)
	return true
}

func (in *Intake) serve(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	if !in.enter() {
		refuse(problem.Draining).write(w)
		return
	}
	defer in.flight.Done()
	g := in.names[r.PathValue("endpoint")]
	a := in.handle(w, r, g)
	a.write(w)
	seen := Observation{Source: "unknown", Status: a.status, Result: a.result, Bytes: a.bytes, Took: time.Since(began)}
	if g != nil {
		seen.Endpoint, seen.Source = g.Name, g.traits.Name
	}
	if in.o.Seen != nil {
		in.o.Seen(seen)
	}
	if a.result == event.KindQuarantined {
		in.o.Log.LogAttrs(r.Context(), slog.LevelWarn, "ingest.quarantined", slog.String("endpoint", seen.Endpoint), slog.String("event", a.id))
	}
	// No header, no body, no name that a stranger chose: IN-14.
	in.o.Log.LogAttrs(r.Context(), slog.LevelDebug, "ingest.answered", slog.String("endpoint", seen.Endpoint),
		slog.Int("status", a.status), slog.String("result", a.result), slog.String("event", a.id), slog.Int("bytes", a.bytes))
}

func (in *Intake) handle(w http.ResponseWriter, r *http.Request, g *gate) answer {
	if r.Method != http.MethodPost {
		return refuse(problem.MethodNotAllowed)
	}
	if fields(r.Header) > maxHeaderFields {
		return refuse(problem.HeadersTooLarge)
	}
	// Never decompressed: what is limited and signed are the bytes that came.
	if enc := r.Header.Values("Content-Encoding"); len(enc) > 1 || len(enc) == 1 && enc[0] != "" && enc[0] != "identity" {
		return refuse(problem.ContentEncoding)
	}
	like := g
	if g == nil {
		if len(in.gates) == 0 {
			return refuse(problem.Unauthorized)
		}
		// IN-08: an unknown name behaves like a configured endpoint, always the
		// same one, and does the work of its MAC.
		like = in.gates[maphash.String(in.twin, r.PathValue("endpoint"))%uint64(len(in.gates))]
	}
	ctx, cancel := context.WithTimeout(r.Context(), like.traits.Timeout)
	defer cancel()
	b := &reader{r: r, rc: http.NewResponseController(w), limit: like.traits.MaxBody, until: time.Now().Add(min(bodyTimeout, like.traits.Timeout))}
	if g == nil {
		if err := b.pass(dummyMAC(in.key)); err != nil {
			return refuseErr(err)
		}
		return refuse(problem.Unauthorized)
	}
	b.hold = in.mem.open(&g.pool, func() { _ = b.rc.SetReadDeadline(time.Now()) })
	defer b.hold.close()
	raw, err := b.all(ctx)
	if err != nil {
		return refuseErr(err)
	}
	a := in.deliver(ctx, g, r.Header, raw)
	a.bytes = len(raw)
	return a
}

func fields(h http.Header) (n int) {
	for _, v := range h {
		n += len(v)
	}
	return n
}

// deliver is everything after the last byte of the body.
func (in *Intake) deliver(ctx context.Context, g *gate, h http.Header, raw []byte) answer {
	d, err := g.Source.Verify(h, raw)
	if err != nil {
		if problem.CodeOf(err) == problem.Unauthorized {
			in.mem.unverified(&g.pool, len(raw))
		}
		return refuseErr(err)
	}
	// Counted after authentication: strangers cannot use it up (IN-09).
	if !g.rate.AllowN(in.o.Now(), 1) {
		return refuse(problem.RateLimited)
	}
	doc, err := index(d)
	if err != nil {
		return refuseErr(err)
	}
	b := g.build(d, doc, raw, in.o.Now())
	t, a := in.claim(g, d, doc, raw, b)
	a.echo = d.Challenge
	if t == nil {
		return a
	}
	if _, err := t.Wait(ctx); err != nil {
		in.o.Log.LogAttrs(ctx, slog.LevelError, "ingest.not_durable", slog.String("endpoint", g.Name), slog.Any("err", err))
		return refuse(problem.NotDurable)
	}
	g.dedupe.landed(digestOf(a.id))
	return a
}

// claim puts the event into the journal unless it is known. The claim and the
// event are one record. It returns what to wait for and what to answer then.
func (in *Intake) claim(g *gate, d Delivery, doc *Doc, raw []byte, b built) (*journal.Ticket, answer) {
	// Another round when the same id arrived meanwhile, and one when it had
	// another body: a quarantined id holds the body digest and conflicts with
	// nothing.
	for range 3 {
		k, err := keysOf(b.ID, b.BodySHA256, b.SameSHA256)
		if err != nil {
			return nil, refuseErr(err)
		}
		known := g.dedupe.ask(k)
		if known.seen {
			return g.again(known.first)
		}
		if known.conflict {
			b = g.quarantine(d, doc, raw, b.Received, anomalyIDConflict)
			continue
		}
		if in.o.Room != nil {
			if err := in.o.Room(); err != nil {
				return nil, refuseErr(err)
			}
		}
		rec, err := in.record(g, d, doc, raw, &b)
		if err != nil {
			in.o.Log.Error("ingest.not_written", slog.String("endpoint", g.Name), slog.Any("err", err))
			break
		}
		t, fresh := g.dedupe.claim(b.ID, k, b.Received, func() journal.Ticket { return in.o.Journal.Append(rec) })
		if !fresh {
			continue
		}
		if t.Refused() != nil {
			break
		}
		return &t, answered(result(b.Kind), b.ID)
	}
	return nil, refuse(problem.NotDurable)
}

// result is what metrics call an event that was stored. Senders hear accepted.
func result(kind string) string {
	switch kind {
	case event.KindQuarantined, event.KindUnrecognized:
		return kind
	}
	return "accepted"
}

// again answers a known delivery, once its first is durable.
func (g *gate) again(first string) (*journal.Ticket, answer) {
	a := answered("duplicate", first)
	if t, ok := g.dedupe.flight(digestOf(first)); ok {
		return &t, a
	}
	return nil, a
}

// record places the payload and encodes the event. What cannot be encoded is
// quarantined: a verified delivery is never dropped.
func (in *Intake) record(g *gate, d Delivery, doc *Doc, raw []byte, b *built) (journal.Record, error) {
	inline := b.Kind != event.KindQuarantined && len(b.payload) <= maxInline
	data, err := in.encode(b, inline)
	if err == nil && inline && len(data) > maxEvent {
		data, err = in.encode(b, false)
	}
	if errors.Is(err, errPlace) {
		return journal.Record{}, err
	}
	if err != nil || len(data) > maxEvent {
		*b = g.quarantine(d, doc, raw, b.Received, anomalyShape)
		if data, err = in.encode(b, false); err != nil {
			return journal.Record{}, err
		}
	}
	return journal.Record{Kind: journal.KindEvent, Subject: b.Subject(), Data: data}, nil
}

var errPlace = errors.New("payload not kept")

// encode puts the payload into the event, or into a blob that is on disk before
// the record that names it.
func (in *Intake) encode(b *built, inline bool) ([]byte, error) {
	b.Payload, b.Raw = nil, ""
	switch {
	case b.payload == nil:
	case inline:
		b.Payload = b.payload
	default:
		sum, _, err := in.o.Blobs.Put(bytes.NewReader(b.payload))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errPlace, err)
		}
		b.Raw = "blob:" + sum
	}
	return b.Encode()
}
