package notary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Filter says what an export holds. The zero Filter is the whole log.
type Filter struct {
	Sessions []string  // these chains, whole; receipts.ControlSession is one
	Since    time.Time // with Until: the chains of the sessions opened in the
	Until    time.Time // period, whole; the file tells how many the log opened

	Events  bool     // event payloads too; else they stand by their hash, or not at all
	Held    [][]byte // checkpoint notes that readers hold already: proofs from them are enclosed
	Bundles func(digest receipts.Hash) (canonical []byte, ok bool)

	Open   []Disclosed                     // committed values to disclose
	Action func(leaf receipts.Hash) []byte // canonical bytes of a decision's action, nil if they are gone
}

// noSession is the hint of what asks for records that are not in the journal.
const noSession = "gatehouse session list shows the sessions; the oldest leave the journal when its retention is over"

// recentCheckpoints is how many checkpoints before the enclosed one readers are
// taken to hold anyway.
const recentCheckpoints = 16

// Export writes a self-contained file that receipts.Verify reads. It ends with a
// fresh checkpoint made now; when the journal cannot be written, with the newest
// there is, and the file proves its end as of then. The file is written as it is
// read: after an error w holds an incomplete one. A session that is not in the
// journal is problem.NotFound.
func (n *Notary) Export(ctx context.Context, w io.Writer, f Filter) error {
	e, err := n.checkpoint(ctx)
	n.mu.Lock()
	v, last := n.tree.view(n.j), n.last
	n.mu.Unlock()
	x := &export{n: n, f: f, e: e, v: v, want: map[string]bool{}, bundles: map[receipts.Hash]bool{}, events: map[receipts.Hash]bool{}}
	switch code := problem.CodeOf(err); {
	case err == nil:
		x.until = e.checkpoint.Size
	case last != nil && (code == problem.JournalFull || code == problem.JournalFailed):
		x.e, x.until = last, uint64(v.size)
	default:
		return fmt.Errorf("export: %w", err)
	}
	if err := x.survey(ctx); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if err := x.write(ctx, w); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

// export is one export in the making.
type export struct {
	n *Notary
	f Filter
	e *ending
	v *view

	until  uint64   // log index behind the last leaf that goes into the file
	first  uint64   // log index of the first leaf in the journal
	opened []opened // every session.open, in log order
	marks  [2]*mark // last manifest before the period, first one behind it
	older  []*receipts.Checkpoint

	pos     uint64                 // journal position of the first group that goes into the file
	want    map[string]bool        // chains that go into the file
	bundles map[receipts.Hash]bool // digests that their session.open name
	events  map[receipts.Hash]bool // event leaves that they name
}

// opened is a session.open.
type opened struct {
	session string
	index   uint64 // in the log
	pos     uint64 // of its group in the journal
	digest  receipts.Hash
	event   receipts.Hash
}

// mark is an earlier manifest.
type mark struct {
	index uint64
	data  []byte
	doc   *receipts.ManifestDoc
}

// log reports whether the file is about the whole log.
func (x *export) log() bool { return len(x.f.Sessions) == 0 && !x.period() }

func (x *export) period() bool { return !x.f.Since.IsZero() || !x.f.Until.IsZero() }

// survey reads the log and chooses what goes into the file.
func (x *export) survey(ctx context.Context) error {
	started := false
	for group, err := range x.n.j.Groups(0) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		g, err := openGroup(group)
		if err != nil {
			return err
		}
		x.seen(group)
		if g.seal == nil {
			continue
		}
		if !started {
			x.first, started = g.seal.First, true
		}
		if g.seal.First >= x.until {
			break
		}
		for i, r := range g.records {
			if err := x.leaf(r, g.seal.First+uint64(i), group[0].Pos); err != nil {
				return inconsistent(r.Pos, err)
			}
		}
	}
	return x.choose()
}

// leaf takes what the survey needs from one leaf.
func (x *export) leaf(r journal.Record, index, pos uint64) error {
	if r.Kind != journal.KindReceipt {
		return nil
	}
	typ := receipts.Type(typeOf(r.Data))
	if typ != receipts.TypeSessionOpen && (typ != receipts.TypeManifest || !x.period()) {
		return nil
	}
	rec, err := receipts.Decode(r.Data)
	if err != nil {
		return err
	}
	if o := rec.Open; o != nil {
		x.opened = append(x.opened, opened{rec.Session, index, pos, o.Digest, o.EventLeaf})
		return nil
	}
	m := &mark{index: index, data: r.Data, doc: rec.Man}
	switch {
	case index+1 >= x.e.checkpoint.Size: // the enclosed checkpoint's own
	case !x.f.Since.IsZero() && !rec.T.After(x.f.Since):
		x.marks[0] = m
	case !x.f.Until.IsZero() && !rec.T.Before(x.f.Until) && x.marks[1] == nil:
		x.marks[1] = m
	}
	return nil
}

// choose picks the chains. A period is that between its two manifests, so that
// their counts and the file speak of the same sessions.
func (x *export) choose() error {
	from, to := uint64(0), x.e.doc.Size
	if m := x.marks[0]; m != nil {
		from = m.doc.Size
	}
	if m := x.marks[1]; m != nil {
		to = m.doc.Size
	}
	for _, o := range x.opened {
		switch {
		case x.log():
		case x.period() && (o.index < from || o.index >= to), !x.period() && !slices.Contains(x.f.Sessions, o.session):
			continue
		}
		if len(x.want) == 0 {
			x.pos = o.pos
		}
		x.want[o.session] = true
		if !o.digest.IsZero() {
			x.bundles[o.digest] = true
		}
		if !o.event.IsZero() {
			x.events[o.event] = true
		}
	}
	if slices.Contains(x.f.Sessions, receipts.ControlSession) {
		x.want[receipts.ControlSession] = true
		x.pos = 0
	}
	if x.log() || x.f.Events && len(x.events) > 0 { // events lie before their session.open
		x.pos = 0
	}
	for _, s := range x.f.Sessions {
		if !x.want[s] {
			return problem.New(problem.NotFound, "there is no session "+s+" in the journal", noSession)
		}
	}
	if x.period() && len(x.want) == 0 {
		return problem.New(problem.NotFound, "no session was opened in the period", "Widen the period.")
	}
	return nil
}

