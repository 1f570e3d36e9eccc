package receipts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The frames behind the leaves: what the log says about its own end.

func (v *verifier) onCheckpoint(f *frame) error {
	if err := f.want(0); err != nil {
		return err
	}
	cp, n, err := openCheckpoint(f.body, v.ks)
	switch {
	case errors.Is(err, ErrKey):
		v.find(ExitUntrusted, ClassKey, "", -1, "checkpoint: %v", err)
	case err != nil:
		v.find(ExitTampered, ClassSeal, "", -1, "checkpoint: %v", err)
	case !exactNote(f.body, n):
		v.find(ExitTampered, ClassSeal, "", -1, "the checkpoint is not in its only spelling")
	case v.revokedCheckpoint(cp):
		v.find(ExitUntrusted, ClassKey, "", -1, "the checkpoint is by the revoked key %s", cp.KeyID)
	default:
		v.cp = cp
	}
	return nil
}

// manifest checks one manifest leaf against the enclosed checkpoint.
func (v *verifier) manifest(b []byte, p Proof) (*Receipt, bool) {
	if v.cp == nil {
		return nil, false // the checkpoint's finding covers it
	}
	r, err := Decode(b)
	switch {
	case p.Check(v.cp.Size, v.cp.Root, Leaf(b)) != nil:
		v.find(ExitTampered, ClassSeal, "", int64(p.Index), "a manifest that is not in the checkpoint's tree")
	case errors.Is(err, ErrUnsupported):
		v.find(ExitUnsupported, ClassUnsupported, "", int64(p.Index), "%v", err)
	case err != nil:
		v.find(ExitTampered, ClassSchema, "", int64(p.Index), "%v", err)
	case r.Man == nil || r.Log != v.origin || r.Man.Size > p.Index:
		v.find(ExitTampered, ClassSplice, "", int64(p.Index), "not a manifest of this log and place")
	default:
		return r, true
	}
	return nil, false
}

func (v *verifier) onManifest(f *frame) error {
	if err := f.want(1); err != nil {
		return err
	}
	path, err := appendPath(nil, f.args[0])
	if err != nil {
		return err
	}
	v.scan(f.body, -1)
	if v.cp == nil {
		return nil
	}
	if r, ok := v.manifest(f.body, Proof{Index: v.cp.Size - 1, Path: path}); ok {
		v.man, v.manAt = r.Man, r.T
		if r.Session == ControlSession {
			// The manifest is itself the head of the control chain.
			v.heads[ControlSession] = HeadProof{Head: Head{Session: ControlSession, Seq: r.Seq, Leaf: Leaf(f.body)}}
		}
	}
	return nil
}

func (v *verifier) onHead(f *frame) error {
	if err := f.want(6); err != nil {
		return err
	}
	var h HeadProof
	var err error
	h.Session = string(f.args[0])
	if h.Seq, err = parseNumber(f.args[1]); err != nil {
		return err
	}
	if h.Leaf, err = ParseHash(string(f.args[2])); err != nil {
		return err
	}
	switch string(f.args[3]) {
	case "o":
	case "c":
		h.Closed = true
	default:
		return errors.New("malformed head")
	}
	if h.Proof.Index, err = parseNumber(f.args[4]); err != nil {
		return err
	}
	if h.Proof.Path, err = appendPath(nil, f.args[5]); err != nil {
		return err
	}
	_, twice := v.heads[h.Session] // the control chain's head is the manifest
	switch {
	case len(v.heads) >= maxPreamble:
		return errors.New("too many heads")
	case twice:
		v.find(ExitTampered, ClassDuplicate, h.Session, -1, "the same head twice")
	case v.man == nil: // the manifest's finding covers it
	case h.Check(v.man) != nil:
		v.find(ExitTampered, ClassSeal, h.Session, -1, "a head that is not in the manifest")
	case !v.log && !v.scope[h.Session]:
		v.find(ExitTampered, ClassSplice, h.Session, -1, "the head of a session that the file is not about")
	default:
		v.heads[h.Session] = h
	}
	return nil
}

func (v *verifier) onMark(f *frame) error {
	if err := f.want(2); err != nil {
		return err
	}
	index, err := parseNumber(f.args[0])
	if err != nil {
		return err
	}
	path, err := appendPath(nil, f.args[1])
	if err != nil {
		return err
	}
	if len(v.marks) >= maxPreamble {
		return errors.New("too many marks")
	}
	v.scan(f.body, int64(index))
	r, ok := v.manifest(f.body, Proof{Index: index, Path: path})
	if !ok {
		return nil
	}
	if n := len(v.marks); n > 0 && v.marks[n-1].index >= index || index+1 >= v.cp.Size {
		v.find(ExitTampered, ClassOrder, "", int64(index), "marks out of order")
		return nil
	}
	v.marks = append(v.marks, mark{index, r.Man, r.T})
	return nil
}

