package receipts

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"
)

// Options of Verify. The zero Options verify a file in itself: exit 4 at best,
// because without a pinned root nothing says who made it.
type Options struct {
	Root       string        // root fingerprint, obtained outside the file
	Session    string        // judge this session's end only
	Checkpoint []byte        // a checkpoint note that did not come with the file
	MaxAge     time.Duration // how old Checkpoint may be for exit 0; 0 = DefaultMaxAge
	Now        time.Time     // zero = time.Now()
	Since      time.Time     // with Until: state the sessions opened in this period
	Until      time.Time
	Canaries   [][]byte // values that must stand nowhere in the file, in no encoding
	MaxBytes   int64    // largest file; 0 = DefaultMaxBytes

	// Visit, if set, is called for each receipt whose bytes are the sealed
	// ones, in file order, before its place in the chain is judged.
	Visit func(index uint64, leaf Hash, r *Receipt)
}

// Defaults of Options.
const (
	DefaultMaxAge   = time.Hour
	DefaultMaxBytes = 16 << 30
)

// Limits on hostile files: RC-45.
const (
	maxLeaves   = 1 << 24
	maxChains   = 1 << 20
	maxPreamble = 1 << 14 // bundles, openings, scopes, heads, marks, older trees
	maxOpenings = 64      // of one receipt
)

