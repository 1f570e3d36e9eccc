package notary

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Subjects of the records, and the streams they go to.
const (
	sessionPrefix = "gatehouse.v1.sessions."
	logPrefix     = "gatehouse.v1.log."
	controlPrefix = "gatehouse.v1.control."
	keyPrefix     = "notary.key." // private
	foldName      = "notary"      // private and snapshot
)

// Options configure a Notary.
type Options struct {
	Node  string // name of the node, one NATS subject token
	Keys  *Keys
	Clock func() time.Time // nil = time.Now
	Build receipts.Hash    // digest of the running binary, zero if unknown

	CheckpointEvery time.Duration // how often Run looks for news to checkpoint; 0 = 0.9 s
	HeartbeatEvery  time.Duration // heartbeats while sessions are open; 0 = 10 s
	RefreshEvery    time.Duration // a new time on the checkpoint of an idle log; 0 = 30 s
	SnapshotEvery   time.Duration // snapshots of a grown log; 0 = 1 h

	Budget Budget // of each session

	// Keep names folders outside the journal and the streams that hold the newest
	// checkpoint and the log's C2SP tiles; at least one should lie where the node's
	// disk does not. A log behind any of them does not start.
	Keep []string
	Kept func(dir string, err error) // told when a folder could not be read or written, or ("") a checkpoint not be signed; nil = nobody
}

// Notary is the one writer of a node's log. Use it in this order: New, the
// journal opened with its Seal and its node key, Start before anything else
// appends to the journal, Run.
type Notary struct {
	o       Options
	origin  string
	keyset  receipts.Hash // digest
	sealID  string
	logName string // subject
	control *Chain

	j *journal.Journal // set by Start

	// order is held for reading while a receipt gets its place in its chain and
	// in the journal, and for writing while a snapshot is taken.
	order sync.RWMutex

	// Of the journal's writer: the group that is sealed, used again for the next.
	leaves  []receipts.Hash
	flights []*flight // nil for an event

	// tickets serialises checkpoints and snapshots.
	tickets  sync.Mutex
	keepers  []*keeper // under tickets
	unsigned *ending   // under tickets: a checkpoint that its signer has not signed

	mu      sync.Mutex // guards all below; see the lock order in doc.go
	started bool
	chains  map[string]*Chain // open sessions, without the control chain
	tree    tree
	prev    receipts.Hash     // last seal, zero before the first
	next    uint64            // journal position after the last sealed group
	heads   map[string]headAt // open sessions, and those closed since the last manifest
	totals  totals
	covered uint64  // size of the newest checkpoint, 0 before the first
	head    []byte  // its note
	last    *ending // the newest checkpoint made by this process
	kept    uint64  // log size of the newest snapshot
	keptPos uint64  // journal position from which it needs the journal
}

// headAt is a session's head and the log index of its receipt.
type headAt struct {
	receipts.Head
	Index uint64
}

// totals are what a manifest states of the whole log.
type totals struct {
	Sessions uint64 // opened, without the control chain
	Closed   uint64
	Receipts uint64
	Losses   uint64
}

// flight is a receipt on its way to its seal: the mark of its record.
type flight struct {
	chain  *Chain
	seq    uint64
	typ    receipts.Type
	leaf   receipts.Hash
	index  *uint64 // where to put the log index, may be nil
	landed bool    // of the journal's writer
}

// ending is a checkpoint with what it says about ends.
type ending struct {
	checkpoint receipts.Checkpoint
	note       []byte
	manifest   []byte // the checkpoint's last leaf
	doc        receipts.ManifestDoc
	heads      []receipts.Head
}

// New returns a Notary that has not folded a journal yet.
func New(o Options) *Notary {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	// A tenth less than a second: signing and syncing included, a receipt is covered
	// within one.
	o.CheckpointEvery = cmp.Or(o.CheckpointEvery, 900*time.Millisecond)
	o.HeartbeatEvery = cmp.Or(o.HeartbeatEvery, 10*time.Second)
	o.Budget = o.Budget.withDefaults()
	o.RefreshEvery = cmp.Or(o.RefreshEvery, 30*time.Second)
	o.SnapshotEvery = cmp.Or(o.SnapshotEvery, time.Hour)
	n := &Notary{
		o:       o,
		origin:  o.Keys.Origin(),
		keyset:  o.Keys.keyset.Digest(),
		logName: logPrefix + o.Node,
		chains:  map[string]*Chain{},
		heads:   map[string]headAt{},
	}
	if k, ok := o.Keys.keyset.Active(receipts.SealKey); ok {
		n.sealID = k.ID()
	}
	n.control = n.chain(receipts.ControlSession, controlPrefix+o.Node)
	return n
}

// chain returns an empty chain.
func (n *Notary) chain(session, subject string) *Chain {
	return &Chain{
		n: n, session: session, subject: subject,
		link: link{prev: receipts.Genesis(n.origin, session, n.keyset)},
	}
}

// Origin returns the name of the log.
func (n *Notary) Origin() string { return n.origin }

// Control returns the node's own chain: keys, bundles, modes, checkpoints.
func (n *Notary) Control() *Chain { return n.control }

