package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/problem"
)

const dir = "journal"

// written returns a disk with a closed journal of n groups of two records and a
// seal, and what each group holds.
func written(t *testing.T, n int, o journal.Options, faults ...faultfs.Fault) (*faultfs.FS, [][]string) {
	t.Helper()
	disk := &faultfs.FS{}
	for _, f := range faults {
		disk.Inject(f)
	}
	o.FS, o.Seal = disk, appendSeal
	j := open(t, dir, o)
	var groups [][]string
	for i := range n {
		a, b := fmt.Sprintf("%d a %s", i, strings.Repeat("x", 40*(i%4))), fmt.Sprintf("%d b", i)
		pos := wait(t, j.Append(event(a), event(b)))
		groups = append(groups, []string{a, b, fmt.Sprintf("seal %d+2", pos)})
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	disk.Heal()
	return disk, groups
}

// noAllocate is a file system that cannot allocate ahead: files end where the
// last group ends.
var noAllocate = faultfs.Fault{Op: faultfs.Allocate, Err: errors.ErrUnsupported}

// groupsOf opens a disk and returns what each durable group holds.
func groupsOf(t *testing.T, disk *faultfs.FS, o journal.Options) (groups [][]string, err error) {
	t.Helper()
	o.FS = disk
	j, err := journal.Open(dir, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	for group, err := range j.Groups(0) {
		if err != nil {
			return nil, err
		}
		groups = append(groups, data(group))
	}
	return groups, nil
}

func flat(groups [][]string) (out []string) {
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

// Cut anywhere, a lone segment opens with the whole groups before the cut.
func TestTruncatedAtEveryByte(t *testing.T) {
	disk, want := written(t, 5, journal.Options{ReserveBytes: -1}, noAllocate)
	name := disk.Names(".seg")[0]
	whole := disk.Bytes(name)
	const header = 48
	last := -1
	for n := header; n <= len(whole); n++ {
		cut := disk.Clone()
		cut.Put(name, whole[:n])
		got, err := groupsOf(t, cut, journal.Options{ReserveBytes: -1})
		if err != nil {
			t.Fatalf("cut at byte %d of %d: %v", n, len(whole), err)
		}
		if len(got) < last || len(got) > last+1 && last >= 0 {
			t.Fatalf("cut at byte %d: %d groups after %d", n, len(got), last)
		}
		last = len(got)
		if d := cmp.Diff(want[:last], got, cmp.Transformer("", func(x [][]string) []string { return flat(x) })); d != "" {
			t.Fatalf("cut at byte %d: %s", n, d)
		}
	}
	if last != len(want) {
		t.Fatalf("the untouched file has %d groups, want %d", last, len(want))
	}
	for n := range header { // a header is synced before its file gets its name
		cut := disk.Clone()
		cut.Put(name, whole[:n])
		if _, err := groupsOf(t, cut, journal.Options{}); problem.CodeOf(err) != problem.JournalDamaged {
			t.Fatalf("header cut at byte %d: %v", n, err)
		}
	}
}

// A crash loses sectors of the last group in any combination: the groups before
// stay, the last is there whole or cut.
func TestLostSectorsOfTheLastGroup(t *testing.T) {
	for name, faults := range map[string][]faultfs.Fault{"allocated": nil, "not allocated": {noAllocate}} {
		t.Run(name, func(t *testing.T) {
			disk := &faultfs.FS{}
			for _, f := range faults {
				disk.Inject(f)
			}
			o := journal.Options{FS: disk, ReserveBytes: -1, SegmentBytes: 16 << 10}
			j := open(t, dir, o)
			wait(t, j.Append(event("first "+strings.Repeat("f", 300))))
			before := disk.Bytes(disk.Names(".seg")[0])
			wait(t, j.Append(event("last "+strings.Repeat("l", 3000))))
			seg := disk.Names(".seg")[0]
			after := disk.Bytes(seg)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			var sectors []int
			old := make([]byte, len(after))
			copy(old, before)
			for s := 0; s < len(after); s += faultfs.Page {
				e := min(s+faultfs.Page, len(after))
				if string(old[s:e]) != string(after[s:e]) {
					sectors = append(sectors, s)
				}
			}
			if len(sectors) < 6 {
				t.Fatalf("the last group touches %d sectors", len(sectors))
			}
			for set := range 1 << len(sectors) {
				b := append([]byte(nil), after...)
				for i, s := range sectors {
					if set&(1<<i) != 0 {
						copy(b[s:min(s+faultfs.Page, len(b))], old[s:])
					}
				}
				lost := disk.Clone()
				lost.Put(seg, b)
				got, err := groupsOf(t, lost, o)
				if err != nil {
					t.Fatalf("sectors %b lost: %v", set, err)
				}
				want := 1
				if set == 0 {
					want = 2
				}
				if len(got) != want || !strings.HasPrefix(got[0][0], "first") {
					t.Fatalf("sectors %b lost: %d groups, want %d", set, len(got), want)
				}
			}
		})
	}
}

// One flipped bit anywhere refuses to open, or changes nothing that anybody
// reads: it is never an acknowledged record less or another record.
func TestFlippedBit(t *testing.T) {
	layouts := map[string]struct {
		o      journal.Options
		faults []faultfs.Fault
	}{
		"one segment":       {o: journal.Options{ReserveBytes: -1}, faults: []faultfs.Fault{noAllocate}},
		"several segments":  {o: journal.Options{ReserveBytes: -1, SegmentBytes: 512}, faults: []faultfs.Fault{noAllocate}},
		"space behind them": {o: journal.Options{ReserveBytes: -1, SegmentBytes: 1 << 10}},
	}
	for name, c := range layouts {
		t.Run(name, func(t *testing.T) {
			disk, want := written(t, 5, c.o, c.faults...)
			refused, bits := 0, 0
			for _, seg := range disk.Names(".seg") {
				size := len(disk.Bytes(seg))
				step := 1
				if testing.Short() {
					step = 7
				}
				for bit := 0; bit < size*8; bit += step {
					bits++
					flipped := disk.Clone()
					flipped.Flip(seg, int64(bit))
					got, err := groupsOf(t, flipped, c.o)
					if err != nil {
						if problem.CodeOf(err) != problem.JournalDamaged || !strings.Contains(err.Error(), "at position ") {
							t.Fatalf("bit %d of %s: %v, want %s with its position", bit, seg, err, problem.JournalDamaged)
						}
						refused++
						continue
					}
					if d := cmp.Diff(flat(want), flat(got)); d != "" {
						t.Fatalf("bit %d of %s of %d bytes went unnoticed: %s", bit, seg, size, d)
					}
				}
			}
			if refused < bits/4 {
				t.Fatalf("%d of %d flips refused: the test does not reach the groups", refused, bits)
			}
		})
	}
}

// What is missing, doubled or put back from an old copy refuses.
func TestDamageRefuses(t *testing.T) {
	o := journal.Options{ReserveBytes: -1, SegmentBytes: 512}
	disk, _ := written(t, 12, o)
	segs := disk.Names(".seg")
	if len(segs) < 4 {
		t.Fatalf("%d segments", len(segs))
	}
	other, _ := written(t, 12, o)
	// Two futures of one journal: the same id, the same positions.
	short, pad := o, strings.Repeat("p", 2000)
	young, _ := written(t, 2, o)
	long, _ := written(t, 2, journal.Options{ReserveBytes: -1, SegmentBytes: 64 << 10})
	future := func(word string) *faultfs.FS {
		d := young.Clone()
		o := o
		o.FS, o.Seal = d, appendSeal
		j := open(t, dir, o)
		for i := range 10 {
			wait(t, j.Append(event(fmt.Sprintf("%d %s", i, word)), event("b")))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		return d
	}
	left, right := future("left "), future("right")
	o, young = journal.Options{ReserveBytes: -1, SegmentBytes: 64 << 10}, long
	longLeft, longRight := future("left "+pad), future("right"+pad)
	longSeg := longLeft.Names(".seg")[0]
	o = short
	cases := map[string]func(d *faultfs.FS){
		"a segment in the middle is gone": func(d *faultfs.FS) { d.Delete(segs[1]) },
		"a full segment lost its end":     func(d *faultfs.FS) { b := d.Bytes(segs[1]); d.Put(segs[1], b[:len(b)-8]) },
		"a full segment is empty":         func(d *faultfs.FS) { d.Put(segs[1], nil) },
		"a full segment grew":             func(d *faultfs.FS) { d.Put(segs[1], append(d.Bytes(segs[1]), make([]byte, 64)...)) },
		"a segment of another journal":    func(d *faultfs.FS) { d.Put(segs[1], other.Bytes(segs[1])) },
		"a segment of an old copy": func(d *faultfs.FS) {
			for _, name := range d.Names(".seg") {
				d.Delete(name)
			}
			names := left.Names(".seg")
			for _, name := range names {
				d.Put(name, left.Bytes(name))
			}
			name := names[len(names)-2]
			if len(right.Names(".seg")) != len(names) || right.Names(".seg")[len(names)-2] != name {
				t.Fatal("the two futures do not have the same segments")
			}
			d.Put(name, right.Bytes(name))
		},
		"a segment under another name":     func(d *faultfs.FS) { d.Put(segs[1], d.Bytes(segs[2])) },
		"zeros in a group before the last": func(d *faultfs.FS) { b := d.Bytes(segs[0]); clear(b[120:300]); d.Put(segs[0], b) },
		"a group of an old copy": func(d *faultfs.FS) {
			for _, name := range d.Names(".seg") {
				d.Delete(name)
			}
			a, b := longLeft.Bytes(longSeg), longRight.Bytes(longSeg)
			at := bytes.Index(a, []byte("1 left "))
			if at < 0 || at != bytes.Index(b, []byte("1 right")) {
				t.Fatal("the two futures do not have the same layout")
			}
			// The frame around it: header and record header before, its length known.
			from, to := at-48, bytes.Index(a, []byte("2 left "))-48
			copy(a[from:to], b[from:to])
			d.Put(longSeg, a)
		},
		"zeros in a group, then a whole group": func(d *faultfs.FS) {
			for _, name := range d.Names(".seg") {
				d.Delete(name)
			}
			b := longLeft.Bytes(longSeg)
			at := bytes.Index(b, []byte("1 left "))
			clear(b[(at/512+1)*512 : (at/512+2)*512])
			d.Put(longSeg, b)
		},
		"zeros, then a whole group": func(d *faultfs.FS) {
			// The header of the first group is lost, but a later group is there.
			one, _ := written(t, 3, journal.Options{ReserveBytes: -1})
			seg := one.Names(".seg")[0]
			b := one.Bytes(seg)
			clear(b[48 : 48+40])
			for _, s := range segs {
				d.Delete(s)
			}
			d.Put(seg, b)
		},
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			d := disk.Clone()
			damage(d)
			if _, err := journal.Open(dir, journal.Options{FS: d}); problem.CodeOf(err) != problem.JournalDamaged {
				t.Fatalf("%v, want %s", err, problem.JournalDamaged)
			}
		})
	}
}

// Damage before the newest snapshot does not stop a start, which reads nothing
// there, and is found by whoever reads it.
func TestDamageBeforeTheSnapshot(t *testing.T) {
	disk := &faultfs.FS{}
	o := journal.Options{FS: disk, ReserveBytes: -1, SegmentBytes: 512}
	j := open(t, dir, o)
	for i := range 20 {
		wait(t, j.Append(event(fmt.Sprint(i, strings.Repeat("x", 100)))))
	}
	pos := wait(t, j.Append(journal.Record{Kind: journal.KindSnapshot, Subject: "fold"}))
	wait(t, j.Append(event("after")))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	disk.Flip(disk.Names(".seg")[1], 8*150)
	j = open(t, dir, o)
	if recs, err := collect(j.Groups(pos)); err != nil || len(recs) != 2 {
		t.Fatalf("%d records from the snapshot on, %v", len(recs), err)
	}
	if _, err := collect(j.Groups(0)); problem.CodeOf(err) != problem.JournalDamaged {
		t.Fatalf("read over the damage: %v", err)
	}
}

// A failed write is sticky, readers stop at what is durable, and after a restart
// everything acknowledged is there.
func TestStickyFailure(t *testing.T) {
	eio := syscall.EIO
	cases := map[string]faultfs.Fault{
		"write EIO":               {Op: faultfs.Write, Err: eio},
		"half a write, then EIO":  {Op: faultfs.Write, Err: eio, Short: 60},
		"short write, no error":   {Op: faultfs.Write, Short: 60},
		"write EIO once":          {Op: faultfs.Write, Err: eio, Times: 1},
		"sync EIO":                {Op: faultfs.Sync, Err: eio},
		"sync EIO once":           {Op: faultfs.Sync, Err: eio, Times: 1},
		"new segment EIO":         {Op: faultfs.Create, Name: "next", Err: eio},
		"rename EIO":              {Op: faultfs.Rename, Err: eio},
		"folder sync EIO":         {Op: faultfs.SyncDir, Err: eio},
		"truncate EIO":            {Op: faultfs.Truncate, Err: eio},
		"allocate EIO":            {Op: faultfs.Allocate, Err: eio},
		"fill EIO":                {Op: faultfs.Fill, Err: eio},
		"write ENOSPC, allocated": {Op: faultfs.Write, Err: syscall.ENOSPC, Short: 10},
	}
	for name, fault := range cases {
		t.Run(name, func(t *testing.T) {
			disk := &faultfs.FS{}
			o := journal.Options{FS: disk, Seal: appendSeal, SegmentBytes: 2 << 10, ReserveBytes: -1}
			j := open(t, dir, o)
			var acked []string
			disk.Inject(func() faultfs.Fault { fault.After = 5; return fault }())
			var failed error
			for i := 0; failed == nil && i < 400; i++ {
				s := fmt.Sprintf("%d %s", i, strings.Repeat("x", 60))
				if _, failed = j.Append(event(s)).Wait(t.Context()); failed == nil {
					acked = append(acked, s)
				}
			}
			if problem.CodeOf(failed) != problem.JournalFailed {
				t.Fatalf("failure is %v, want %s", failed, problem.JournalFailed)
			}
			for range 3 { // also when the fault itself has passed
				if _, err := j.Append(event("later")).Wait(t.Context()); problem.CodeOf(err) != problem.JournalFailed {
					t.Fatalf("append after a failed write: %v", err)
				}
			}
			if err := j.AppendReserved(event("later")).Refused(); problem.CodeOf(err) != problem.JournalFailed {
				t.Fatalf("reserved append after a failed write: %v", err)
			}
			if problem.CodeOf(j.Err()) != problem.JournalFailed {
				t.Fatalf("Err is %v", j.Err())
			}
			events := func(recs []journal.Record) (out []string) {
				for _, r := range recs {
					if r.Kind == journal.KindEvent {
						out = append(out, string(r.Data))
					}
				}
				return out
			}
			recs, err := collect(j.Groups(0))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(acked, events(recs)); d != "" {
				t.Fatalf("readers see other than the durable records: %s", d)
			}
			recs, err = collect(j.Follow(t.Context(), 0))
			if d := cmp.Diff(acked, events(recs)); d != "" || problem.CodeOf(err) != problem.JournalFailed {
				t.Fatalf("follow ended with %v: %s", err, d)
			}
			_ = j.Close()
			disk.Heal()
			for i := range 20 {
				after := disk.Crash(rand.New(rand.NewPCG(1, uint64(i))))
				again, err := groupsOf(t, after, o)
				if err != nil {
					t.Fatalf("open after the failure: %v", err)
				}
				var got []string
				for _, g := range again {
					got = append(got, g[0])
				}
				if len(got) > len(acked)+1 || len(got) < len(acked) || cmp.Diff(acked, got[:len(acked)]) != "" {
					t.Fatalf("%d records after the restart, %d were acknowledged", len(got), len(acked))
				}
			}
		})
	}
}

// Zeros are written once for the groups of a mebibyte, not for each of them. That
// none of them covers a group is checked by the file layer.
func TestFilledOnce(t *testing.T) {
	disk := &faultfs.FS{}
	disk.Inject(faultfs.Fault{Op: faultfs.Fill, After: 1, Err: syscall.EIO})
	j := open(t, dir, journal.Options{FS: disk, ReserveBytes: -1})
	for range 100 {
		wait(t, j.Append(event(strings.Repeat("x", 10_000))))
	}
	if _, err := j.Append(event(strings.Repeat("x", 100_000))).Wait(t.Context()); problem.CodeOf(err) != problem.JournalFailed {
		t.Fatalf("a group past what was filled: %v, want the fault that a second fill meets", err)
	}
}

// RC-43: on a full disk nothing is lost, what ends things still passes, and when
// space returns everything passes again.
func TestDiskFull(t *testing.T) {
	for _, name := range []string{"RC-43_disk_full"} {
		t.Run(name, func(t *testing.T) {
			disk := &faultfs.FS{}
			o := journal.Options{FS: disk, SegmentBytes: 64 << 10, ReserveBytes: 32 << 10}
			j := open(t, dir, o)
			disk.SetCapacity(disk.Used() + 200<<10)
			var acked []string
			refused := error(nil)
			for i := 0; refused == nil && i < 10000; i++ {
				s := fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000))
				ticket := j.Append(event(s))
				if refused = ticket.Refused(); refused == nil {
					wait(t, ticket)
					acked = append(acked, s)
				}
			}
			if problem.CodeOf(refused) != problem.JournalFull || problem.CodeOf(j.Err()) != problem.JournalFull {
				t.Fatalf("on a full disk: %v, Err %v, want %s", refused, j.Err(), problem.JournalFull)
			}
			if len(acked) < 150 {
				t.Fatalf("only %d records before the disk was full", len(acked))
			}
			for i := range 10 {
				s := fmt.Sprintf("close %d", i)
				wait(t, j.AppendReserved(event(s)))
				acked = append(acked, s)
			}
			if err := j.Append(event("no")).Refused(); problem.CodeOf(err) != problem.JournalFull {
				t.Fatalf("still full: %v", err)
			}
			disk.SetCapacity(0)
			deadline := time.Now().Add(time.Minute)
			for {
				ticket := j.Append(event("again"))
				if ticket.Refused() == nil {
					wait(t, ticket)
					acked = append(acked, "again")
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("space returned, but %v", ticket.Refused())
				}
			}
			if err := j.Err(); err != nil {
				t.Fatal(err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := groupsOf(t, disk.Clone(), o)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(acked, flat(got)); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// RC-43: the disk fills while the queue is full. What was accepted before that was
// noticed is written into the reserve, whole, and the journal does not fail,
// also when somebody else takes every byte that comes free.
func TestDiskFullUnderLoad(t *testing.T) {
	for name, queue := range map[string]int{"the_default_queue": 0, "a_queue_larger_than_the_reserve": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			disk := &faultfs.FS{}
			release, entered := make(chan struct{}), make(chan struct{}, 10_000)
			o := journal.Options{FS: disk, SegmentBytes: 64 << 10, ReserveBytes: 256 << 10, QueueBytes: queue, MaxGroup: 8, Seal: func(g []journal.Record) ([]journal.Record, error) {
				entered <- struct{}{}
				<-release
				return appendSeal(g)
			}}
			j := open(t, dir, o)
			free := sync.OnceFunc(func() { close(release) })
			t.Cleanup(free)
			var mu sync.Mutex
			var tickets []journal.Ticket
			var writers sync.WaitGroup
			t.Cleanup(writers.Wait)
			first := j.Append(event("being written"))
			<-entered // from here on nothing is written: the queue grows to its bound
			const each = 64
			for w := range 16 {
				writers.Go(func() {
					for i := range each {
						ticket := j.Append(event(fmt.Sprintf("%d %d %s", w, i, strings.Repeat("x", 1000))))
						mu.Lock()
						tickets = append(tickets, ticket)
						mu.Unlock()
						if ticket.Refused() != nil {
							return
						}
					}
				})
			}
			deadline := time.Now().Add(time.Minute)
			for n, still := 0, 0; n < 100 || still < 20; time.Sleep(time.Millisecond) {
				mu.Lock()
				was := n
				n = len(tickets)
				mu.Unlock()
				if still++; n > was { // waiting longer only shows a bound that is too wide
					still = 0
				}
				if time.Now().After(deadline) {
					t.Fatalf("only %d appends were accepted", n)
				}
			}
			disk.SetCapacity(disk.Used()) // full: nothing but the reserve is left
			free()
			wait(t, first)
			writers.Wait()
			durable, refused := 0, 0
			for _, ticket := range tickets {
				switch _, err := ticket.Wait(t.Context()); {
				case err == nil:
					durable++
				case problem.CodeOf(err) == problem.JournalFull:
					refused++
				default:
					t.Fatalf("an append was accepted and then: %v", err)
				}
			}
			t.Logf("%d durable, %d refused", durable, refused)
			if refused == 0 {
				t.Error("the disk never filled")
			}
			if err := j.Err(); problem.CodeOf(err) != problem.JournalFull {
				t.Fatalf("Err is %v, want %s", err, problem.JournalFull)
			}
			for i := range 10 { // ends of what was begun
				wait(t, j.AppendReserved(event(fmt.Sprintf("close %d", i))))
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A crash on a full disk leaves the reserve to the next start.
func TestReserveSurvivesRestart(t *testing.T) {
	disk := &faultfs.FS{}
	o := journal.Options{FS: disk, SegmentBytes: 64 << 10, ReserveBytes: 64 << 10}
	j := open(t, dir, o)
	wait(t, j.Append(event("a")))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	disk = disk.Clone()
	disk.SetCapacity(disk.Used())
	o.FS = disk
	j = open(t, dir, o)
	disk.SetCapacity(disk.Used())
	wait(t, j.AppendReserved(event("close")))
	if _, ok := any(j.Err()).(*problem.Error); ok && problem.CodeOf(j.Err()) != problem.JournalFull {
		t.Fatal(j.Err())
	}
}

func TestReadOnly(t *testing.T) {
	disk, want := written(t, 3, journal.Options{})
	disk.SetReadOnly(true)
	if _, err := groupsOf(t, disk, journal.Options{}); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("open on a read-only disk: %v", err)
	}
	disk.SetReadOnly(false)
	j := open(t, dir, journal.Options{FS: disk, Seal: appendSeal})
	disk.SetReadOnly(true)
	if _, err := j.Append(event("x")).Wait(t.Context()); problem.CodeOf(err) != problem.JournalFailed {
		t.Fatalf("append on a read-only disk: %v", err)
	}
	recs, err := collect(j.Groups(0))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(flat(want), data(recs)); d != "" {
		t.Fatal(d)
	}
}

// Groups grow while the disk is busy, and one sync serves each of them.
func TestOneSyncPerGroup(t *testing.T) {
	disk := &faultfs.FS{}
	release := make(chan struct{})
	calls := 0
	j := open(t, dir, journal.Options{FS: disk, MaxGroup: 256, Seal: func(g []journal.Record) ([]journal.Record, error) {
		if calls++; calls == 1 {
			<-release
		}
		return g, nil
	}})
	before := disk.Syncs()
	first := j.Append(event("alone"))
	var rest []journal.Ticket
	for i := range 600 {
		rest = append(rest, j.Append(event(fmt.Sprint(i))))
	}
	close(release)
	wait(t, first)
	for _, ticket := range rest {
		wait(t, ticket)
	}
	var sizes []int
	for group, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(group))
	}
	// The first group holds what was queued when the writer woke: at least one.
	if total, n := sizes[0], len(sizes); total < 1 || n < 3 || n > 4 || sizes[1] != 256 && sizes[0] != 256 {
		t.Fatalf("groups of %v records", sizes)
	}
	if got := disk.Syncs() - before; got != len(sizes) {
		t.Fatalf("%d syncs for %d groups", got, len(sizes))
	}
}

// Append blocks while the queue is full and goes on when the disk caught up.
func TestBackPressure(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 100)
	j := open(t, dir, journal.Options{FS: &faultfs.FS{}, QueueBytes: 200, Seal: func(g []journal.Record) ([]journal.Record, error) {
		entered <- struct{}{}
		<-release
		return g, nil
	}})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // before Close, which waits for the writer
	var tickets []journal.Ticket
	tickets = append(tickets, j.Append(event("being written")))
	<-entered
	tickets = append(tickets, j.Append(event(strings.Repeat("q", 120))))
	blocked := make(chan journal.Ticket)
	// It would fit beside the one that waits, not beside both.
	go func() { blocked <- j.Append(event(strings.Repeat("w", 50))) }()
	select {
	case <-blocked:
		t.Fatal("an append passed a full queue")
	case <-time.After(20 * time.Millisecond): // may only fail to notice
	}
	free()
	tickets = append(tickets, <-blocked)
	for _, ticket := range tickets {
		wait(t, ticket)
	}
	wait(t, j.Append(event(strings.Repeat("q", 500)))) // an empty queue takes any size
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.Append(event("x")).Wait(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
