package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/api"
	"gatehouse/internal/blob"
	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// The rooms do not know each other; these few lines are where one's words
// become another's.

// encode turns a durable journal group into stream messages.
func encode(group []journal.Record) ([]bus.Msg, error) {
	sealed, err := notary.Encode(group)
	if err != nil {
		return nil, err
	}
	out := make([]bus.Msg, len(sealed))
	for i, s := range sealed {
		out[i] = bus.Msg{Subject: s.Subject, Data: s.Data, Header: s.Header,
			Final: s.Header[receipts.HeaderType] == string(receipts.TypeSessionClose)}
	}
	return out, nil
}

// eventStream is the gatekeeper's side of the events stream.
type eventStream struct{ bus *bus.Bus }

// gatekeeperConsumer is the durable name that all nodes share.
const gatekeeperConsumer = "gatekeeper"

func (s eventStream) Work(ctx context.Context, fn func(context.Context, gatekeeper.Message) error) error {
	return s.bus.Work(ctx, bus.Events, gatekeeperConsumer, func(ctx context.Context, m bus.Msg) error {
		return fn(ctx, gatekeeper.Message{Subject: m.Subject, Data: m.Data, Header: m.Header})
	})
}

func (s eventStream) Find(ctx context.Context, hash string) (gatekeeper.Message, error) {
	for m, err := range s.bus.Read(ctx, bus.Events, "gatehouse.v1.events.*.*.*.*."+hash, 0) {
		if err != nil {
			return gatekeeper.Message{}, err
		}
		return gatekeeper.Message{Subject: m.Subject, Data: m.Data, Header: m.Header}, nil
	}
	return gatekeeper.Message{}, problem.New(problem.NotFound, "the event is not on the stream", "gatehouse event list shows those that are")
}

// bucket is a KV bucket under the gatekeeper's error codes.
type bucket struct{ kv bus.KV }

func (b bucket) Get(ctx context.Context, key string) (gatekeeper.Entry, error) {
	e, err := b.kv.Get(ctx, key)
	return gatekeeper.Entry(e), kvProblem(err, key)
}

func (b bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	rev, err := b.kv.Create(ctx, key, value)
	return rev, kvProblem(err, key)
}

func (b bucket) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	rev, err := b.kv.Update(ctx, key, value, rev)
	return rev, kvProblem(err, key)
}

func (b bucket) All(ctx context.Context) iter.Seq2[gatekeeper.Entry, error] {
	return func(yield func(gatekeeper.Entry, error) bool) {
		for e, err := range b.kv.All(ctx) {
			if !yield(gatekeeper.Entry(e), err) {
				return
			}
		}
	}
}

func kvProblem(err error, key string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bus.ErrNotFound):
		return problem.Wrap(err, problem.NotFound, "no key "+key, "")
	case errors.Is(err, bus.ErrExists), errors.Is(err, bus.ErrConflict):
		return problem.Wrap(err, problem.Conflict, "key "+key+" was changed by another node", "")
	}
	return err
}

// chains is the notary as the gatekeeper knows it.
type chains struct{ *notary.Notary }

func (c chains) Open(ctx context.Context, session string, o receipts.Open, obs receipts.Obs) (gatekeeper.Chain, error) {
	chain, err := c.Notary.Open(ctx, session, o, obs)
	if err != nil {
		return nil, err
	}
	return chain, nil
}

func (c chains) Resume(session string) (gatekeeper.Chain, error) {
	chain, err := c.Notary.Resume(session)
	if err != nil {
		return nil, err
	}
	return chain, nil
}

func (c chains) Left() []string {
	open := c.Sessions()
	ids := make([]string, len(open))
	for i, s := range open {
		ids[i] = s.Session
	}
	return ids
}

func (c chains) Control() gatekeeper.Chain { return c.Notary.Control() }

// commands carries out what people ask of the node through the API.
type commands struct {
	gk     *gatekeeper.Gatekeeper
	notary *notary.Notary
	keys   *notary.Keys
	bus    *bus.Bus
	blobs  *blob.Store
	exits  *doors     // nil: sessions keep the modules they were opened with
	view   *view.View // nil where nobody asks by name: gatehouse run
}

func (c commands) Kill(ctx context.Context, session string, who api.Actor) error {
	live := c.gk.Sessions()
	i := slices.IndexFunc(live, func(l gatekeeper.Live) bool { return l.ID == session })
	if i >= 0 { // else the gatekeeper says that it does not run
		if err := c.gk.Note(ctx, gatekeeper.StepKill, live[i].Bundle, session, by(who)); err != nil {
			return err
		}
	}
	return c.gk.Kill(ctx, session)
}

// Retry writes the receipt that names the person before anything starts. The
// bundle in it is a help for readers: the list may not have the session yet.
func (c commands) Retry(ctx context.Context, session string, who api.Actor) (string, error) {
	row, err := c.view.Session(session)
	if err != nil {
		row.Bundle = ""
	}
	if err := c.gk.Note(ctx, gatekeeper.StepRetry, row.Bundle, session, by(who)); err != nil {
		return "", err
	}
	a, err := c.gk.Retry(ctx, session)
	return a.Session, err
}

func (c commands) Logs(_ context.Context, session string) (io.ReadCloser, error) {
	return c.gk.Transcript(session)
}

func (c commands) Artifacts(_ context.Context, session string) ([]api.Artifact, error) {
	r, err := c.gk.Result(session)
	if err != nil {
		return nil, err
	}
	out := []api.Artifact{}
	for _, name := range slices.Sorted(maps.Keys(r.Artifacts)) {
		out = append(out, api.Artifact{Name: name, SHA256: r.Artifacts[name]})
	}
	return out, nil
}

