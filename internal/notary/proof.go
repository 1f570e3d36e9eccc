package notary

import (
	"context"
	"fmt"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Prove returns one receipt's exact bytes and the proof that the log holds it,
// under the newest checkpoint, or a fresh one when that does not cover it yet. A
// receipt that is not in the journal is problem.NotFound.
func (n *Notary) Prove(ctx context.Context, session string, seq uint64) (payload []byte, p *receipts.LogProof, err error) {
	subject := sessionPrefix + session
	if session == receipts.ControlSession {
		subject = n.control.subject
	}
	payload, index, err := n.find(ctx, subject, seq)
	if err != nil {
		return nil, nil, fmt.Errorf("prove: %w", err)
	}
	n.mu.Lock()
	note, size, v := n.head, n.covered, n.tree.view(n.j)
	n.mu.Unlock()
	if index >= size {
		e, err := n.checkpoint(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("prove: %w", err)
		}
		n.mu.Lock()
		note, size, v = e.note, e.checkpoint.Size, n.tree.view(n.j)
		n.mu.Unlock()
	}
	p = &receipts.LogProof{Checkpoint: note}
	if p.Proof, err = v.proof(index, size); err != nil {
		return nil, nil, err
	}
	return payload, p, nil
}

// find reads the journal for a receipt and returns its log index with it.
func (n *Notary) find(ctx context.Context, subject string, seq uint64) ([]byte, uint64, error) {
	for group, err := range n.j.Groups(0) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, 0, err
		}
		if !holds(group, subject) {
			continue
		}
		g, err := openGroup(group)
		if err != nil {
			return nil, 0, err
		}
		for i, r := range g.records {
			if r.Kind != journal.KindReceipt || r.Subject != subject {
				continue
			}
			rec, err := receipts.Decode(r.Data)
			if err != nil {
				return nil, 0, inconsistent(r.Pos, err)
			}
			if rec.Seq == seq {
				return r.Data, g.seal.First + uint64(i), nil
			}
		}
	}
	return nil, 0, problem.New(problem.NotFound, fmt.Sprintf("there is no receipt %d of that session in the journal", seq), noSession)
}

func holds(group []journal.Record, subject string) bool {
	for _, r := range group {
		if r.Subject == subject {
			return true
		}
	}
	return false
}

// Consistency proves that the log at size newer begins with the log at size
// older. Sizes that the log never had are problem.Usage.
func (n *Notary) Consistency(older, newer uint64) ([]receipts.Hash, error) {
	n.mu.Lock()
	v := n.tree.view(n.j)
	n.mu.Unlock()
	if older == 0 || older > newer || newer > uint64(v.size) {
		return nil, problem.New(problem.Usage, fmt.Sprintf("the log has %d leaves: no proof from %d to %d", v.size, older, newer), "")
	}
	return v.consistency(older, newer)
}
