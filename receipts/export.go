package receipts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"gatehouse/internal/canon"
)

// exportVersion is the first word of an export file.
const exportVersion = "gatehouse-export/1"

// Words that begin a frame of an export, in the order in which frames may stand.
const (
	wordScope       = "scope"
	wordKeyset      = "keyset"
	wordBundle      = "bundle"
	wordOpening     = "opening"
	wordSeal        = "seal"
	wordReceipt     = "receipt"
	wordEvent       = "event"
	wordHidden      = "hidden"
	wordCheckpoint  = "checkpoint"
	wordManifest    = "manifest"
	wordHead        = "head"
	wordMark        = "mark"
	wordConsistency = "consistency"
	wordEnd         = "end"
)

// MaxBody is the largest body of a frame in bytes; larger events are kept in
// blobs and stand in an export by their hash alone.
const MaxBody = 1 << 20

// ExportHead is what an export states before its leaves.
type ExportHead struct {
	Origin string
	// Scope: the whole log from index First when Log is set, else the chains
	// of Sessions.
	Log      bool
	First    uint64
	Sessions []string

	Keyset   []byte    // note of Keyset.Sign
	Bundles  [][]byte  // canonical bytes of each bundle that a session.open names
	Openings []Opening // disclosed commitments
}

// LeafKind says what a leaf of the log is.
type LeafKind uint8

// Leaf kinds. A hidden leaf stands in an export by its hash alone.
const (
	LeafReceipt LeafKind = iota
	LeafEvent
	LeafHidden
)

// ExportLeaf is one leaf of a group as it goes into an export.
type ExportLeaf struct {
	Index int // in its group
	Kind  LeafKind
	Data  []byte // the stored bytes; nil for LeafHidden
	Leaf  Hash   // for LeafHidden
}

// ExportEnd is what an export states behind its leaves. Without a checkpoint
// everything else is empty too.
type ExportEnd struct {
	Checkpoint []byte      // note of SignCheckpoint
	Manifest   []byte      // its last leaf
	Proof      Proof       // of the manifest in the checkpoint's tree
	Heads      []HeadProof // of the exported sessions, under the manifest
	Marks      []Mark      // manifests of earlier moments, oldest first
	Older      []OlderTree // earlier checkpoints of the log that readers may hold, oldest first
}

// Mark is an earlier manifest with its inclusion in the export's checkpoint. Two
// marks tell how many sessions the log opened between them.
type Mark struct {
	Manifest []byte
	Proof    Proof
}

// OlderTree proves that the export's checkpoint continues an earlier one.
type OlderTree struct {
	Size uint64
	Root Hash
	Path []Hash
}

// ExportWriter writes one export file: NewExport, then Group for every seal in
// log order, then Close. It checks the order of what it is given and remembers
// the first error.
type ExportWriter struct {
	w        *bufio.Writer
	origin   string
	next     uint64 // first log index that may still come
	receipts uint64
	err      error
	line     []byte
}

// NewExport writes the head of an export to w.
func NewExport(w io.Writer, h ExportHead) (*ExportWriter, error) {
	e := &ExportWriter{w: bufio.NewWriterSize(w, 64<<10), origin: h.Origin}
	if err := CheckName(h.Origin); err != nil {
		return nil, fmt.Errorf("export: origin: %w", err)
	}
	if h.Log == (len(h.Sessions) > 0) {
		return nil, errors.New("export: its scope is either the log or a list of sessions")
	}
	e.word(exportVersion).text(h.Origin).endLine()
	if h.Log {
		e.word(wordScope).text("log").number(h.First).endLine()
	}
	for _, s := range h.Sessions {
		if !isToken(s) {
			return nil, errors.New("export: malformed session id")
		}
		e.word(wordScope).text("session").text(s).endLine()
	}
	e.word(wordKeyset).body(h.Keyset)
	for _, b := range h.Bundles {
		e.word(wordBundle).body(b)
	}
	for _, o := range h.Openings {
		if !isToken(o.Session) || !isToken(o.Label) {
			return nil, errors.New("export: malformed opening")
		}
		e.word(wordOpening).text(o.Session).number(o.Seq).text(o.Label).hash(o.Key).body(o.Value)
	}
	return e, e.err
}

