package journal

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gatehouse/internal/problem"
)

// Kind says what a record is.
type Kind uint8

// The kinds. The journal itself treats only KindSnapshot (it remembers the
// newest of each subject) and KindPrivate (it is encrypted on disk) apart.
const (
	KindEvent      Kind = iota + 1 // a verified event, CloudEvents JSON; a leaf of the node log
	KindReceipt                    // a receipt payload; a leaf of the node log
	KindSeal                       // the signed seal of its group; last in the group
	KindSnapshot                   // a fold's state; Subject names the fold
	KindPrivate                    // encrypted with the node key; never published, never exported
	KindCheckpoint                 // a signed tree head of the node log
	kindLast       = KindCheckpoint
)

// Record is one entry.
type Record struct {
	Pos     uint64 // 1, 2, 3 ... set by the journal
	Kind    Kind
	Subject string // at most 1 KiB
	Data    []byte // at most 16 MiB
	Mark    any    // what the appender tells the Seal hook; never written, nil in what is read
}

// Options configures a journal. The zero value is usable.
type Options struct {
	// Seal is called on the writer goroutine with each group before it is
	// written. It returns the group and, after it, the records it adds. It must
	// not change the group, append to the journal, or keep the slice or its data,
	// whose memory is used again. An error is a failed write. Positions of the
	// group are set.
	Seal func(group []Record) ([]Record, error)
	// PrivateKey is the 32-byte node key for KindPrivate. Without one, private
	// records cannot be appended and come back with nil Data.
	PrivateKey []byte
	// SegmentBytes is the size at which a new segment file starts; 64 MiB by default.
	SegmentBytes int64
	// MaxGroup is the largest number of appended records in a group; 1024 by
	// default, at most 4,096.
	MaxGroup int
	// QueueBytes bounds what was accepted and is not durable yet: Append blocks
	// when it is reached; 24 MiB by default, and at most half of ReserveBytes.
	QueueBytes int
	// ReserveBytes is the size of the reserve that is given up when the disk is
	// full; 64 MiB by default, none if negative. It must hold what was accepted
	// before that was noticed, and AppendReserved after it: an append larger than
	// half of it may fail the journal on a full disk.
	ReserveBytes int64
	// Linger is how long records may wait for others to share their sync as long
	// as nobody waits for them; none by default. Ticket.Wait, a full group and
	// Close end it at once, so that it costs no waiter anything.
	Linger time.Duration
	// FS is the file layer, OS() by default.
	FS FS
}

func (o *Options) defaults() error {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.MaxGroup <= 0 {
		o.MaxGroup = 1024
	}
	if o.MaxGroup > maxGroupLimit {
		return problem.New(problem.JournalLimit, fmt.Sprintf("a group holds at most %d records", maxGroupLimit), "")
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = maxBatch
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = 64 << 20
	}
	if half := o.ReserveBytes / 2; half > 0 {
		// The other half is for what sealing and framing add, and for ends.
		o.QueueBytes = int(min(int64(o.QueueBytes), half))
	}
	if o.FS == nil {
		o.FS = OS()
	}
	return nil
}

// Journal is an open journal. Its methods are safe for concurrent use.
type Journal struct {
	o    Options
	dir  string
	id   id
	aead cipher.AEAD // nil without a private key
	lock io.Closer
	w    writer

	mu        sync.Mutex
	work      sync.Cond // something for the writer: a batch, a probe, the end
	room      sync.Cond // the queue shrank, or the journal failed or closed
	queue     []*batch  // what waits to be written, oldest first
	spare     []buffer  // of batches that were written
	queued    int       // bytes accepted and not durable: in queue or being written
	err       error     // why nothing is written any more; sticky
	full      bool      // no space: only reserved appends
	probe     bool      // the writer should look for space
	closing   bool
	segments  []*segment        // durable, oldest first; the last is written to
	next      uint64            // position after the last durable record
	snapshots map[string]uint64 // newest durable snapshot of each subject
	committed chan struct{}     // closed and replaced when any of the above changes
	done      chan struct{}     // closed when the writer has ended
}

// batch is a group in the making. All of its tickets share done.
type batch struct {
	buffer // reached by appenders under j.mu, then by the writer alone, until done
	j      *Journal
	bytes  int
	ready  bool        // to be written as soon as the disk is idle; guarded by j.mu
	linger *time.Timer // makes it ready; nil when it was born so
	done   chan struct{}
	first  uint64 // position of recs[0]; valid after done
	err    error  // valid after done
}

