package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// pump carries the journal to the streams. Streams that hold something else, or
// lost something, end the node: what the journal holds is intact, and the
// control chain says what was found, once for each finding.
func (n *node) pump(ctx context.Context) error {
	err := n.bus.Pump(ctx, n.journal, encode)
	var fence *bus.FenceError
	var damage *bus.DamageError
	var loss receipts.Loss
	switch {
	case errors.As(err, &fence):
		loss = receipts.Loss{Cause: string(problem.StreamFenced), First: fence.Seq}
	case errors.As(err, &damage):
		loss = receipts.Loss{Cause: string(problem.StoreDamage), Count: damage.Lost}
	default:
		return err
	}
	if n.stated(loss) {
		return err
	}
	if _, werr := n.notary.Control().Append(context.WithoutCancel(ctx), receipts.Receipt{Type: receipts.TypeLoss, Loss: &loss}); werr != nil {
		n.log.ErrorContext(ctx, "couldn't write a loss", slog.Any("err", werr))
	}
	return err
}

// stated reports whether the journal says so already: a node that is started
// again and again finds the same thing each time.
func (n *node) stated(loss receipts.Loss) bool {
	for group, err := range n.journal.Groups(0) {
		if err != nil {
			return false
		}
		for _, rec := range group {
			if rec.Kind != journal.KindReceipt || !bytes.Contains(rec.Data, []byte(`"type":"loss"`)) {
				continue
			}
			if r, err := receipts.Decode(rec.Data); err == nil && r.Loss != nil && *r.Loss == loss {
				return true
			}
		}
	}
	return false
}
