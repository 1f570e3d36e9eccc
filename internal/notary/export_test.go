package notary

import "context"

// StopKeyChange does a key change as far as its first leaves leaves in the log.
func StopKeyChange(n *Notary, dir string, leaves int, c KeyChange) error {
	next, err := n.o.Keys.prepare(dir, n.Size(), c)
	if err != nil {
		return err
	}
	events := changes(n.o.Keys.keyset, next)
	for _, r := range events[:min(leaves, len(events))] {
		if _, err := n.control.Append(context.Background(), r); err != nil {
			return err
		}
	}
	if leaves > len(events) {
		_, err = n.checkpoint(context.Background())
	}
	return err
}

// Unfold writes what Run would write now.
func Unfold(n *Notary) error { return n.unfold() }
