package journal_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/problem"
)

// machine drives a journal over a disk that crashes and fails, and knows what a
// reader may see: a beginning of all appends, cut between appends, that holds
// everything acknowledged.
type machine struct {
	disk    *faultfs.FS
	j       *journal.Journal
	calls   [][]string // appends in order, those from before the oldest segment too
	tickets []journal.Ticket
	acked   int    // calls[:acked] are durable
	first   uint64 // oldest position that must be readable
	seed    uint64
	failed  bool // a fault was injected since the last start
}

func (m *machine) options() journal.Options {
	return journal.Options{FS: m.disk, SegmentBytes: 1 << 10, ReserveBytes: 1 << 10, MaxGroup: 8, PrivateKey: []byte(strings.Repeat("k", 32))}
}

func (m *machine) start(t *rapid.T) {
	var err error
	if m.j, err = journal.Open(dir, m.options()); err != nil {
		t.Fatalf("open: %v", err)
	}
	m.failed = false
	var got []string
	at := uint64(0)
	for group, err := range m.j.Groups(0) {
		if err != nil {
			t.Fatalf("read after open: %v", err)
		}
		for _, r := range group {
			if at == 0 {
				at = r.Pos
				if at > m.first {
					t.Fatalf("oldest record is at %d, trimmed before %d only", at, m.first)
				}
			} else if r.Pos != at+uint64(len(got)) {
				t.Fatalf("position %d after %d", r.Pos, at+uint64(len(got))-1)
			}
			got = append(got, string(r.Data))
		}
	}
	var all []string
	ends := map[int]int{0: 0} // records in calls[:k] -> k
	for k, c := range m.calls {
		all = append(all, c...)
		ends[len(all)] = k + 1
	}
	if at == 0 { // nothing left to read
		at = m.j.Next()
	}
	if m.j.Next() != at+uint64(len(got)) {
		t.Fatalf("next position is %d after %d records from %d", m.j.Next(), len(got), at)
	}
	have := int(at) - 1 + len(got)
	kept, whole := ends[have]
	if have > len(all) || !whole {
		t.Fatalf("%d records: not a whole number of appends of %d", have, len(all))
	}
	if kept < m.acked {
		t.Fatalf("%d appends are there, %d were acknowledged", kept, m.acked)
	}
	if strings.Join(got, "|") != strings.Join(all[at-1:have], "|") {
		t.Fatalf("records differ from what was appended:\n%q\n%q", got, all[at-1:have])
	}
	m.calls, m.acked, m.tickets = m.calls[:kept], kept, nil
}

func (m *machine) record(t *rapid.T, s string) journal.Record {
	return journal.Record{
		Kind:    rapid.SampledFrom([]journal.Kind{journal.KindEvent, journal.KindReceipt, journal.KindPrivate, journal.KindSnapshot}).Draw(t, "kind"),
		Subject: "s",
		Data:    []byte(s),
	}
}

func (m *machine) Append(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "records")
	var recs []journal.Record
	var call []string
	for i := range n {
		s := fmt.Sprintf("%d.%d %s", len(m.calls), i, strings.Repeat("x", rapid.IntRange(0, 300).Draw(t, "size")))
		recs, call = append(recs, m.record(t, s)), append(call, s)
	}
	ticket := m.j.Append(recs...)
	if err := ticket.Refused(); err != nil {
		if !m.failed {
			t.Fatalf("append: %v", err)
		}
		return
	}
	m.calls, m.tickets = append(m.calls, call), append(m.tickets, ticket)
}

func (m *machine) Wait(t *rapid.T) {
	if len(m.tickets) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.tickets)-1).Draw(t, "ticket")
	_, err := m.tickets[i].Wait(t.Context())
	if err != nil {
		if !m.failed || problem.CodeOf(err) != problem.JournalFailed {
			t.Fatalf("wait: %v", err)
		}
		return
	}
	m.acked = max(m.acked, len(m.calls)-len(m.tickets)+i+1)
}

func (m *machine) Crash(t *rapid.T) {
	m.seed++
	before := m.acked
	after := m.disk.Crash(rand.New(rand.NewPCG(m.seed, rapid.Uint64().Draw(t, "crash"))))
	_ = m.j.Close() // the process that is gone
	m.disk, m.acked = after, before
	m.start(t)
}

func (m *machine) Restart(t *rapid.T) {
	if err := m.j.Close(); err != nil && !m.failed {
		t.Fatalf("close: %v", err)
	}
	if !m.failed {
		m.acked = len(m.calls) // Close writes what is queued
	}
	m.disk.Heal()
	m.start(t)
}

func (m *machine) Fail(t *rapid.T) {
	m.failed = true
	m.disk.Inject(faultfs.Fault{
		Op:    rapid.SampledFrom([]faultfs.Op{faultfs.Write, faultfs.Sync, faultfs.Create, faultfs.Rename, faultfs.SyncDir, faultfs.Truncate}).Draw(t, "op"),
		After: rapid.IntRange(0, 3).Draw(t, "after"),
		Times: rapid.IntRange(0, 1).Draw(t, "times"),
		Err:   syscall.EIO,
		Short: rapid.IntRange(0, 200).Draw(t, "short"),
	})
}

func (m *machine) Trim(t *rapid.T) {
	before := uint64(rapid.IntRange(1, int(m.j.Next())).Draw(t, "before"))
	if err := m.j.Trim(before); err != nil && !m.failed {
		t.Fatalf("trim: %v", err)
	}
	m.first = max(m.first, before)
}

// Check is called by rapid after every action.
func (m *machine) Check(*rapid.T) {}

// RC-41: power cuts, failed writes and restarts in any order.
func TestMachine(t *testing.T) {
	t.Run("RC-41_power_cut", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			m := &machine{disk: &faultfs.FS{}, first: 1}
			m.start(t)
			t.Repeat(rapid.StateMachineActions(m))
			m.Restart(t)
			if err := m.j.Close(); err != nil {
				t.Fatal(err)
			}
		})
	})
}