// seen remembers checkpoints that readers may hold.
func (x *export) seen(group []journal.Record) {
	for _, r := range group {
		if r.Kind != journal.KindCheckpoint {
			continue
		}
		if cp, err := receipts.ParseCheckpoint(r.Data, x.n.o.Keys.keyset); err == nil {
			x.older = append(x.older, cp)
			if len(x.older) > recentCheckpoints {
				x.older = x.older[1:]
			}
		}
	}
}

// write reads the log again and writes the file.
func (x *export) write(ctx context.Context, w io.Writer) error {
	head := receipts.ExportHead{Origin: x.n.origin, Keyset: x.n.o.Keys.note}
	if x.log() {
		head.Log, head.First = true, x.first
	} else {
		head.Sessions = slices.Sorted(maps.Keys(x.want))
	}
	if x.f.Bundles != nil {
		digests := slices.SortedFunc(maps.Keys(x.bundles), func(a, b receipts.Hash) int { return slices.Compare(a[:], b[:]) })
		for _, d := range digests {
			if text, ok := x.f.Bundles(d); ok {
				head.Bundles = append(head.Bundles, text)
			}
		}
	}
	var err error
	if head.Openings, err = x.openings(); err != nil {
		return err
	}
	out, err := receipts.NewExport(w, head)
	if err != nil {
		return err
	}
	for group, err := range x.n.j.Groups(x.pos) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		g, err := openGroup(group)
		if err != nil {
			return err
		}
		if g.seal == nil {
			continue
		}
		if g.seal.First >= x.until {
			break
		}
		if leaves := x.leaves(g); len(leaves) > 0 {
			if err := out.Group(g.seal, leaves); err != nil {
				return err
			}
		}
	}
	end, err := x.end(head.Sessions)
	if err != nil {
		return err
	}
	return out.Close(end)
}

// leaves picks those of a group that go into the file.
func (x *export) leaves(g sealedGroup) (out []receipts.ExportLeaf) {
	for i, r := range g.records {
		l := receipts.ExportLeaf{Index: i, Data: r.Data}
		switch {
		case r.Kind == journal.KindEvent:
			l.Kind = receipts.LeafEvent
			if !x.log() && !(x.f.Events && x.events[g.leaves[i]]) {
				continue
			}
			if !x.f.Events || len(r.Data) > receipts.MaxBody {
				if !x.log() {
					continue
				}
				l = receipts.ExportLeaf{Index: i, Kind: receipts.LeafHidden, Leaf: g.leaves[i]}
			}
		case !x.log() && !x.want[x.session(r.Subject)]:
			continue
		}
		out = append(out, l)
	}
	return out
}

// session returns the session of a receipt's subject.
func (x *export) session(subject string) string {
	if subject == x.n.control.subject {
		return receipts.ControlSession
	}
	return subject[min(len(sessionPrefix), len(subject)):]
}

// end proves how the log stands at the checkpoint.
func (x *export) end(sessions []string) (end receipts.ExportEnd, err error) {
	size := x.e.checkpoint.Size
	end.Checkpoint, end.Manifest = x.e.note, x.e.manifest
	if end.Proof, err = x.v.proof(size-1, size); err != nil {
		return end, err
	}
	if x.log() {
		for _, h := range x.e.heads {
			sessions = append(sessions, h.Session)
		}
		slices.Sort(sessions)
	}
	for _, s := range sessions {
		// A session that was closed long ago has no head any more; its
		// session.close is its end.
		if h, err := receipts.ProveHead(x.e.heads, s); err == nil {
			end.Heads = append(end.Heads, h)
		}
	}
	for _, m := range x.marks {
		if m == nil {
			continue
		}
		p, err := x.v.proof(m.index, size)
		if err != nil {
			return end, err
		}
		end.Marks = append(end.Marks, receipts.Mark{Manifest: m.data, Proof: p})
	}
	end.Older, err = x.olderTrees()
	return end, err
}

// olderTrees proves that the checkpoint continues those that readers hold.
func (x *export) olderTrees() (out []receipts.OlderTree, err error) {
	sizes := map[uint64]receipts.Hash{}
	for _, cp := range x.older {
		sizes[cp.Size] = cp.Root
	}
	for _, note := range x.f.Held {
		cp, err := receipts.ParseCheckpoint(note, x.n.o.Keys.keyset)
		if err != nil {
			return nil, problem.Wrap(err, problem.Usage, "a held checkpoint is not one of this log", "")
		}
		if cp.Size > x.e.checkpoint.Size { // RC-16
			return nil, inconsistent(0, errors.New("a checkpoint outside is of a larger log than this one"))
		}
		sizes[cp.Size] = cp.Root
	}
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		o := receipts.OlderTree{Size: size}
		if o.Root, err = x.v.root(size); err != nil {
			return nil, err
		}
		if o.Root != sizes[size] { // RC-14
			return nil, inconsistent(0, fmt.Errorf("the log had another tree of size %d", size))
		}
		if size == x.e.checkpoint.Size {
			continue
		}
		if o.Path, err = x.v.consistency(size, x.e.checkpoint.Size); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}
