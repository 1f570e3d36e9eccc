package notary

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Types of the messages on the log stream, beside the receipt types.
const (
	TypeSeal       = "seal"
	TypeCheckpoint = "checkpoint"
)

// Sealed is a record as it goes onto a stream: its bytes, and the evidence about
// them as message headers.
type Sealed struct {
	journal.Record
	Header map[string]string // receipts.HeaderType, HeaderSeal, HeaderID
}

// Encode turns a durable journal group into messages, in order. Private records
// and snapshots are left out. Leaves without the seal of their group are an
// error: nothing unsealed is published.
func Encode(group []journal.Record) ([]Sealed, error) {
	g, err := openGroup(group)
	if err != nil {
		return nil, err
	}
	out := make([]Sealed, 0, len(group))
	n := 0
	for _, r := range group {
		var h map[string]string
		switch r.Kind {
		case journal.KindEvent, journal.KindReceipt:
			typ := receipts.TypeEvent
			if r.Kind == journal.KindReceipt {
				typ = typeOf(r.Data)
			}
			h = map[string]string{
				receipts.HeaderType: typ,
				receipts.HeaderSeal: g.seal.Header(n),
				receipts.HeaderID:   g.leaves[n].String(),
			}
			n++
		case journal.KindSeal:
			h = map[string]string{receipts.HeaderType: TypeSeal, receipts.HeaderID: g.seal.Hash().String()}
		case journal.KindCheckpoint:
			h = map[string]string{receipts.HeaderType: TypeCheckpoint, receipts.HeaderID: receipts.Hash(sha256.Sum256(r.Data)).String()}
		default:
			continue
		}
		out = append(out, Sealed{Record: r, Header: h})
	}
	return out, nil
}

// typeOf finds the type in a receipt's canonical bytes. It is the last of its
// kind: only extensions stand behind it, and their keys have a prefix.
func typeOf(payload []byte) string {
	const key = `,"type":"`
	i := bytes.LastIndex(payload, []byte(key))
	if i < 0 {
		return ""
	}
	rest := payload[i+len(key):]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return ""
	}
	return string(rest[:end])
}

// sealedGroup is a journal group with its leaves checked against its seal.
type sealedGroup struct {
	seal    *receipts.Seal   // nil when the group has no leaves
	leaves  []receipts.Hash  // in order
	records []journal.Record // those of the leaves
}

// openGroup finds a group's leaves and binds them to its seal.
func openGroup(group []journal.Record) (g sealedGroup, err error) {
	if len(group) == 0 {
		return g, errors.New("empty group")
	}
	for _, r := range group {
		switch r.Kind {
		case journal.KindEvent, journal.KindReceipt:
			g.leaves = append(g.leaves, receipts.Leaf(r.Data))
			g.records = append(g.records, r)
		case journal.KindSeal:
			if g.seal != nil {
				return g, inconsistent(r.Pos, errors.New("a second seal in one group"))
			}
			if g.seal, err = receipts.ParseSeal(r.Data); err != nil {
				return g, inconsistent(r.Pos, err)
			}
		}
	}
	switch {
	case g.seal == nil && len(g.leaves) > 0:
		return g, inconsistent(group[0].Pos, errors.New("leaves without a seal"))
	case g.seal == nil:
		return g, nil
	}
	if err := g.seal.Bind(g.leaves); err != nil {
		return g, inconsistent(group[0].Pos, err)
	}
	return g, nil
}

// inconsistent is the error for a journal that is whole and still cannot be the
// log of this node.
func inconsistent(pos uint64, err error) error {
	return problem.Wrap(err, problem.LogInconsistent, fmt.Sprintf("the log is inconsistent at journal position %d", pos),
		"Keep the state folder as evidence; restore a backup, which starts a new shard.")
}