func (v *verifier) onOlder(f *frame) error {
	if err := f.want(3); err != nil {
		return err
	}
	var o OlderTree
	var err error
	if o.Size, err = parseNumber(f.args[0]); err != nil {
		return err
	}
	if o.Root, err = ParseHash(string(f.args[1])); err != nil {
		return err
	}
	if o.Path, err = appendPath(nil, f.args[2]); err != nil {
		return err
	}
	switch {
	case len(v.older) >= maxPreamble:
		return errors.New("too many older trees")
	case v.cp == nil:
		return nil
	case CheckConsistency(o.Path, v.cp.Size, v.cp.Root, o.Size, o.Root) != nil: // RC-17
		v.find(ExitTampered, ClassRollback, "", -1, "the checkpoint does not continue the tree of size %d", o.Size)
	case len(v.older) > 0 && v.older[len(v.older)-1].Size >= o.Size:
		v.find(ExitTampered, ClassOrder, "", -1, "older trees out of order")
	default:
		v.older = append(v.older, o)
	}
	return nil
}

func (v *verifier) onEnd(f *frame) error {
	if err := f.want(1); err != nil {
		return err
	}
	n, err := parseNumber(f.args[0])
	if err != nil {
		return err
	}
	if n != v.res.Integrity.Receipts { // RC-04
		v.find(ExitUnproven, ClassTruncation, "", -1, "the end line counts %d receipts, the file has %d", n, v.res.Integrity.Receipts)
	}
	return errEnd
}

// anchor is what fixes the end of the log for this file.
type anchor struct {
	ok      bool
	size    uint64    // log size up to which the end is fixed
	at      time.Time // when the log had at most that size
	outside bool      // by the outside checkpoint
	fresh   bool      // which is younger than MaxAge
}

// anchor relates the outside checkpoint, the enclosed one and the leaves, and
// finds the strongest statement about the end.
func (v *verifier) anchor() (a anchor) {
	if cp := v.cp; cp != nil && v.treeAgrees(cp, "the enclosed checkpoint") {
		a = anchor{ok: true, size: cp.Size, at: cp.Time}
	}
	out := v.outside
	if out == nil {
		return a
	}
	reached := false
	switch cp := v.cp; {
	case v.tree != nil && v.tree.Size() >= out.Size:
		reached = v.treeAgrees(out, "the outside checkpoint")
	case cp == nil || out.Size > cp.Size: // RC-16: the file ends before what the reader has seen
	case out.Size == cp.Size:
		if reached = out.Root == cp.Root; !reached { // RC-14
			v.find(ExitTampered, ClassFork, "", -1, "two checkpoints of size %d with different roots", cp.Size)
		}
	default:
		reached = v.continues(out)
	}
	if !reached || v.hides(out) {
		return a
	}
	if !a.ok {
		a.ok, a.size = true, out.Size
	}
	a.outside, a.at = true, out.Time
	age := v.o.Now.Sub(out.Time)
	switch {
	case age < -5*time.Minute:
		v.find(ExitUnproven, ClassTime, "", -1, "the outside checkpoint is %s in the future", (-age).Round(time.Second))
	case age <= v.o.MaxAge:
		a.fresh = true
	}
	return a
}

// treeAgrees compares a checkpoint with the leaves, where the file holds the
// log from its beginning.
func (v *verifier) treeAgrees(cp *Checkpoint, name string) bool {
	if v.tree == nil {
		return !v.log || v.first > 0
	}
	if v.tree.Size() < cp.Size {
		if v.next >= cp.Size {
			return false // leaves are missing inside; said where they are missing
		}
		v.find(ExitUnproven, ClassTruncation, "", int64(v.next), "%s covers %d leaves, the file has %d", name, cp.Size, v.tree.Size())
		return false
	}
	root, err := v.tree.Root(cp.Size)
	if err != nil || root != cp.Root { // RC-06, RC-16
		v.find(ExitTampered, ClassFork, "", -1, "the first %d leaves are not those of %s", cp.Size, name)
		return false
	}
	return true
}

// continues reports whether the enclosed checkpoint is proven to continue the
// outside one.
func (v *verifier) continues(out *Checkpoint) bool {
	for _, o := range v.older {
		if o.Size != out.Size {
			continue
		}
		if o.Root != out.Root { // RC-17
			v.find(ExitTampered, ClassFork, "", -1, "the log had another tree of size %d than the outside checkpoint says", out.Size)
			return false
		}
		return true
	}
	return false
}