// Group writes a seal and those of its leaves that belong in the file. The seal
// must hold its leaves (SealGroup or Bind). Groups come in log order.
func (e *ExportWriter) Group(s *Seal, leaves []ExportLeaf) error {
	if e.err != nil {
		return e.err
	}
	if s.Origin != e.origin || s.First < e.next || len(leaves) == 0 {
		return e.fail(errors.New("export: group out of place"))
	}
	e.next = s.First + uint64(s.Count)
	e.word(wordSeal).text(s.KeyID).number(s.First).number(uint64(s.Count)).hash(s.Root).hash(s.Prev)
	e.line = append(e.line, ' ')
	e.line = sealEncoding.AppendEncode(e.line, s.Sig[:])
	e.endLine()
	last := -1
	for _, l := range leaves {
		if l.Index <= last || l.Index >= s.Count {
			return e.fail(errors.New("export: leaf out of place"))
		}
		last = l.Index
		path := s.Proof(l.Index).Path
		switch l.Kind {
		case LeafReceipt:
			e.receipts++
			e.word(wordReceipt).number(uint64(l.Index)).path(path).body(l.Data)
		case LeafEvent:
			e.word(wordEvent).number(uint64(l.Index)).path(path).body(l.Data)
		case LeafHidden:
			e.word(wordHidden).number(uint64(l.Index)).path(path).hash(l.Leaf).endLine()
		}
	}
	return e.err
}

// Close writes the end of the file. It does not close the underlying writer.
func (e *ExportWriter) Close(end ExportEnd) error {
	if end.Checkpoint != nil {
		e.word(wordCheckpoint).body(end.Checkpoint)
		e.word(wordManifest).path(end.Proof.Path).body(end.Manifest)
		for _, h := range end.Heads {
			e.word(wordHead).text(h.Session).number(h.Seq).hash(h.Leaf).text(string(h.state())).
				number(h.Proof.Index).path(h.Proof.Path).endLine()
		}
		for _, m := range end.Marks {
			e.word(wordMark).number(m.Proof.Index).path(m.Proof.Path).body(m.Manifest)
		}
		for _, o := range end.Older {
			e.word(wordConsistency).number(o.Size).hash(o.Root).path(o.Path).endLine()
		}
	}
	e.word(wordEnd).number(e.receipts).endLine()
	if e.err != nil {
		return e.err
	}
	return e.fail(e.w.Flush())
}

func (e *ExportWriter) fail(err error) error {
	if e.err == nil && err != nil {
		e.err = fmt.Errorf("export: %w", err)
	}
	return e.err
}

// The methods below build one line; endLine or body writes it.

func (e *ExportWriter) word(w string) *ExportWriter {
	e.line = append(e.line[:0], w...)
	return e
}

func (e *ExportWriter) text(s string) *ExportWriter {
	e.line = append(append(e.line, ' '), s...)
	return e
}

func (e *ExportWriter) number(n uint64) *ExportWriter {
	e.line = strconv.AppendUint(append(e.line, ' '), n, 10)
	return e
}

func (e *ExportWriter) hash(h Hash) *ExportWriter {
	e.line = canon.AppendDigest(append(e.line, ' '), h)
	return e
}

func (e *ExportWriter) path(p []Hash) *ExportWriter {
	e.line = append(e.line, ' ')
	e.line = append(e.line, formatPath(p)...)
	return e
}

func (e *ExportWriter) endLine() {
	if e.err != nil {
		return
	}
	if len(e.line) >= maxLine {
		_ = e.fail(errors.New("line too long"))
		return
	}
	_, err := e.w.Write(append(e.line, '\n'))
	_ = e.fail(err)
}

// body ends the line with the length of b and writes b behind it.
func (e *ExportWriter) body(b []byte) {
	if len(b) == 0 || len(b) > MaxBody {
		_ = e.fail(fmt.Errorf("%s of %d bytes", bytes.Fields(e.line)[0], len(b)))
		return
	}
	e.number(uint64(len(b))).endLine()
	if e.err == nil {
		_, err := e.w.Write(b)
		_ = e.fail(err)
		_ = e.fail(e.w.WriteByte('\n'))
	}
}
