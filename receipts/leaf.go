package receipts

import (
	"errors"
	"fmt"
	"time"
)

// onLeaf judges one leaf: its place, its bytes against the seal, and then what
// it says.
func (v *verifier) onLeaf(f *frame, word string) error {
	args := 2
	if word == wordHidden {
		args = 3
	}
	if err := f.want(args); err != nil {
		return err
	}
	if v.seal == nil {
		return fmt.Errorf("%s before any seal", word)
	}
	if v.leaves++; v.leaves > maxLeaves {
		return errors.New("too many leaves")
	}
	pos, err := parseNumber(f.args[0])
	if err != nil {
		return err
	}
	if v.path, err = appendPath(v.path[:0], f.args[1]); err != nil {
		return err
	}
	index := v.seal.First + pos
	switch {
	case pos >= uint64(v.seal.Count):
		v.find(ExitTampered, ClassSeal, "", int64(index), "a leaf outside its group")
		return nil
	case int64(pos) == v.lastPos: // RC-09
		v.find(ExitTampered, ClassDuplicate, "", int64(index), "the same leaf twice")
		return nil
	case int64(pos) < v.lastPos: // RC-08
		v.find(ExitTampered, ClassOrder, "", int64(index), "leaves out of order")
	}
	v.lastPos = int64(pos)

	var leaf Hash
	if word == wordHidden {
		if leaf, err = ParseHash(string(f.args[2])); err != nil {
			return err
		}
	} else {
		v.scan(f.body, int64(index))
		leaf = Leaf(f.body)
	}
	in := &v.res.Integrity
	switch word {
	case wordReceipt:
		in.Receipts++
	case wordEvent:
		in.Events++
	case wordHidden:
		in.Hidden++
	}
	if in.Receipts+in.Events+in.Hidden == 1 {
		in.First = index
	}
	in.Last = index
	if v.quality == unsealed {
		return nil // one finding for the seal says it for all its leaves
	}
	if err := (Proof{Index: pos, Path: v.path}).Check(uint64(v.seal.Count), v.seal.Root, leaf); err != nil { // RC-01, RC-02
		v.find(ExitTampered, ClassPayload, "", int64(index), "the bytes are not the sealed ones")
		return nil
	}
	if word == wordReceipt {
		in.Matching++
	}
	if v.quality == foreign {
		return nil
	}
	v.inLog(index, leaf)
	switch word {
	case wordReceipt:
		if v.log {
			v.shown = append(v.shown, index)
		}
		v.onReceipt(f.body, index, leaf)
	case wordEvent:
		v.onEvent(f.body, index, leaf)
	case wordHidden:
		v.hidden = append(v.hidden, index)
		if !v.log {
			v.find(ExitTampered, ClassSplice, "", int64(index), "a hidden leaf in a file of single sessions")
		}
	}
	return nil
}

// inLog accounts for a leaf where the scope is the whole log.
func (v *verifier) inLog(index uint64, leaf Hash) {
	if !v.log {
		return
	}
	if index < v.first {
		v.find(ExitTampered, ClassOrder, "", int64(index), "a leaf before the part of the log that the file is about")
	}
	if index > v.next { // RC-03, RC-05
		v.find(ExitTampered, ClassGap, "", int64(v.next), "log indices %d to %d are missing", v.next, index-1)
		v.tree = nil // nothing is proven about a root any more
	}
	if index >= v.next {
		v.next = index + 1
	}
	if v.revoked {
		v.unproved = index + 1
	}
	if v.tree != nil && v.tree.Size() == index {
		v.tree.Append(leaf)
	}
}

func (v *verifier) onEvent(b []byte, index uint64, leaf Hash) {
	// A receipt that calls itself an event would leave its chain unseen.
	if _, err := decode(b); err == nil {
		v.find(ExitTampered, ClassSplice, "", int64(index), "a receipt that is passed off as an event")
		return
	}
	if !v.log {
		v.events[leaf] = leafRef{v.off, index}
	}
}

func (v *verifier) onReceipt(b []byte, index uint64, leaf Hash) {
	r, err := Decode(b)
	switch {
	case errors.Is(err, ErrUnsupported): // RC-23, RC-24
		v.find(ExitUnsupported, ClassUnsupported, "", int64(index), "%v", err)
		return
	case errors.Is(err, ErrSchema): // RC-30
		v.find(ExitTampered, ClassSchema, "", int64(index), "%v", err)
		return
	case err != nil: // RC-22
		v.find(ExitTampered, ClassCanonical, "", int64(index), "%v", err)
		return
	}
	if v.o.Visit != nil {
		v.o.Visit(index, leaf, r)
	}
	if r.Log != v.origin { // RC-13
		v.find(ExitTampered, ClassSplice, r.Session, int64(index), "a receipt of log %s", r.Log)
		return
	}
	if !v.log && !v.scope[r.Session] { // RC-13
		v.find(ExitTampered, ClassSplice, r.Session, int64(index), "a receipt of a session that the file is not about")
		return
	}
	c := v.chains[r.Session]
	if c == nil {
		if len(v.chains) >= maxChains {
			v.find(ExitUsage, ClassUnreadable, "", int64(index), "more than %d sessions", maxChains)
			v.fatal = true
			return
		}
		c = newChain(r.Session)
		v.chains[r.Session] = c
		v.order = append(v.order, c)
	}
	c.add(v, r, index, leaf)
	v.beat.add(v, r, index)
	for _, o := range v.openings[place{r.Session, r.Seq}] {
		o.done = o.done || o.Opens(r)
	}
	if r.Open != nil {
		delete(v.bundles, r.Open.Digest)
		v.named[r.Open.EventLeaf] = true
	}
}

// maxSilence is the longest time without a receipt of the control chain while a
// session is open; heartbeats are due every ten seconds.
const maxSilence = 30 * time.Second

// beat watches the control chain in a file of the whole log.
type beat struct {
	open int
	last time.Time
}

func (b *beat) add(v *verifier, r *Receipt, index uint64) {
	if !v.log {
		return
	}
	if b.open > 0 && !b.last.IsZero() && r.T.Sub(b.last) > maxSilence { // RC-28
		v.find(ExitAdmitted, ClassGap, "", int64(index), "no heartbeat for %s while sessions were open", r.T.Sub(b.last).Round(time.Second))
		b.last = r.T // one finding a silence
	}
	switch {
	case r.Session == ControlSession:
		b.last = r.T
	case r.Type == TypeSessionOpen:
		if b.open++; b.open == 1 && r.T.After(b.last) {
			b.last = r.T
		}
	case r.Type == TypeSessionClose:
		b.open--
	}
}