// headAgrees compares a chain with its proven head. It returns false when the
// chain contradicts the head or stops before it.
func (v *verifier) headAgrees(c *chain, h HeadProof) bool {
	leaf, ok := c.leaf(h.Seq)
	switch {
	case !ok && h.Seq >= c.next(): // RC-04
		v.find(ExitUnproven, ClassTruncation, c.ID, -1, "the log knows receipt %d of the session, the file ends with %d", h.Seq, c.next()-1)
		return false
	case !ok:
		return false // missing inside; said where it is missing
	case leaf != h.Leaf, h.Closed != (c.closed && h.Seq+1 == c.next()): // RC-14
		v.find(ExitTampered, ClassFork, c.ID, -1, "receipt %d is not the one that the log's manifest states", h.Seq)
		return false
	}
	return true
}

// covered reports whether a checkpoint by a key that is not revoked covers
// everything that a revoked seal key sealed.
func (v *verifier) covered(c *chain) bool {
	if v.log && v.first == 0 {
		return v.cp != nil && v.tree != nil && v.unproved <= v.cp.Size
	}
	h, ok := v.heads[c.ID]
	return ok && c.revoked <= h.Seq+1
}

// judge draws the conclusions once the input has ended.
func (v *verifier) judge() {
	v.off = v.fr.off
	v.res.Completeness.State = EndUnknown
	in := &v.res.Integrity
	for _, c := range v.order {
		c.finish()
	}
	if v.ks != nil && !v.fatal {
		if !v.cut {
			v.judgeLoose()
		}
		v.judgeChains()
		v.judgeEnd()
		v.judgePeriod()
	}
	v.report()
	if b := v.res.FirstBad; b != nil {
		v.res.Exit, v.res.Class = b.Exit, b.Class
	} else {
		v.res.Exit, v.res.Class = ExitComplete, ClassComplete
	}
	in.State = Yes
	if v.res.Exit == ExitTampered {
		in.State = No
	} else if in.Receipts == 0 {
		in.State = Unknown
	}
}

