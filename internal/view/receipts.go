package view

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/receipts"
)

// Receipt is one row of a session's chain.
type Receipt struct {
	Session string    `json:"session"`
	Seq     uint64    `json:"seq"`
	Type    string    `json:"type"`
	Time    time.Time `json:"time" doc:"asserted by the node's clock"`
	Leaf    string    `json:"leaf"`
	Seal    Seal      `json:"seal" enum:"valid,invalid,unchecked"`

	Kind   string `json:"kind,omitempty" doc:"action kind of a decision"`
	Target string `json:"target,omitempty" doc:"host and port, repository, model, operation or bundle"`
	Method string `json:"method,omitempty"`
	// Verdict is allow, deny, would_block or fault: a would-block never looks
	// like an allow.
	Verdict string `json:"verdict,omitempty" enum:"allow,deny,would_block,fault"`
	Mode    string `json:"mode,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	By      string `json:"by,omitempty" doc:"enforcer that decided"`
	Fault   string `json:"fault,omitempty"`
	Count   uint64 `json:"count,omitempty" doc:"identical refusals folded into this receipt"`

	Of      string `json:"of,omitempty" doc:"leaf of the decision an outcome belongs to"`
	Effect  string `json:"effect,omitempty"`
	Address string `json:"address,omitempty"`
	Status  int    `json:"status,omitempty"`
	Up      uint64 `json:"up,omitempty" doc:"bytes sent outside"`
	Down    uint64 `json:"down,omitempty" doc:"bytes received"`
	Spent   int64  `json:"spent,omitempty" doc:"nanodollars"`

	Payload json.RawMessage `json:"payload" doc:"the receipt's exact bytes"`
}

// Receipts lists the chain of a session in its order, read from the stream.
func (v *View) Receipts(ctx context.Context, id, after string, n int) (Page[Receipt], error) {
	from, err := parseCursor('r', after)
	if err != nil {
		return Page[Receipt]{}, err
	}
	v.mu.RLock()
	x := v.sessions.byID[id]
	var opened uint64
	if x != nil {
		opened = x.opened
	}
	v.mu.RUnlock()
	if x == nil {
		return Page[Receipt]{}, notFound("session", id)
	}
	p, last := Page[Receipt]{Items: []Receipt{}}, uint64(0)
	for m, err := range v.src.Read(ctx, bus.Sessions, "gatehouse.v1.sessions."+id, max(opened, from+1)) {
		if err != nil {
			return Page[Receipt]{}, err
		}
		if len(p.Items) == limit(n) {
			p.Next = cursor('r', last)
			break
		}
		p.Items, last = append(p.Items, v.receipt(id, m)), m.Seq
	}
	return p, nil
}

// Tail lists the newest receipts of an open session in their order, at most 200;
// of one that ended, where there is no newest any more, the first. Next leads on
// when there are more.
func (v *View) Tail(ctx context.Context, id string) (Page[Receipt], error) {
	v.mu.RLock()
	x := v.sessions.byID[id]
	from := uint64(0)
	if x != nil && len(x.tail) > 0 {
		from = x.tail[0]
	}
	v.mu.RUnlock()
	after := ""
	if from > 1 {
		after = cursor('r', from-1)
	}
	return v.Receipts(ctx, id, after, tailKept)
}

// Decisions yields the decoded decisions of a session in its order, each with its
// leaf.
func (v *View) Decisions(ctx context.Context, id string) iter.Seq2[Decided, error] {
	return func(yield func(Decided, error) bool) {
		v.mu.RLock()
		x := v.sessions.byID[id]
		var opened uint64
		if x != nil {
			opened = x.opened
		}
		v.mu.RUnlock()
		if x == nil {
			yield(Decided{}, notFound("session", id))
			return
		}
		for m, err := range v.src.Read(ctx, bus.Sessions, "gatehouse.v1.sessions."+id, opened) {
			if err != nil {
				yield(Decided{}, err)
				return
			}
			if m.Header[receipts.HeaderType] != "" && m.Header[receipts.HeaderType] != string(receipts.TypeDecision) {
				continue
			}
			r, err := receipts.Decode(m.Data)
			if err != nil || r.Dec == nil {
				continue // a row of the session's receipts shows it as unreadable
			}
			if !yield(Decided{r, receipts.Leaf(m.Data).String(), v.receipt(id, m)}, nil) {
				return
			}
		}
	}
}

// Decided is one decision: the receipt, its leaf, and the row that shows it.
type Decided struct {
	Receipt *receipts.Receipt
	Leaf    string
	Row     Receipt
}

// Action returns the canonical action that a decision receipt judged, by the
// receipt's leaf hash. It is kept for 30 days, without bodies and values, and no
// receipt rests on it.
func (v *View) Action(ctx context.Context, leaf string) ([]byte, error) {
	if _, err := receipts.ParseHash(leaf); err != nil {
		return nil, notFound("action", leaf)
	}
	for m, err := range v.src.Read(ctx, bus.Actions, "gatehouse.v1.actions."+leaf, 0) {
		return m.Data, err
	}
	return nil, notFound("action", leaf)
}

// receipt makes a row. Bytes that are no receipt are shown as such, not hidden.
func (v *View) receipt(id string, m bus.Msg) Receipt {
	row := Receipt{Session: id, Leaf: receipts.Leaf(m.Data).String(), Seal: v.seal(m)}
	r, err := receipts.Decode(m.Data)
	if err != nil {
		row.Type, row.Seal, row.Payload = "unreadable", SealInvalid, json.RawMessage("null")
		return row
	}
	row.Seq, row.Type, row.Time, row.Payload = r.Seq, string(r.Type), r.T, m.Data
	if a := r.Act; a != nil {
		row.Kind, row.Target, row.Method = a.Kind, target(a), a.Method
	}
	if d := r.Dec; d != nil {
		row.Verdict, row.Mode, row.Rule, row.Reason = verdict(d), string(d.Mode), d.Rule, d.Reason
		row.By, row.Fault, row.Count = d.By, d.Fault, d.Count
	}
	if o := r.Out; o != nil {
		row.Of, row.Effect, row.Reason, row.Address = o.Ref.String(), o.Effect, o.Code, o.Address
		row.Status, row.Up, row.Down, row.Spent = o.Status, o.Up, o.Down, o.Spent
	}
	switch {
	case r.Open != nil:
		row.Reason = r.Open.Code
	case r.State != nil:
		row.Reason, row.Target = r.State.Reason, r.State.To
	case r.Close != nil:
		row.Reason = r.Close.Reason
	}
	return row
}

// verdict tells the four apart that a reader must never confuse.
func verdict(d *receipts.Dec) string {
	switch {
	case d.Fault != "":
		return receipts.CountFault
	case d.Verdict == receipts.Allow:
		return receipts.CountAllow
	case d.Passed:
		return receipts.CountWouldBlock
	}
	return receipts.CountDeny
}