// buffer is where a group gathers: the frame that goes to the disk, as far as it is
// known, and its records, whose data lies in that frame and is told to the writer
// only. A buffer is used again: data that is copied once, while it is hot, costs a
// busy node less than data that waits for the disk in memory of its own.
type buffer struct {
	recs  []Record
	frame []byte
}

const (
	spareBuffers = 2       // one gathers while one is written
	spareBytes   = 2 << 20 // of a buffer that is kept: a full group of receipts takes half of it
)

// keep takes the buffer of b, which nobody reads any more. j.mu is held.
func (j *Journal) keep(b *batch) {
	clear(b.recs[:cap(b.recs)]) // what it points to is not to stay
	if len(j.spare) < spareBuffers && cap(b.frame) <= spareBytes {
		j.spare = append(j.spare, b.buffer)
	}
	b.buffer = buffer{}
}

// hurry makes the batch ready. j.mu is held.
func (b *batch) hurry() {
	if b.ready {
		return
	}
	b.ready = true
	b.linger.Stop()
	b.j.work.Signal()
}

// Ticket stands for the records of one Append.
type Ticket struct {
	b   *batch
	at  int   // index of the first record in the batch
	err error // refused: never queued
}

// Refused returns why the records were never queued, or nil. Nothing of a
// refused Append will ever be written; its place in the order is not taken.
func (t Ticket) Refused() error { return t.err }

// Wait returns the position of the first record once it is durable. It returns
// ctx.Err() when ctx ends first; the records may then still become durable. Any
// other error means that they will never be acknowledged.
func (t Ticket) Wait(ctx context.Context) (pos uint64, err error) {
	if t.err != nil {
		return 0, t.err
	}
	select {
	case <-t.b.done:
	default:
		if t.b.linger != nil {
			t.b.j.mu.Lock()
			t.b.hurry()
			t.b.j.mu.Unlock()
		}
		select {
		case <-t.b.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if t.b.err != nil {
		return 0, t.b.err
	}
	return t.b.first + uint64(t.at), nil
}

var (
	errClosed = problem.New(problem.JournalClosed, "the journal is closed", "")
	errFull   = problem.New(problem.JournalFull, "the disk of the journal is full",
		"Free disk space; the node goes on by itself.")
	errEmpty = problem.New(problem.JournalLimit, "an append needs at least one record", "")
	errNoKey = problem.New(problem.JournalKey, "private records need the node key", "Open the journal with the node key.")
)

// Append queues records for one group, all or none of them, in this order after
// everything appended before. The order is fixed when Append returns. While
// QueueBytes wait already it blocks until the disk has caught up, so load slows
// callers down instead of growing memory. It copies the data.
func (j *Journal) Append(recs ...Record) Ticket { return j.append(false, recs) }

// AppendReserved is Append for records that end things already begun: outcomes,
// closes, losses. They may use the reserve when the disk is full.
func (j *Journal) AppendReserved(recs ...Record) Ticket { return j.append(true, recs) }

func (j *Journal) append(reserved bool, recs []Record) Ticket {
	size, err := j.check(recs)
	if err != nil {
		return Ticket{err: err}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		switch {
		case j.err != nil:
			return Ticket{err: j.err}
		case j.closing:
			return Ticket{err: errClosed}
		case j.full && !reserved:
			j.probe = true
			j.work.Signal()
			return Ticket{err: errFull}
		}
		if j.queued == 0 || j.queued+size <= j.o.QueueBytes {
			break
		}
		j.hurry()
		j.room.Wait()
	}
	var b *batch
	if n := len(j.queue); n > 0 {
		b = j.queue[n-1]
	}
	if b == nil || len(b.recs)+len(recs) > j.o.MaxGroup || b.bytes+size > maxBatch {
		j.hurry() // its group is full
		b = j.batch()
		j.queue = append(j.queue, b)
		j.work.Signal()
	}
	t := Ticket{b: b, at: len(b.recs)}
	for i := range recs {
		r := &recs[i]
		b.frame = appendRecord(b.frame, r)
		b.recs = append(b.recs, Record{Kind: r.Kind, Subject: r.Subject, Mark: r.Mark})
	}
	b.bytes += size
	j.queued += size
	return t
}

// batch returns a new one. j.mu is held.
func (j *Journal) batch() *batch {
	b := &batch{j: j, ready: j.o.Linger <= 0, done: make(chan struct{})}
	if n := len(j.spare); n > 0 {
		b.buffer, j.spare = j.spare[n-1], j.spare[:n-1]
	}
	b.recs, b.frame = b.recs[:0], beginFrame(b.frame)
	if !b.ready {
		b.linger = time.AfterFunc(j.o.Linger, func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			b.hurry()
		})
	}
	return b
}

// hurry has all that is queued written as soon as the disk is idle. j.mu is
// held.
func (j *Journal) hurry() {
	for _, b := range j.queue {
		b.hurry()
	}
}

// check bounds one call and returns its size in bytes.
func (j *Journal) check(recs []Record) (int, error) {
	if len(recs) == 0 {
		return 0, errEmpty
	}
	if len(recs) > j.o.MaxGroup {
		return 0, problem.New(problem.JournalLimit, fmt.Sprintf("one append holds at most %d records", j.o.MaxGroup), "")
	}
	size := 0
	for i := range recs {
		r := &recs[i]
		if r.Kind == 0 || r.Kind > kindLast {
			return 0, problem.New(problem.JournalLimit, fmt.Sprintf("unknown record kind %d", r.Kind), "")
		}
		if len(r.Subject) > maxSubject || len(r.Data) > maxData {
			return 0, problem.New(problem.JournalLimit, "a record has at most 1 KiB of subject and 16 MiB of data", "")
		}
		if r.Kind == KindPrivate && j.aead == nil {
			return 0, errNoKey
		}
		size += recordHeaderSize + len(r.Subject) + len(r.Data)
		if r.Kind == KindPrivate {
			size += nonceSize + tagSize
		}
	}
	if size > maxBatch {
		return 0, problem.New(problem.JournalLimit, "one append holds at most 24 MiB", "")
	}
	return size, nil
}

// Next returns the position after the last durable record.
func (j *Journal) Next() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next
}

