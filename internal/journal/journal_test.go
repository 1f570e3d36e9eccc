package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string, o journal.Options) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func event(s string) journal.Record {
	return journal.Record{Kind: journal.KindEvent, Subject: "events", Data: []byte(s)}
}

func wait(t *testing.T, ticket journal.Ticket) uint64 {
	t.Helper()
	pos, err := ticket.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return pos
}

// collect returns every record of a loop, and the error that ended it.
func collect(groups iter.Seq2[[]journal.Record, error]) (recs []journal.Record, err error) {
	for group, err := range groups {
		if err != nil {
			return recs, err
		}
		recs = append(recs, group...)
	}
	return recs, nil
}

func data(recs []journal.Record) []string {
	out := make([]string, len(recs))
	for i, r := range recs {
		out[i] = string(r.Data)
	}
	return out
}

func TestAppendAndRead(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{})
	if pos := wait(t, j.Append(event("a"))); pos != 1 {
		t.Fatalf("first position is %d, want 1", pos)
	}
	if pos := wait(t, j.Append(event("b"), event("c"))); pos != 2 {
		t.Fatalf("position of an append is %d, want that of its first record, 2", pos)
	}
	recs, err := collect(j.Groups(0))
	if err != nil {
		t.Fatal(err)
	}
	want := []journal.Record{
		{Pos: 1, Kind: journal.KindEvent, Subject: "events", Data: []byte("a")},
		{Pos: 2, Kind: journal.KindEvent, Subject: "events", Data: []byte("b")},
		{Pos: 3, Kind: journal.KindEvent, Subject: "events", Data: []byte("c")},
	}
	if d := cmp.Diff(want, recs); d != "" {
		t.Fatal(d)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, journal.Options{})
	if recs, err = collect(again.Groups(2)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want[1:], recs); d != "" {
		t.Fatalf("after reopening, from position 2: %s", d)
	}
	if pos := wait(t, again.Append(event("d"))); pos != 4 || again.Next() != 5 {
		t.Fatalf("position after reopening is %d (next %d), want 4 (5)", pos, again.Next())
	}
}

// A group that holds the asked position comes whole, with its seal.
func TestGroupsAreWhole(t *testing.T) {
	j := open(t, t.TempDir(), journal.Options{Seal: appendSeal})
	wait(t, j.Append(event("a"), event("b"), event("c")))
	recs, err := collect(j.Groups(2))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a", "b", "c", "seal 1+3"}, data(recs)); d != "" {
		t.Fatal(d)
	}
}

// A loop over groups ends although each turn adds one.
func TestGroupsEnd(t *testing.T) {
	j := open(t, t.TempDir(), journal.Options{SegmentBytes: 512})
	for range 10 {
		wait(t, j.Append(event("before")))
	}
	turns := 0
	for group, err := range j.Groups(1) {
		if err != nil {
			t.Fatal(err)
		}
		if turns++; turns > 10 || string(group[0].Data) != "before" {
			t.Fatalf("turn %d yields %q", turns, group[0].Data)
		}
		wait(t, j.Append(event("during")))
	}
	if turns != 10 {
		t.Fatalf("%d groups, want 10", turns)
	}
	if recs, err := collect(j.Groups(j.Next() + 5)); err != nil || len(recs) != 0 {
		t.Fatalf("groups of the future: %v %v", recs, err)
	}
}

func appendSeal(group []journal.Record) ([]journal.Record, error) {
	s := fmt.Sprintf("seal %d+%d", group[0].Pos, len(group))
	return append(group, journal.Record{Kind: journal.KindSeal, Subject: "log", Data: []byte(s)}), nil
}

func TestSealHook(t *testing.T) {
	cases := map[string]struct {
		seal func([]journal.Record) ([]journal.Record, error)
		bad  bool
	}{
		"adds a record": {seal: appendSeal},
		"adds nothing":  {seal: func(g []journal.Record) ([]journal.Record, error) { return g, nil }},
		"fails":         {seal: func([]journal.Record) ([]journal.Record, error) { return nil, errors.New("no key") }, bad: true},
		"drops one":     {seal: func(g []journal.Record) ([]journal.Record, error) { return g[1:], nil }, bad: true},
		"changes one": {seal: func(g []journal.Record) ([]journal.Record, error) {
			c := append([]journal.Record(nil), g...)
			c[0].Subject = "other"
			return c, nil
		}, bad: true},
		"adds a bad kind": {seal: func(g []journal.Record) ([]journal.Record, error) {
			return append(g, journal.Record{Kind: 99}), nil
		}, bad: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			j := open(t, t.TempDir(), journal.Options{Seal: c.seal})
			_, err := j.Append(event("a")).Wait(t.Context())
			if c.bad != (problem.CodeOf(err) == problem.JournalFailed) || (!c.bad && err != nil) {
				t.Fatalf("Wait: %v, want failure %v", err, c.bad)
			}
			if recs, _ := collect(j.Groups(0)); c.bad && len(recs) > 0 {
				t.Fatalf("a group that could not be sealed is readable: %q", data(recs))
			}
			if _, err := j.Append(event("b")).Wait(t.Context()); c.bad != (err != nil) {
				t.Fatalf("append after the hook: %v", err)
			}
		})
	}
}

