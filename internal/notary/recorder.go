package notary

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Labels of commitments in Act.Args. "in" is the label of Receipt.In.
const (
	labelInput     = "in"
	labelPath      = "path"
	labelQuery     = "query"
	labelBody      = "body"
	labelRef       = "ref"     // names, one a line
	labelUpdate    = "update"  // "<old> <new>", one a line
	labelChanged   = "changed" // paths, one a line
	labelArguments = "arguments"
)

// Recorder returns the gate's recorder of a session. obs says who judges and is
// written into every decision.
func (c *Chain) Recorder(obs receipts.Obs) enforcers.Recorder {
	if obs.Build.IsZero() {
		obs.Build = c.n.o.Build
	}
	return &recorder{c, obs}
}

type recorder struct {
	c   *Chain
	obs receipts.Obs
}

// Decision writes a decision receipt; identical refusals are folded, see Budget.
// When the wait for its durability is given
// up, the action does not happen and the chain says so.
func (r *recorder) Decision(ctx context.Context, a *enforcers.Action, d *enforcers.Decision, durable bool) (receipts.Hash, error) {
	input, err := a.Judged()
	if err != nil {
		return receipts.Hash{}, err
	}
	f := forms.Get().(*form)
	f.dec = receipts.Dec{
		Verdict: receipts.Verdict(d.Effect), Mode: d.Mode, Passed: d.Passed, Fault: d.Fault,
		Rule: d.Rule, Reason: d.Reason, Policy: d.Policy, Module: d.Module, By: d.By,
		Gen: a.Generation, Fuel: d.Fuel, Dur: d.Micros, Held: d.Held, Dev: d.Dev,
	}
	r.act(&f.act, a)
	rec := receipts.Receipt{Type: receipts.TypeDecision, Act: &f.act, Dec: &f.dec, Obs: &r.obs, In: r.c.Commit(labelInput, input), X: besides(a, d)}
	tidy(&rec)
	if err := r.c.afford(ctx); err != nil {
		return receipts.Hash{}, err
	}
	if !d.Passed {
		leaf, ticket, err := r.c.refuse(&rec)
		d.Folded = ticket == nil
		if err == nil && durable && ticket != nil {
			_, err = ticket.Wait(ctx)
		}
		return leaf, err
	}
	leaf, ticket, err := r.c.add(&rec, nil)
	forms.Put(f)
	if err != nil || !durable {
		return leaf, err
	}
	if _, err := ticket.Wait(ctx); err != nil {
		if d.Passed && problem.CodeOf(err) != problem.JournalFailed {
			r.Outcome(leaf, enforcers.Outcome{Effect: enforcers.NotForwarded, Code: "not_awaited"})
		}
		return receipts.Hash{}, err
	}
	return leaf, nil
}

// form is what a recorder fills in for a receipt.
type form struct {
	act receipts.Act
	dec receipts.Dec
	out receipts.Out
}

// forms are used again, with the maps of their actions: a chain writes a receipt
// down and keeps nothing of it. A refusal may be kept, to be counted with others
// of its kind (Chain.refuse): its form does not come back.
var forms = sync.Pool{New: func() any { return new(form) }}

// Extensions of a decision.
const (
	extEnforcer = "enforcer."    // what an enforcer said that did not decide
	extPrices   = "spend.prices" // the price table that Held rests on, SHA-256 in hex
	extSignedBy = "signed.by"    // the connection whose answer gave the signed URL that is asked for
)

// besides tells which enforcers faulted or denied besides the one that decided
// (one in shadow under a hard bundle, or an added one whose allow is no answer),
// and what an amount rests on.
func besides(a *enforcers.Action, d *enforcers.Decision) map[string]string {
	var x map[string]string
	if a.Model != nil && !a.Model.Prices.IsZero() {
		x = map[string]string{extPrices: hex.EncodeToString(a.Model.Prices[:])}
	}
	if a.Signed != nil {
		x = map[string]string{extSignedBy: code(a.Signed.By)}
	}
	for _, s := range d.Trace {
		if s.Enforcer == d.By || s.Fault == "" && s.Verdict.Effect != enforcers.Deny {
			continue
		}
		said := "fault " + code(s.Fault)
		if s.Fault == "" {
			said = "deny " + code(s.Verdict.Rule) + " " + code(s.Verdict.Reason)
		}
		if x == nil {
			x = map[string]string{}
		}
		x[extEnforcer+code(s.Enforcer)] = said
	}
	return x
}

// Outcome enqueues the outcome of a decision. The first one counts; a decision
// whose outcome cannot be written gets outcome unknown when the journal is next
// replayed.
func (r *recorder) Outcome(of receipts.Hash, o enforcers.Outcome) {
	f := forms.Get().(*form)
	f.out = outcome(of, o)
	_, _, _ = r.c.answer(of, &f.out)
	forms.Put(f)
}

var errNoDecision = errors.New("progress of an action that has no open decision")

// Progress writes a progress receipt of a decision that has no outcome yet.
func (r *recorder) Progress(ctx context.Context, of receipts.Hash, o enforcers.Outcome, durable bool) error {
	if !r.c.waits(of) {
		return errNoDecision
	}
	out := outcome(of, o)
	_, ticket, err := r.c.Enqueue(receipts.Receipt{Type: receipts.TypeProgress, Out: &out})
	if err != nil || !durable {
		return err
	}
	_, err = ticket.Wait(ctx)
	return err
}