// Snapshot returns the position of the newest durable snapshot of a subject,
// and false if there is none.
func (j *Journal) Snapshot(subject string) (uint64, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	pos, ok := j.snapshots[subject]
	return pos, ok
}

// Err returns why Append would be refused now, or nil: problem.JournalFailed,
// problem.JournalFull or problem.JournalClosed.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return j.err
	case j.closing:
		return errClosed
	case j.full:
		return errFull
	}
	return nil
}

// Before returns the position before which every record was written before t, as
// far as whole segments tell: 0 when there is no such segment.
func (j *Journal) Before(t time.Time) (uint64, error) {
	j.mu.Lock()
	segments := make([]segment, len(j.segments))
	for i, s := range j.segments {
		segments[i] = segment{path: s.path, first: s.first}
	}
	j.mu.Unlock()
	var pos uint64
	for i, s := range segments[:len(segments)-1] {
		written, err := j.written(s.path)
		if err != nil {
			return 0, fmt.Errorf("age of the journal: %w", err)
		}
		if !written.Before(t) {
			break
		}
		pos = segments[i+1].first
	}
	return pos, nil
}

// written returns when a segment was last written to.
func (j *Journal) written(path string) (time.Time, error) {
	f, err := j.o.FS.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return time.Time{}, err
	}
	written, err := f.Written()
	return written, errors.Join(err, f.Close())
}

// Trim removes the segments all of whose records lie before the position. The
// segment that is being written stays. The caller decides that the records are
// acknowledged elsewhere, checkpointed and older than the newest snapshot.
func (j *Journal) Trim(before uint64) error {
	j.mu.Lock()
	n := 0
	for n < len(j.segments)-1 && j.segments[n+1].first <= before {
		n++
	}
	gone := j.segments[:n:n]
	j.segments = j.segments[n:]
	for s, pos := range j.snapshots {
		if pos < j.segments[0].first {
			delete(j.snapshots, s)
		}
	}
	j.mu.Unlock()
	// Oldest first: a crash half-way leaves a journal without a gap.
	for _, s := range gone {
		if err := j.o.FS.Remove(s.path); err != nil {
			return fmt.Errorf("trim journal: %w", err)
		}
	}
	if n == 0 {
		return nil
	}
	if err := j.o.FS.SyncDir(j.dir); err != nil {
		return fmt.Errorf("trim journal: %w", err)
	}
	return nil
}

// Close writes what is queued, ends all Follow loops and releases the lock.
func (j *Journal) Close() error {
	j.mu.Lock()
	already := j.closing
	j.closing = true
	j.hurry()
	j.work.Signal()
	j.room.Broadcast()
	j.mu.Unlock()
	<-j.done
	if already {
		return nil
	}
	j.mu.Lock()
	err := j.err
	j.wakeReaders()
	j.mu.Unlock()
	return errors.Join(err, j.w.close(), j.lock.Close())
}

// wakeReaders tells Follow loops to look again. j.mu is held.
func (j *Journal) wakeReaders() {
	close(j.committed)
	j.committed = make(chan struct{})
}

func (j *Journal) path(name string) string { return filepath.Join(j.dir, name) }