// Artifact opens a blob only if the session's agent left it: the store holds other
// things too.
func (c commands) Artifact(ctx context.Context, session, sha256 string) (io.ReadCloser, error) {
	all, err := c.Artifacts(ctx, session)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(a api.Artifact) bool { return a.SHA256 == sha256 }) {
		return nil, problem.New(problem.NotFound, "the session left no such artifact", "List its artifacts.")
	}
	return c.blobs.Get(sha256)
}

// Redeliver lets a stored event start a session again, as if it had come now.
func (c commands) Redeliver(ctx context.Context, event string, who api.Actor) (string, error) {
	if err := c.gk.Note(ctx, gatekeeper.StepRedeliver, "", event, by(who)); err != nil {
		return "", err
	}
	a, err := c.gk.Redeliver(ctx, event)
	return a.Session, err
}

// Reveal writes down that somebody is shown what strangers wrote.
func (c commands) Reveal(ctx context.Context, bundle, subject string, who api.Actor) error {
	return c.gk.Note(ctx, gatekeeper.StepReveal, bundle, subject, by(who))
}

func (c commands) Apply(ctx context.Context, yaml []byte, by api.Actor) (api.Applied, error) {
	done, err := c.gk.Apply(ctx, []gatekeeper.File{{Name: "bundle", Source: yaml}}, by.Name, by.Via)
	if err != nil {
		return api.Applied{}, err
	}
	a := done[0]
	if a.Result == gatekeeper.ResultRejected {
		return api.Applied{}, rejected(a)
	}
	if a.Result == gatekeeper.ResultApplied && c.exits != nil {
		b, err := bundle.Parse(yaml)
		if err == nil {
			err = c.exits.replace(ctx, b, by)
		}
		if err != nil {
			return api.Applied{}, err
		}
	}
	return api.Applied{Name: a.Bundle, Digest: fmt.Sprintf("%x", a.Digest), Mode: string(a.Mode), Result: a.Result, Note: a.Why}, nil
}

// Export writes the file and then the receipt that it was handed out.
func (c commands) Export(ctx context.Context, w io.Writer, what api.ExportOf, by api.Actor) error {
	f := notary.Filter{Bundles: c.bundle, Since: what.Since, Until: what.Until, Action: c.action(ctx)}
	if what.Session != "" {
		f.Sessions = []string{what.Session}
	}
	for _, class := range what.Open {
		f.Open = append(f.Open, notary.Disclosed(class))
	}
	sum := sha256.New()
	if err := c.notary.Export(ctx, io.MultiWriter(w, sum), f); err != nil {
		return err
	}
	_, err := c.notary.Control().Append(ctx, receipts.Receipt{Type: receipts.TypeExport, Disc: &receipts.Disclosure{
		By: by.Name, What: described(what), Classes: what.Open, Digest: receipts.Hash(sum.Sum(nil)),
	}})
	return err
}

// described names what an export holds, for its receipt.
func described(what api.ExportOf) string {
	switch {
	case what.Session != "":
		return what.Session
	case what.Since.IsZero() && what.Until.IsZero():
		return "all"
	}
	edge := func(t time.Time) string {
		if t.IsZero() {
			return "*"
		}
		return t.UTC().Format(time.RFC3339)
	}
	return "opened:" + edge(what.Since) + "/" + edge(what.Until)
}

// action reads what was kept for replay, until it expires.
func (c commands) action(ctx context.Context) func(leaf receipts.Hash) []byte {
	return func(leaf receipts.Hash) []byte {
		b, err := c.bus.GetAction(ctx, leaf.String())
		if err != nil {
			return nil
		}
		return b
	}
}

// Envelope is an export in another form, and a receipt like one.
func (c commands) Envelope(ctx context.Context, w io.Writer, session string, by api.Actor) error {
	b, err := c.notary.Envelope(ctx, session)
	if err != nil {
		return err
	}
	if _, err := c.notary.Control().Append(ctx, receipts.Receipt{Type: receipts.TypeExport, Disc: &receipts.Disclosure{
		By: by.Name, What: session, Digest: sha256.Sum256(b),
	}}); err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func (c commands) Prove(ctx context.Context, session string, seq uint64) (api.LogProof, error) {
	payload, p, err := c.notary.Prove(ctx, session, seq)
	if err != nil {
		return api.LogProof{}, err
	}
	cp, err := p.Verify(payload, c.keys.Keyset())
	if err != nil {
		return api.LogProof{}, fmt.Errorf("the node's own proof does not hold: %w", err)
	}
	return api.LogProof{Session: session, Seq: seq, Index: p.Proof.Index, Size: cp.Size, Receipt: string(payload), Proof: string(p.Encode())}, nil
}

func (c commands) Consistency(_ context.Context, from, to uint64) (api.Consistency, error) {
	path, err := c.notary.Consistency(from, to)
	if err != nil {
		return api.Consistency{}, err
	}
	out := api.Consistency{From: from, To: to, Path: []string{}}
	for _, h := range path {
		out.Path = append(out.Path, h.String())
	}
	return out, nil
}

func (c commands) Keyset() string { return string(c.keys.Note()) }

// bundle returns the canonical bytes of a bundle version, for exports.
func (c commands) bundle(digest receipts.Hash) ([]byte, bool) {
	r, err := c.blobs.Get(hex.EncodeToString(digest[:]))
	if err != nil {
		return nil, false
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return b, err == nil
}

// rejected words why a bundle was not taken.
func rejected(a gatekeeper.Applied) error {
	for _, p := range a.Found {
		if !p.Warning {
			return problem.New(problem.ConfigInvalid, fmt.Sprintf("%s: %s", a.File, p), p.Hint)
		}
	}
	return problem.New(problem.ConfigInvalid, fmt.Sprintf("%s: %s", a.File, a.Why), "")
}