// Verify reads an export and judges it. It reads r once, to its end or to the
// first thing that it cannot read, and keeps about 100 bytes for each receipt.
// It never fails: what is wrong with the input stands in the Result.
func Verify(r io.Reader, o Options) *Result {
	if o.MaxAge == 0 {
		o.MaxAge = DefaultMaxAge
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	v := &verifier{
		o: o, res: &Result{}, fr: newFrameReader(r, o.MaxBytes),
		chains: map[string]*chain{}, scope: map[string]bool{}, keys: map[string]Key{},
		bundles: map[Hash]int64{}, events: map[Hash]leafRef{}, named: map[Hash]bool{},
		openings: map[place][]*opening{}, heads: map[string]HeadProof{}, classes: map[Class]bool{},
		canaries: newScanner(o.Canaries),
	}
	v.read()
	v.judge()
	return v.res
}

// verifier holds the state of one run of Verify.
type verifier struct {
	o        Options
	res      *Result
	fr       *frameReader
	stage    int   // of the frame order
	off      int64 // of the frame at hand
	cut      bool  // the input ended before the end line
	fatal    bool  // the input could not be read to its end
	canaries *scanner
	classes  map[Class]bool // of all findings

	origin   string
	log      bool // scope is the log from index first
	first    uint64
	scope    map[string]bool // sessions in scope
	asked    []string        // the same in file order
	ks       *Keyset
	trusted  bool
	keys     map[string]Key // seal keys by id
	bundles  map[Hash]int64 // digest to offset; removed when a session.open names it
	events   map[Hash]leafRef
	named    map[Hash]bool // event leaves that a session.open names
	openings map[place][]*opening
	opened   int // openings so far

	seal     *Seal // the seal at hand
	quality  quality
	lastPos  int64 // position of the last leaf under it
	prev     *Seal // the seal before it
	next     uint64
	leaves   uint64
	tree     *Tree // of all leaves, when the scope is the log from 0
	path     []Hash
	revoked  bool // the seal at hand is by a revoked key
	chains   map[string]*chain
	order    []*chain
	beat     beat
	unproved uint64   // leaves in log scope under a revoked key: highest index + 1
	shown    []uint64 // log indices of the receipts, in log scope
	hidden   []uint64 // log indices of the hidden leaves, in log scope

	cp      *Checkpoint
	man     *ManifestDoc
	manAt   time.Time
	heads   map[string]HeadProof
	marks   []mark
	older   []OlderTree
	outside *Checkpoint
}

type leafRef struct {
	off   int64
	index uint64
}

type opening struct {
	Opening
	off  int64
	done bool
}

// place is where in which chain a receipt stands.
type place struct {
	session string
	seq     uint64
}

type mark struct {
	index uint64
	man   *ManifestDoc
	t     time.Time
}

// quality says how far the leaves under the seal at hand are believed.
type quality uint8

const (
	sealed   quality = iota // by a key of the keyset that is good for them
	foreign                 // by another key: its leaves take no part in any chain
	unsealed                // the signature is wrong
)

// find records a finding.
func (v *verifier) find(exit Exit, class Class, session string, index int64, format string, a ...any) {
	f := Finding{Exit: exit, Class: class, Session: session, Offset: v.off, Message: fmt.Sprintf(format, a...)}
	if index >= 0 {
		f.Index = &index
	}
	v.record(f)
}

func (v *verifier) record(f Finding) {
	v.classes[f.Class] = true
	if b := v.res.FirstBad; b == nil || rank(f) > rank(*b) {
		v.res.FirstBad = &f
	}
	if len(v.res.Findings) < MaxFindings {
		v.res.Findings = append(v.res.Findings, f)
	} else {
		v.res.More++
	}
}

// rank orders findings: the strongest statement that they support wins, and
// among equals the first. A gap is the weakest sign of tampering: whatever is
// removed, moved or replaced leaves one too.
func rank(f Finding) int {
	switch f.Exit {
	case ExitTampered:
		if f.Class == ClassGap {
			return 6
		}
		return 7
	case ExitUsage:
		return 5
	case ExitUnsupported:
		return 4
	case ExitUntrusted:
		return 3
	case ExitUnproven:
		return 2
	case ExitAdmitted:
		return 1
	}
	return 0
}

// read walks the frames.
func (v *verifier) read() {
	if v.fr.atEnd() { // RC-07
		v.cut = true
		v.find(ExitUnproven, ClassEmpty, "", -1, "the file is empty")
		return
	}
	if err := v.readVersion(); err != nil {
		v.fatal = true
		if errors.Is(err, ErrUnsupported) {
			v.find(ExitUnsupported, ClassUnsupported, "", -1, "%v", err)
			return
		}
		v.find(ExitUsage, ClassUnreadable, "", -1, "not an export: %v", err)
		return
	}
	for !v.fatal {
		f, err := v.fr.next()
		if err == nil {
			v.off = f.off
			err = v.frame(f)
		} else {
			v.off = v.fr.off
		}
		switch {
		case errors.Is(err, errEnd):
			if !v.fr.atEnd() {
				v.fatal = true
				v.find(ExitUsage, ClassUnreadable, "", -1, "something follows the end line")
			}
			return
		case errors.Is(err, errCut): // RC-04
			v.cut = true
			v.find(ExitUnproven, ClassTruncation, "", -1, "%v", err)
			return
		case errors.Is(err, ErrUnsupported):
			v.fatal = true
			v.find(ExitUnsupported, ClassUnsupported, "", -1, "%v", err)
		case err != nil:
			v.fatal = true
			v.find(ExitUsage, ClassUnreadable, "", -1, "%v", err)
		}
	}
}

// errEnd is the regular end of an export.
var errEnd = errors.New("end")

func (v *verifier) readVersion() error {
	line, err := v.fr.readLine()
	if err != nil {
		return err
	}
	var version, origin string
	if _, err := fmt.Sscanf(string(line), "%s %s", &version, &origin); err != nil || version+" "+origin != string(line) {
		return errors.New("its first line is not that of an export")
	}
	if version != exportVersion {
		const family = "gatehouse-export/"
		if len(version) > len(family) && version[:len(family)] == family {
			return fmt.Errorf("%w: %.40q", ErrUnsupported, version)
		}
		return errors.New("its first line is not that of an export")
	}
	if err := CheckName(origin); err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	v.origin = origin
	v.res.Authenticity.Origin = origin
	return nil
}

// stages is the order in which frames may stand; a word may repeat its stage.
var stages = map[string]int{
	wordScope: 1, wordKeyset: 2, wordBundle: 3, wordOpening: 4,
	wordSeal: 5, wordReceipt: 5, wordEvent: 5, wordHidden: 5,
	wordCheckpoint: 6, wordManifest: 7, wordHead: 8, wordMark: 9, wordConsistency: 10, wordEnd: 11,
}

// once lists the words that may stand at most once.
var once = map[string]bool{wordKeyset: true, wordCheckpoint: true, wordManifest: true, wordEnd: true}

// frame judges one frame. An error means that the file cannot be read on.
func (v *verifier) frame(f *frame) error {
	word := string(f.word)
	stage, ok := stages[word]
	switch {
	case !ok:
		return fmt.Errorf("unexpected line %.40q", word)
	case stage < v.stage, stage == v.stage && once[word]:
		return fmt.Errorf("%s out of place", word)
	case stage >= 2 && v.stage < 1, stage > 2 && v.ks == nil:
		return fmt.Errorf("%s before the scope and the keyset", word)
	case stage >= 7 && stage <= 10 && v.stage < stage-1 && v.stage < 6:
		return fmt.Errorf("%s without a checkpoint", word)
	case stage >= 8 && stage <= 10 && v.stage < 7:
		return fmt.Errorf("%s without a manifest", word)
	case v.stage == 6 && stage != 7:
		return errors.New("a checkpoint without its manifest")
	}
	v.stage = stage
	switch word {
	case wordScope:
		return v.onScope(f)
	case wordKeyset:
		return v.onKeyset(f)
	case wordBundle:
		return v.onBundle(f)
	case wordOpening:
		return v.onOpening(f)
	case wordSeal:
		return v.onSeal(f)
	case wordReceipt, wordEvent, wordHidden:
		return v.onLeaf(f, word)
	case wordCheckpoint:
		return v.onCheckpoint(f)
	case wordManifest:
		return v.onManifest(f)
	case wordHead:
		return v.onHead(f)
	case wordMark:
		return v.onMark(f)
	case wordConsistency:
		return v.onOlder(f)
	default:
		return v.onEnd(f)
	}
}

func (v *verifier) onScope(f *frame) error {
	if err := f.want(2); err != nil {
		return err
	}
	switch kind, arg := string(f.args[0]), string(f.args[1]); {
	case kind == "log" && !v.log && len(v.asked) == 0:
		first, err := parseNumber(f.args[1])
		v.log, v.first, v.next = true, first, first
		if first == 0 {
			v.tree = &Tree{}
		}
		return err
	case kind == "session" && !v.log && isToken(arg) && !v.scope[arg] && len(v.asked) < maxPreamble:
		v.scope[arg] = true
		v.asked = append(v.asked, arg)
		return nil
	default:
		return errors.New("malformed scope")
	}
}

func (v *verifier) onKeyset(f *frame) error {
	if err := f.want(0); err != nil {
		return err
	}
	ks, err := ParseKeyset(f.body, v.o.Root)
	switch {
	case ks == nil && errors.Is(err, ErrUnsupported):
		return err
	case ks == nil:
		v.fatal = true // nothing in the file can be judged without its keys
		v.find(ExitTampered, ClassKey, "", -1, "%v", err)
		return nil
	case err != nil:
		v.find(ExitUntrusted, ClassKey, "", -1, "%v", err)
	default:
		v.trusted = true
	}
	if ks.Origin != v.origin { // RC-21
		v.find(ExitTampered, ClassSplice, "", -1, "keyset of %s in a file of %s", ks.Origin, v.origin)
	}
	v.ks = ks
	for _, k := range ks.Keys {
		if k.Purpose == SealKey {
			v.keys[k.ID()] = k
		}
	}
	a := &v.res.Authenticity
	a.Root, a.Pinned, a.Serial = ks.RootFingerprint(), v.trusted, ks.Serial
	return v.readOutside()
}

// readOutside reads the checkpoint that did not come with the file.
func (v *verifier) readOutside() error {
	if v.o.Checkpoint == nil {
		return nil
	}
	cp, err := ParseCheckpoint(v.o.Checkpoint, v.ks)
	switch {
	case err == nil && v.revokedCheckpoint(cp):
		v.find(ExitUntrusted, ClassKey, "", -1, "the outside checkpoint is by the revoked key %s", cp.KeyID)
	case err == nil:
		v.outside = cp
	case errors.Is(err, ErrKey):
		v.find(ExitUntrusted, ClassKey, "", -1, "outside %v", err)
	default:
		v.fatal = true
		v.find(ExitUsage, ClassUsage, "", -1, "outside %v", err)
	}
	return nil
}

// revokedCheckpoint reports whether cp is by a revoked key: whoever stole it can
// sign any tree of any size with any time.
func (v *verifier) revokedCheckpoint(cp *Checkpoint) bool {
	k, _ := v.ks.Find(CheckpointKey, cp.KeyID)
	return k.Revoked
}

func (v *verifier) onBundle(f *frame) error {
	if err := f.want(0); err != nil {
		return err
	}
	v.scan(f.body, -1)
	d := Hash(sha256.Sum256(f.body))
	if _, ok := v.bundles[d]; ok {
		v.find(ExitTampered, ClassDuplicate, "", -1, "the same bundle twice")
	}
	if len(v.bundles) >= maxPreamble {
		return errors.New("too many bundles")
	}
	v.bundles[d] = f.off
	return nil
}

func (v *verifier) onOpening(f *frame) error {
	if err := f.want(4); err != nil {
		return err
	}
	o := &opening{off: f.off}
	o.Session, o.Label, o.Value = string(f.args[0]), string(f.args[2]), append([]byte(nil), f.body...)
	var err error
	if o.Seq, err = parseNumber(f.args[1]); err != nil {
		return err
	}
	key, err := ParseHash(string(f.args[3]))
	if err != nil {
		return err
	}
	o.Key = key
	at := place{o.Session, o.Seq}
	if v.opened++; v.opened > maxPreamble || len(v.openings[at]) >= maxOpenings {
		return errors.New("too many openings")
	}
	v.openings[at] = append(v.openings[at], o)
	return nil
}

func (v *verifier) onSeal(f *frame) error {
	if err := f.want(6); err != nil {
		return err
	}
	s := &Seal{Origin: v.origin, KeyID: string(f.args[0])}
	var count uint64
	for i, p := range []*uint64{&s.First, &count} {
		n, err := parseNumber(f.args[1+i])
		if err != nil {
			return err
		}
		*p = n
	}
	for i, p := range []*Hash{&s.Root, &s.Prev} {
		h, err := ParseHash(string(f.args[3+i]))
		if err != nil {
			return err
		}
		*p = h
	}
	if sealEncoding.DecodedLen(len(f.args[5])) != len(s.Sig) {
		return errors.New("malformed signature")
	}
	if _, err := sealEncoding.Decode(s.Sig[:], f.args[5]); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	if count > MaxGroup {
		return fmt.Errorf("group of %d leaves", count)
	}
	s.Count = int(count)
	v.judgeSeal(s)
	return nil
}

// judgeSeal checks a seal's signature and its place behind the previous seal.
func (v *verifier) judgeSeal(s *Seal) {
	v.res.Integrity.Seals++
	at := int64(s.First)
	v.seal, v.lastPos, v.revoked = s, -1, false
	k, known := v.keys[s.KeyID]
	err := s.check()
	switch {
	case err != nil: // RC-20
		v.quality = unsealed
		v.find(ExitTampered, ClassSeal, "", at, "%v", err)
		return
	case !known: // RC-10
		v.quality = foreign
		v.find(ExitUntrusted, ClassKey, "", at, "sealed by %s, which is not in the keyset", s.KeyID)
		return
	case !ed25519.Verify(k.Public, s.Text(), s.Sig[:]): // RC-20, RC-21
		v.quality = unsealed
		v.find(ExitTampered, ClassSeal, "", at, "the seal's signature is wrong")
		return
	case !k.Covers(s.First, uint64(s.Count)): // RC-11
		v.quality = foreign
		v.find(ExitUntrusted, ClassKey, "", at, "sealed by %s outside its interval", s.KeyID)
		return
	}
	v.quality, v.revoked = sealed, k.Revoked
	p := v.prev
	switch {
	case p != nil && s.First == p.First && s.Hash() == p.Hash(): // RC-09
		v.find(ExitTampered, ClassDuplicate, "", at, "the same seal twice")
	case p != nil && s.First == p.First+uint64(p.Count) && s.Prev != p.Hash(): // RC-14
		v.find(ExitTampered, ClassFork, "", at, "a signed seal that does not follow the signed seal before it")
	case p != nil && s.First < p.First+uint64(p.Count) && s.First+uint64(s.Count) > p.First:
		v.find(ExitTampered, ClassFork, "", at, "two signed seals over the same log index")
	case p != nil && s.First < p.First: // RC-08
		v.find(ExitTampered, ClassOrder, "", at, "seals out of order")
	}
	v.prev = s
}

// scan looks for canaries.
func (v *verifier) scan(b []byte, index int64) {
	if v.canaries.found(b) { // RC-33
		v.find(ExitTampered, ClassRedaction, "", index, "a value that must not be in the file is in it")
	}
}