// waits reports whether a decision of the chain has no outcome yet.
func (c *Chain) waits(of receipts.Hash) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally.Waits(of)
}

func outcome(of receipts.Hash, o enforcers.Outcome) receipts.Out {
	out := receipts.Out{
		Ref: of, Effect: o.Effect, Code: o.Code, Address: o.Address,
		Status: o.Status, Up: o.Up, Down: o.Down, Spent: o.Spent,
	}
	// An outcome must not be lost to a value nobody foresaw.
	if out.Effect != enforcers.Forwarded && out.Effect != enforcers.NotForwarded {
		out.Effect = enforcers.Unknown
	}
	if out.Status < 0 || out.Status > 999 {
		out.Status = 0
	}
	out.Code, out.Address = code(out.Code), code(out.Address)
	return out
}

// unlisted replaces a word that is not a code.
const unlisted = "unlisted"

// tidy keeps free text out of a decision: what an enforcer or a client chose the
// words of stands in a receipt only in the form of a code, and a receipt is
// never refused for its words.
func tidy(r *receipts.Receipt) {
	for _, p := range []*string{&r.Dec.Fault, &r.Dec.Rule, &r.Dec.Reason, &r.Dec.By, &r.Act.Method, &r.Act.Name, &r.Act.Host, &r.Act.Repository, &r.Act.Connection} {
		if c := code(*p); c != *p {
			*p = c
			if r.Red == nil {
				r.Red = map[string]uint64{}
			}
			r.Red["text"]++
		}
	}
}

// code returns s if it has the form of an id, a name or a code.
func code(s string) string {
	if len(s) > 256 {
		return unlisted
	}
	for i := range len(s) {
		if !codeByte[s[i]] {
			return unlisted
		}
	}
	return s
}

// codeByte are the bytes of codes.
var codeByte = func() (t [256]bool) {
	for c := '!'; c <= '~'; c++ {
		t[c] = !strings.ContainsRune("\"'`<>\\|", c)
	}
	return t
}()

// act turns an action into its closed form: hosts, ids and counters stand as
// they are, paths, queries, refs and bodies as commitments. Of what act was
// before, the maps are used.
func (r *recorder) act(act *receipts.Act, a *enforcers.Action) {
	clear(act.Args)
	clear(act.Units)
	*act = receipts.Act{
		ID: a.ID, Kind: string(a.Kind), Connection: a.Connection, Authority: a.Authority(),
		Args: act.Args, Units: act.Units,
	}
	arg := func(label string, h receipts.Hash) {
		if act.Args == nil {
			act.Args = map[string]receipts.Hash{}
		}
		act.Args[label] = h
	}
	commit := func(label, value string) {
		if value != "" {
			arg(label, r.c.commit(label, value))
		}
	}
	commitBytes := func(label string, value []byte) {
		if len(value) > 0 {
			arg(label, r.c.Commit(label, value))
		}
	}
	count := func(unit string, n int64) {
		if n > 0 {
			if act.Units == nil {
				act.Units = map[string]uint64{}
			}
			act.Units[unit] = uint64(n)
		}
	}
	to := func(t authority.Authority) {
		act.Scheme, act.Host, act.Port = t.Scheme(), t.Host(), t.Port()
	}
	switch {
	case a.Connect != nil:
		to(a.Connect.To)
		act.Blind = a.Connect.Blind
	case a.HTTP != nil:
		to(a.HTTP.To)
		act.Method = a.HTTP.Method
		commit(labelPath, a.HTTP.Path)
		commit(labelQuery, a.HTTP.Query)
		commitBytes(labelBody, a.HTTP.Body.Bytes)
		count("body", a.HTTP.Body.Length)
	case a.DNS != nil:
		act.Host, act.Name = a.DNS.Name, a.DNS.Type
	case a.Fetch != nil:
		to(a.Fetch.To)
		act.Repository = a.Fetch.Repository
		commit(labelPath, a.Fetch.Path)
	case a.Push != nil:
		to(a.Push.To)
		act.Repository = a.Push.Repository
		commit(labelPath, a.Push.Path)
		commit(labelRef, lines(a.Push.Commands, func(u enforcers.RefUpdate) string { return u.Ref }))
		commit(labelUpdate, lines(a.Push.Commands, func(u enforcers.RefUpdate) string { return u.Old + " " + u.New }))
		commit(labelChanged, strings.Join(a.Push.Changed, "\n"))
		count("commands", int64(len(a.Push.Commands)))
		count("changed", int64(len(a.Push.Changed)))
	case a.Model != nil:
		to(a.Model.To)
		act.Name = a.Model.Model
		count("max_tokens", a.Model.MaxTokens)
		if a.Model.Asked != a.Model.MaxTokens {
			count("asked_tokens", a.Model.Asked)
		}
	case a.Operation != nil:
		act.Name = a.Operation.Name
		commitBytes(labelArguments, a.Operation.Args)
	case a.Telemetry != nil:
		to(a.Telemetry.To)
		commit(labelPath, a.Telemetry.Path)
		count("body", a.Telemetry.Size)
	case a.Spawn != nil:
		act.Name = a.Spawn.Bundle
		count("depth", int64(a.Spawn.Depth))
		count("count", int64(a.Spawn.Count))
	}
}

func lines[T any](list []T, line func(T) string) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = line(v)
	}
	return strings.Join(out, "\n")
}