// What was appended is written as it was then, whatever becomes of the memory that
// it came in, and of the buffer that an earlier group was gathered in.
func TestAppendCopies(t *testing.T) {
	j := open(t, t.TempDir(), journal.Options{Seal: appendSeal, PrivateKey: make([]byte, 32)})
	text := func(w, i int) string {
		size := 10 + i*37%900
		if i%60 == 7 {
			size = 1<<20 + i // of a buffer that is not kept
		}
		return strings.Repeat(fmt.Sprintf("%d.%d ", w, i), size)[:size]
	}
	var g sync.WaitGroup
	for w := range 8 {
		g.Go(func() {
			var memory []byte
			for i := range 200 {
				kind := journal.KindEvent
				if i%3 == 0 {
					kind = journal.KindPrivate
				}
				memory = append(memory[:0], text(w, i)...)
				ticket := j.Append(journal.Record{Kind: kind, Subject: fmt.Sprintf("%d.%d", w, i), Data: memory})
				clear(memory)
				if i%5 > 0 { // the others gather
					continue
				}
				if _, err := ticket.Wait(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	g.Wait()
	wait(t, j.Append(event("last")))
	n := 0
	for group, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group {
			var w, i int
			if c, _ := fmt.Sscanf(r.Subject, "%d.%d", &w, &i); c < 2 {
				continue // a seal, the last
			}
			if n++; string(r.Data) != text(w, i) {
				t.Fatalf("record %s holds %.40q of %d bytes", r.Subject, r.Data, len(r.Data))
			}
		}
	}
	if n != 8*200 {
		t.Errorf("%d records", n)
	}
}

// A private record is encrypted whatever a hook makes of the group.
func TestPrivateStaysPrivate(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{PrivateKey: make([]byte, 32), Seal: func(g []journal.Record) ([]journal.Record, error) {
		g[0].Kind = journal.KindEvent
		return g, nil
	}})
	wait(t, j.Append(journal.Record{Kind: journal.KindPrivate, Subject: "s", Data: []byte("canary-of-a-private-record")}))
	files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil || bytes.Contains(b, []byte("canary")) {
		t.Errorf("the disk holds a private record in the clear (%v)", err)
	}
	recs, err := collect(j.Groups(0))
	if err != nil || len(recs) != 1 || string(recs[0].Data) != "canary-of-a-private-record" {
		t.Errorf("read %+v, %v", recs, err)
	}
}

// The Seal hook is told a record's mark; a reader is not.
func TestMark(t *testing.T) {
	var told []any
	j := open(t, t.TempDir(), journal.Options{Seal: func(g []journal.Record) ([]journal.Record, error) {
		for _, r := range g {
			told = append(told, r.Mark)
		}
		return g, nil
	}})
	a, b := event("a"), event("b")
	a.Mark = t
	if _, err := j.Append(a, b).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[0] != any(t) || told[1] != nil {
		t.Errorf("the hook was told %v", told)
	}
	recs, err := collect(j.Groups(0))
	if err != nil || len(recs) != 2 || recs[0].Mark != nil || recs[1].Mark != nil {
		t.Errorf("read %+v, %v", recs, err)
	}
}

func TestLimits(t *testing.T) {
	j := open(t, t.TempDir(), journal.Options{MaxGroup: 4})
	cases := map[string]struct {
		recs []journal.Record
		code problem.Code
	}{
		"nothing":         {nil, problem.JournalLimit},
		"too many":        {make([]journal.Record, 5), problem.JournalLimit},
		"no kind":         {[]journal.Record{{}}, problem.JournalLimit},
		"unknown kind":    {[]journal.Record{{Kind: 77}}, problem.JournalLimit},
		"long subject":    {[]journal.Record{{Kind: journal.KindEvent, Subject: strings.Repeat("s", 1025)}}, problem.JournalLimit},
		"large data":      {[]journal.Record{{Kind: journal.KindEvent, Data: make([]byte, 16<<20+1)}}, problem.JournalLimit},
		"large together":  {[]journal.Record{{Kind: 1, Data: make([]byte, 13<<20)}, {Kind: 1, Data: make([]byte, 13<<20)}}, problem.JournalLimit},
		"private, no key": {[]journal.Record{{Kind: journal.KindPrivate}}, problem.JournalKey},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ticket := j.Append(c.recs...)
			if got := problem.CodeOf(ticket.Refused()); got != c.code {
				t.Fatalf("code %q, want %q", got, c.code)
			}
			if _, err := ticket.Wait(t.Context()); problem.CodeOf(err) != c.code {
				t.Fatalf("Wait: %v", err)
			}
		})
	}
	wait(t, j.Append(journal.Record{Kind: journal.KindEvent, Subject: strings.Repeat("s", 1024), Data: make([]byte, 16<<20)}))
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{})
	if _, err := journal.Open(dir, journal.Options{}); problem.CodeOf(err) != problem.JournalLocked {
		t.Fatalf("second open: %v, want %s", err, problem.JournalLocked)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, journal.Options{})
}

