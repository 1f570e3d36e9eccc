package journal_test

import (
	"testing"
	"time"

	"gatehouse/internal/journal"
)

// Records that nobody waits for share a sync; whoever waits, a full group and
// the end of the journal do not wait for the others.
func TestLinger(t *testing.T) {
	const never = time.Hour
	t.Run("waiter", func(t *testing.T) {
		j := open(t, t.TempDir(), journal.Options{Linger: never})
		j.Append(event("1"))
		second := j.Append(event("2"))
		if j.Next() != 1 {
			t.Fatal("written before anybody waited")
		}
		if pos := wait(t, second); pos != 2 || j.Next() != 3 {
			t.Fatalf("at %d, next %d", pos, j.Next())
		}
		recs, err := collect(j.Groups(1))
		if err != nil || len(recs) != 2 {
			t.Fatalf("%v %v", data(recs), err)
		}
	})
	t.Run("full_group", func(t *testing.T) {
		j := open(t, t.TempDir(), journal.Options{Linger: never, MaxGroup: 2})
		j.Append(event("1"), event("2"))
		j.Append(event("3"))
		follow(t, j, 2)
	})
	t.Run("full_queue", func(t *testing.T) {
		j := open(t, t.TempDir(), journal.Options{Linger: never, QueueBytes: 64})
		j.Append(event("1"))
		j.Append(event("a record that has no place beside the first one, which is therefore written"))
		if j.Next() < 2 {
			t.Fatal("the second was accepted before the first was written")
		}
	})
	t.Run("close", func(t *testing.T) {
		dir := t.TempDir()
		j := open(t, dir, journal.Options{Linger: never})
		j.Append(event("1"))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if j = open(t, dir, journal.Options{}); j.Next() != 2 {
			t.Fatal("lost at the end")
		}
	})
	t.Run("time", func(t *testing.T) {
		j := open(t, t.TempDir(), journal.Options{Linger: time.Millisecond})
		j.Append(event("1"))
		follow(t, j, 1)
	})
}

// follow waits for the first group, as a reader that hurries nobody.
func follow(t *testing.T, j *journal.Journal, records int) {
	t.Helper()
	for recs, err := range j.Follow(t.Context(), 1) {
		if err != nil || len(recs) != records {
			t.Fatalf("%v %v", data(recs), err)
		}
		return
	}
}