// judgeLoose finds what nothing in the file refers to: bytes that are bound to
// no signature.
func (v *verifier) judgeLoose() {
	var loose []Finding
	for _, off := range v.bundles {
		loose = append(loose, Finding{Class: ClassSplice, Offset: off, Message: "a bundle that no session.open names"})
	}
	for leaf, ref := range v.events {
		if !v.named[leaf] {
			i := int64(ref.index)
			loose = append(loose, Finding{Class: ClassSplice, Index: &i, Offset: ref.off, Message: "an event that no session.open names"})
		}
	}
	for at, list := range v.openings {
		for _, o := range list {
			if !o.done { // RC-32
				loose = append(loose, Finding{Class: ClassRedaction, Session: at.session, Offset: o.off, Message: fmt.Sprintf("the opening of %q opens nothing", o.Label)})
			}
		}
	}
	slices.SortFunc(loose, func(a, b Finding) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, f := range loose {
		f.Exit = ExitTampered
		v.record(f)
	}
}

// judgeChains asks each chain what it admits about itself.
func (v *verifier) judgeChains() {
	for _, c := range v.order {
		at := int64(c.index)
		if c.revoked > 0 && !v.covered(c) {
			v.find(ExitUntrusted, ClassKey, c.ID, at, "sealed by a revoked key and covered by no checkpoint")
		}
		if c.tally.Losses > 0 {
			v.find(ExitAdmitted, ClassLoss, c.ID, at, "%d loss receipts: the node says that receipts are missing", c.tally.Losses)
		}
		if c.broken {
			continue
		}
		if n := c.tally.Strange(); n > 0 && !c.partial {
			v.find(ExitAdmitted, ClassUnmatched, c.ID, at, "%d outcomes answer no decision", n)
		}
		if n := c.tally.Unknown; n > 0 {
			v.find(ExitAdmitted, ClassUnmatched, c.ID, at, "%d outcomes are unknown", n)
		}
		if n := c.tally.Pending(); c.closed && n > 0 {
			v.find(ExitAdmitted, ClassUnmatched, c.ID, at, "%d decisions have no outcome", n)
		}
	}
}

// judgeEnd decides how much is proven about the end.
func (v *verifier) judgeEnd() {
	end := &v.res.Completeness
	end.State = EndUnproven
	a := v.anchor()
	if a.ok {
		end.Outside = a.outside
		end.AsOf = &a.at
	}
	if v.man != nil {
		end.Opened = &v.man.Sessions
	}
	for _, c := range v.order {
		if c.opened > 0 {
			end.InFile++
		}
	}
	if v.log && v.first == 0 && v.man != nil && v.man.Size <= v.next && v.man.Sessions > v.openedBefore(v.man.Size) && v.res.Integrity.Hidden == 0 { // RC-05
		v.find(ExitTampered, ClassSessionMissing, "", -1, "the log opened %d sessions, the file has %d", v.man.Sessions, end.InFile)
	}
	v.judgeHidden()
	whole := v.log && v.tree != nil && v.res.Integrity.Hidden == 0
	if whole && v.o.Session == "" {
		v.judgeLogEnd(a)
		return
	}
	if v.man != nil && v.man.Size+1 < a.size {
		a.size = v.man.Size // heads are those of the manifest, which was made a little earlier
	}
	v.judgeSessionEnds(a, whole)
}

// hides reports whether the file hides leaves that the outside checkpoint covers
// and the manifest does not account for: the end is then proven as of the
// manifest only.
func (v *verifier) hides(out *Checkpoint) bool {
	if v.man == nil {
		return false // judgeHidden speaks of them all
	}
	i, _ := slices.BinarySearch(v.hidden, v.man.Size)
	return i < len(v.hidden) && v.hidden[i] < out.Size
}

// judgeHidden holds the leaves that stand by their hash alone to the manifest's
// count of receipts: in place of an event that is privacy, in place of a receipt
// it is a way to leave a session out without a gap (RC-05).
func (v *verifier) judgeHidden() {
	if !v.log || v.res.Integrity.Hidden == 0 {
		return
	}
	known := v.man != nil && v.first == 0 && v.man.Size <= v.next
	switch {
	case known:
		shown, _ := slices.BinarySearch(v.shown, v.man.Size)
		if uint64(shown) < v.man.Receipts {
			v.find(ExitTampered, ClassSessionMissing, "", -1, "the log had %d receipts at index %d, the file shows %d and hides the others", v.man.Receipts, v.man.Size, shown)
		}
	case v.o.Session == "":
		v.find(ExitUnproven, ClassEndUnproven, "", -1, "%d leaves stand by their hash alone, and nothing says that none of them is a receipt", v.res.Integrity.Hidden)
	}
}

// judgeLogEnd: the file holds all leaves of the log from its beginning.
func (v *verifier) judgeLogEnd(a anchor) {
	if v.res.Integrity.Receipts == 0 {
		v.empty()
		return
	}
	v.proven(a, true)
}

// openedBefore counts the sessions in the file that were opened below a log
// index.
func (v *verifier) openedBefore(size uint64) (n uint64) {
	for _, c := range v.order {
		if c.opened > 0 && c.opened <= size {
			n++
		}
	}
	return n
}

// judgeSessionEnds: single chains are in question, each with its own end. whole
// says that the file holds all leaves of the log: then the tree itself states
// where each chain ends.
func (v *verifier) judgeSessionEnds(a anchor, whole bool) {
	targets := v.asked
	if v.log {
		targets = nil
		for _, c := range v.order {
			targets = append(targets, c.ID)
		}
	}
	if v.o.Session != "" {
		targets = []string{v.o.Session}
	}
	if len(v.order) == 0 {
		v.empty()
		return
	}
	// Where leaves are hidden, that all chains in sight are closed says nothing
	// about those that are not.
	closed, stated := !v.log || v.o.Session != "" || v.res.Integrity.Hidden == 0, true
	for _, id := range targets {
		c := v.chains[id]
		if c == nil { // RC-05
			exit := ExitTampered
			if !v.scope[id] {
				exit = ExitUnproven // it was asked for by the reader, not promised by the file
			}
			v.find(exit, ClassSessionMissing, id, -1, "no receipts of the session")
			closed, stated = false, false
			continue
		}
		h, ok := v.heads[id]
		agrees := ok && v.headAgrees(c, h)
		if c.closed && !c.broken {
			continue
		}
		closed = false
		stated = stated && (agrees || whole)
	}
	if closed {
		v.res.Completeness.State = EndClosed
		return
	}
	v.proven(a, stated)
}

// proven sets the end from the anchor; stated says that the anchor speaks of
// everything in question.
func (v *verifier) proven(a anchor, stated bool) {
	end := &v.res.Completeness
	switch {
	case v.cut || v.has(ClassTruncation):
		end.State = EndCut
	case !a.ok || !stated:
		v.find(ExitUnproven, ClassEndUnproven, "", -1, "nothing in or outside the file says that this is the end")
	case a.fresh:
		end.State, end.Through = EndCurrent, a.size
	default: // RC-47
		end.State, end.Through = EndAsOf, a.size
		v.find(ExitUnproven, ClassEndAsOf, "", -1, "the end is proven as of %s and not since", a.at.Format(time.RFC3339))
	}
}

func (v *verifier) empty() {
	v.res.Completeness.State = EndEmpty
	v.find(ExitUnproven, ClassEmpty, "", -1, "the file holds no receipts")
	for _, id := range slices.Sorted(maps.Keys(v.heads)) {
		v.find(ExitUnproven, ClassSessionMissing, id, -1, "the log knows the session, the file has none of its receipts")
	}
}

func (v *verifier) has(c Class) bool { return v.classes[c] }