// Open starts a session's chain with a durable session.open. The session id
// becomes a NATS subject token: use a ULID, and none twice. o.Keyset is filled.
// If ctx ends first the session may still have been opened; Resume tells.
func (n *Notary) Open(ctx context.Context, session string, o receipts.Open, obs receipts.Obs) (*Chain, error) {
	c := n.chain(session, sessionPrefix+session)
	if !validToken(session) || session == receipts.ControlSession {
		return nil, problem.New(problem.SessionUnknown, "the session id is malformed", "")
	}
	rand.Read(c.key[:]) // never fails since Go 1.24
	o.Keyset = n.keyset
	c.info = OpenSession{Session: session, Open: o, State: o.State}

	n.mu.Lock()
	switch _, taken := n.chains[session]; {
	case !n.started:
		n.mu.Unlock()
		return nil, errNotStarted
	case taken:
		n.mu.Unlock()
		return nil, problem.New(problem.SessionExists, "the session has a chain already", "")
	}
	n.chains[session] = c
	n.mu.Unlock()

	_, ticket, err := c.add(&receipts.Receipt{Type: receipts.TypeSessionOpen, Open: &o, Obs: &obs}, nil,
		// The key goes first: a receipt never commits to anything with a key
		// that is not on the disk.
		journal.Record{Kind: journal.KindPrivate, Subject: keyPrefix + session, Data: slices.Clone(c.key[:])})
	if err != nil {
		n.drop(session)
		return nil, err
	}
	if _, err := ticket.Wait(ctx); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return c, nil
}

// validToken reports whether s may be one token of a NATS subject.
func validToken(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

func (n *Notary) drop(session string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.chains, session)
}

var errNotStarted = problem.New(problem.NotStarted, "the notary has not read its journal yet", "")

// Resume returns the chain of an open session, also of one opened before a
// restart. A closed or unknown session is problem.SessionUnknown.
func (n *Notary) Resume(session string) (*Chain, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.started {
		return nil, errNotStarted
	}
	c, ok := n.chains[session]
	if !ok {
		return nil, problem.New(problem.SessionUnknown, "there is no such open session", "")
	}
	return c, nil
}

// OpenSession is a session whose chain has no session.close.
type OpenSession struct {
	Session string
	Open    receipts.Open // as written
	State   string        // To of the last session.state, Open.State before the first
	Level   int           // observation level of the last session.state
	Since   time.Time     // time of session.open
	Seq     uint64        // receipts so far
	Pending int           // decisions that wait for their outcome
}

// Sessions lists the open sessions, by id.
func (n *Notary) Sessions() []OpenSession {
	n.mu.Lock()
	chains := make([]*Chain, 0, len(n.chains))
	for _, c := range n.chains {
		chains = append(chains, c)
	}
	n.mu.Unlock()
	out := make([]OpenSession, 0, len(chains))
	for _, c := range chains {
		if info := c.Info(); info.Seq > 0 { // session.open has its place
			out = append(out, info)
		}
	}
	slices.SortFunc(out, func(a, b OpenSession) int { return cmp.Compare(a.Session, b.Session) })
	return out
}

// Size returns the number of sealed leaves.
func (n *Notary) Size() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return uint64(n.tree.size)
}

// Head returns the newest checkpoint note, nil before the first.
func (n *Notary) Head() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.head
}

// Seal is the journal's Seal hook. It refuses a receipt that no chain of this
// notary made, so that no other code can write into the log: only a chain makes
// flights, one for each receipt, and a flight is good for its receipt once.
func (n *Notary) Seal(group []journal.Record) ([]journal.Record, error) {
	leaves, flights := n.leaves[:0], n.flights[:0]
	for i := range group {
		r := &group[i]
		switch r.Kind {
		case journal.KindEvent:
			leaves, flights = append(leaves, receipts.Leaf(r.Data)), append(flights, nil)
		case journal.KindReceipt:
			leaf := receipts.Leaf(r.Data)
			f, ok := r.Mark.(*flight)
			if !ok || f.landed || f.chain.n != n || f.chain.subject != r.Subject || f.leaf != leaf {
				return nil, fmt.Errorf("a receipt on %s that no chain made", r.Subject)
			}
			f.landed = true
			leaves, flights = append(leaves, leaf), append(flights, f)
		case journal.KindSeal:
			return nil, errors.New("a seal that was not made here")
		}
	}
	n.leaves, n.flights = leaves, flights
	defer clear(flights) // they hold their chains
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.started {
		return nil, errNotStarted
	}
	n.next = group[0].Pos + uint64(len(group))
	if len(leaves) == 0 {
		return group, nil
	}
	first := uint64(n.tree.size)
	s, err := receipts.SealGroup(n.o.Keys.seal, n.sealID, n.origin, first, n.prev, leaves)
	if err != nil {
		return nil, err
	}
	for i, leaf := range leaves {
		n.tree.append(leaf, group[0].Pos)
		if f := flights[i]; f != nil {
			index := first + uint64(i)
			n.advance(f.chain.session, f.seq, leaf, f.typ, index)
			if f.index != nil {
				*f.index = index
			}
		}
	}
	n.prev = s.Hash()
	n.next++ // the seal itself
	return append(group, journal.Record{Kind: journal.KindSeal, Subject: n.logName, Data: s.Encode()}), nil
}

// advance moves heads and totals over one receipt. n.mu is held.
func (n *Notary) advance(session string, seq uint64, leaf receipts.Hash, typ receipts.Type, index uint64) {
	n.totals.Receipts++
	switch typ {
	case receipts.TypeSessionOpen:
		n.totals.Sessions++
	case receipts.TypeSessionClose:
		n.totals.Closed++
	case receipts.TypeLoss:
		n.totals.Losses++
	}
	// The control chain's head is the manifest itself.
	if session != receipts.ControlSession {
		closed := typ == receipts.TypeSessionClose
		n.heads[session] = headAt{receipts.Head{Session: session, Seq: seq, Leaf: leaf, Closed: closed}, index}
	}
}

// stated drops the heads of closed sessions that a manifest of this size has
// stated. n.mu is held.
func (n *Notary) stated(size uint64) {
	for session, h := range n.heads {
		if h.Closed && h.Index < size {
			delete(n.heads, session)
		}
	}
}