func TestClosed(t *testing.T) {
	j := open(t, t.TempDir(), journal.Options{})
	ticket := j.Append(event("queued before close"))
	if err := errors.Join(j.Close(), j.Close()); err != nil {
		t.Fatal(err)
	}
	wait(t, ticket)
	if err := j.Append(event("b")).Refused(); problem.CodeOf(err) != problem.JournalClosed {
		t.Fatalf("append after close: %v", err)
	}
	if err := j.Err(); problem.CodeOf(err) != problem.JournalClosed {
		t.Fatalf("Err after close: %v", err)
	}
}

func TestPrivate(t *testing.T) {
	dir := t.TempDir()
	key := []byte(strings.Repeat("k", 32))
	const canary = "canary-3f1c-secret"
	j := open(t, dir, journal.Options{PrivateKey: key})
	wait(t, j.Append(event("public"), journal.Record{Kind: journal.KindPrivate, Subject: "tokens", Data: []byte(canary)}))
	check := func(t *testing.T, j *journal.Journal) {
		t.Helper()
		recs, err := collect(j.Groups(0))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"public", canary}, data(recs)); d != "" {
			t.Fatal(d)
		}
	}
	check(t, j)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), canary) {
			t.Fatalf("%s holds a private record in the clear", name)
		}
	}
	t.Run("same key", func(t *testing.T) {
		j := open(t, dir, journal.Options{PrivateKey: key})
		check(t, j)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("without a key", func(t *testing.T) {
		j := open(t, dir, journal.Options{})
		recs, err := collect(j.Groups(0))
		if err != nil || len(recs) != 2 || recs[1].Data != nil {
			t.Fatalf("%v %v", recs, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("another key", func(t *testing.T) {
		j := open(t, dir, journal.Options{PrivateKey: []byte(strings.Repeat("x", 32))})
		if _, err := collect(j.Groups(0)); problem.CodeOf(err) != problem.JournalKey {
			t.Fatalf("read with another key: %v", err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("short key", func(t *testing.T) {
		if _, err := journal.Open(dir, journal.Options{PrivateKey: key[:31]}); problem.CodeOf(err) != problem.JournalKey {
			t.Fatalf("open with a short key: %v", err)
		}
	})
}

func TestSegmentsTrimAndSnapshots(t *testing.T) {
	dir := t.TempDir()
	o := journal.Options{SegmentBytes: 4 << 10}
	j := open(t, dir, o)
	var want []string
	for i := range 200 {
		s := fmt.Sprintf("%03d %s", i, strings.Repeat("x", 100))
		r := event(s)
		if i%50 == 0 {
			r = journal.Record{Kind: journal.KindSnapshot, Subject: "fold", Data: []byte(s)}
		}
		want = append(want, s)
		wait(t, j.Append(r))
	}
	segments := func() int {
		names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	if n := segments(); n < 5 {
		t.Fatalf("%d segments, want several", n)
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = open(t, dir, o)
		}
		recs, err := collect(j.Groups(0))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, data(recs)); d != "" {
			t.Fatal(d)
		}
		for from := uint64(1); from <= 200; from++ {
			recs, err := collect(j.Groups(from))
			if err != nil || len(recs) == 0 || recs[0].Pos != from || len(recs) != 201-int(from) {
				t.Fatalf("from %d: %d records, %v", from, len(recs), err)
			}
		}
		if pos, ok := j.Snapshot("fold"); !ok || pos != 151 {
			t.Fatalf("snapshot at %d %v, want 151", pos, ok)
		}
		if _, ok := j.Snapshot("other"); ok {
			t.Fatal("a snapshot of another fold")
		}
	}
	before := segments()
	if err := j.Trim(151); err != nil {
		t.Fatal(err)
	}
	if n := segments(); n >= before {
		t.Fatalf("%d segments after trim, %d before", n, before)
	}
	if _, err := collect(j.Groups(1)); problem.CodeOf(err) != problem.JournalTrimmed {
		t.Fatalf("read of a trimmed position: %v", err)
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = open(t, dir, o)
		}
		recs, err := collect(j.Groups(151))
		if err != nil || len(recs) != 50 {
			t.Fatalf("%d records after trim, %v", len(recs), err)
		}
		if pos, ok := j.Snapshot("fold"); !ok || pos != 151 {
			t.Fatalf("snapshot at %d %v after trim, want 151", pos, ok)
		}
		all, err := collect(j.Groups(0))
		if err != nil || all[0].Pos > 151 {
			t.Fatalf("oldest record is %d, %v: trim took too much", all[0].Pos, err)
		}
	}
	if err := j.Trim(1 << 40); err != nil {
		t.Fatal(err)
	}
	wait(t, j.Append(event("the segment that is written stays")))
}

// Before goes by whole segments, oldest first, and never names the one that is
// written to.
func TestBefore(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{SegmentBytes: 2 << 10})
	for i := range 100 {
		wait(t, j.Append(event(fmt.Sprintf("%03d %s", i, strings.Repeat("x", 100)))))
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	first := func(i int) (pos uint64) {
		if _, err := fmt.Sscanf(filepath.Base(names[i]), "%x.seg", &pos); err != nil {
			t.Fatal(err)
		}
		return pos
	}
	now := time.Now()
	age := func(i int, d time.Duration) {
		if err := os.Chtimes(names[i], now, now.Add(-d)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range names {
		age(i, time.Hour)
	}
	age(0, 9*time.Hour)
	age(1, 8*time.Hour)
	age(3, 7*time.Hour) // older than the one before it: it stays with that one
	for name, c := range map[string]struct {
		age  time.Duration
		want uint64
	}{
		"none":            {10 * time.Hour, 0},
		"one":             {8*time.Hour + time.Minute, first(1)},
		"two":             {6 * time.Hour, first(2)},
		"all_but_the_end": {time.Minute, first(len(names) - 1)},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := j.Before(now.Add(-c.age)); err != nil || got != c.want {
				t.Errorf("before %v: %d, %v, want %d", c.age, got, err, c.want)
			}
		})
	}
}

func TestFollow(t *testing.T) {
	j := open(t, t.TempDir(), journal.Options{SegmentBytes: 2 << 10})
	const total = 300
	var g sync.WaitGroup
	g.Go(func() {
		for i := range total {
			if _, err := j.Append(event(fmt.Sprint(i))).Wait(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	for group, err := range j.Follow(ctx, 1) {
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group {
			if string(r.Data) != fmt.Sprint(n) || r.Pos != uint64(n+1) {
				t.Fatalf("record %d is %q at %d", n, r.Data, r.Pos)
			}
			n++
		}
		if n == total {
			cancel()
		}
	}
	g.Wait()
	if n != total {
		t.Fatalf("followed %d records, want %d", n, total)
	}
	g.Go(func() {
		last := error(nil)
		for _, err := range j.Follow(context.Background(), total+1) {
			last = err
		}
		if problem.CodeOf(last) != problem.JournalClosed {
			t.Errorf("follow of a closed journal ended with %v", last)
		}
	})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	g.Wait()
}

// Every caller's records stay in its order, whole appends stay together, and a
// wait that is given up does not disturb the others.
func TestManyWriters(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{Seal: appendSeal, SegmentBytes: 64 << 10, MaxGroup: 16, QueueBytes: 2 << 10})
	const writers, each = 32, 40
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	var g sync.WaitGroup
	for w := range writers {
		g.Go(func() {
			last := uint64(0)
			for i := range each {
				a, b := event(fmt.Sprintf("%d %d a", w, i)), event(fmt.Sprintf("%d %d b", w, i))
				ticket := j.Append(a, b)
				if i%7 == 0 {
					_, _ = ticket.Wait(cancelled)
				}
				pos, err := ticket.Wait(context.Background())
				if err != nil || pos <= last {
					t.Errorf("position %d after %d: %v", pos, last, err)
				}
				last = pos
			}
		})
	}
	g.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, journal.Options{})
	next := map[int]int{}
	for group, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		if len(group) > 17 || group[len(group)-1].Kind != journal.KindSeal {
			t.Fatalf("group of %d records ends with kind %d", len(group), group[len(group)-1].Kind)
		}
		for i := 0; i < len(group)-1; i += 2 {
			var w, n int
			if _, err := fmt.Sscanf(string(group[i].Data), "%d %d a", &w, &n); err != nil {
				t.Fatalf("%q: an append was torn apart", group[i].Data)
			}
			if string(group[i+1].Data) != fmt.Sprintf("%d %d b", w, n) || next[w] != n {
				t.Fatalf("%q then %q; writer %d should be at %d", group[i].Data, group[i+1].Data, w, next[w])
			}
			next[w]++
		}
	}
	for w := range writers {
		if next[w] != each {
			t.Fatalf("writer %d has %d appends, want %d", w, next[w], each)
		}
	}
}
