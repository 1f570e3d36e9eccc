package receipts

import (
	"errors"
	"fmt"
	"time"
)

// Watcher follows the checkpoints of a live log as an auditor does who keeps the
// last one: a log may only grow, and it may not fall silent. Keep Last outside
// the node that is watched, and give it to the next Watcher.
type Watcher struct {
	Keyset *Keyset
	Last   *Checkpoint   // nil until the first one is seen
	MaxAge time.Duration // silence that is a finding; 0 = one minute

	// Prove returns the consistency path from an older size to a newer one.
	Prove func(older, newer uint64) ([]Hash, error)
}

// See takes in the newest checkpoint. A nil Finding means that the log has grown
// as it should, or not at all; Last is then the new one. A log that shrank is
// ClassRollback, one that contradicts what was seen ClassFork, one that cannot
// prove its growth ClassRollback, one that is silent ClassTime, and a signature
// by no trusted key ClassKey.
func (w *Watcher) See(note []byte, now time.Time) *Finding {
	cp, err := ParseCheckpoint(note, w.Keyset)
	switch {
	case errors.Is(err, ErrKey):
		return &Finding{Exit: ExitUntrusted, Class: ClassKey, Message: err.Error()}
	case err != nil:
		return &Finding{Exit: ExitTampered, Class: ClassSeal, Message: err.Error()}
	}
	if f := w.follows(cp); f != nil {
		return f
	}
	if w.Last == nil || cp.Size > w.Last.Size || cp.Time.After(w.Last.Time) {
		w.Last = cp
	}
	return w.Silence(now)
}

// Silence reports whether the last checkpoint is too old, nil if it is not.
func (w *Watcher) Silence(now time.Time) *Finding {
	limit := w.MaxAge
	if limit == 0 {
		limit = time.Minute
	}
	if w.Last == nil || now.Sub(w.Last.Time) <= limit {
		return nil
	}
	return &Finding{Exit: ExitUnproven, Class: ClassTime, Message: fmt.Sprintf("no checkpoint for %s", now.Sub(w.Last.Time).Round(time.Second))}
}

func (w *Watcher) follows(cp *Checkpoint) *Finding {
	last := w.Last
	switch {
	case last == nil:
		return nil
	case cp.Size < last.Size: // RC-16
		return &Finding{Exit: ExitTampered, Class: ClassRollback, Message: fmt.Sprintf("a checkpoint of size %d behind one of size %d", cp.Size, last.Size)}
	case cp.Size == last.Size && cp.Root != last.Root: // RC-14
		return &Finding{Exit: ExitTampered, Class: ClassFork, Message: fmt.Sprintf("two checkpoints of size %d with different roots", cp.Size)}
	case cp.Size == last.Size:
		return nil
	}
	path, err := w.Prove(last.Size, cp.Size)
	if err == nil {
		err = CheckConsistency(path, cp.Size, cp.Root, last.Size, last.Root)
	}
	if err != nil { // RC-17
		return &Finding{Exit: ExitTampered, Class: ClassRollback, Message: err.Error()}
	}
	return nil
}
