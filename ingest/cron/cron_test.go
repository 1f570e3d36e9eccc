package cron_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"gatehouse/ingest/cron"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t testing.TB, expr, zone string) *cron.Schedule {
	t.Helper()
	s, err := cron.Parse(expr, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t testing.TB, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// slots lists when a schedule runs in a span.
func slots(s *cron.Schedule, from, to time.Time) []string {
	var out []string
	for n := s.Next(from); !n.IsZero() && n.Before(to); n = s.Next(n) {
		out = append(out, n.Format(time.RFC3339))
	}
	return out
}

func TestNext(t *testing.T) {
	tests := map[string]struct {
		expr, zone, from, to string
		want                 []string
	}{
		"IN-28 spring gap": {"30 2 * * *", "America/New_York", "2026-03-07T00:00:00-05:00", "2026-03-10T00:00:00-04:00",
			[]string{"2026-03-07T02:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"}},
		"IN-28 weekly slot in the gap": {"0 2 * * 0", "America/New_York", "2026-03-02T00:00:00-05:00", "2026-03-16T00:00:00-04:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-15T02:00:00-04:00"}},
		"IN-28 autumn overlap": {"30 1 * * *", "America/New_York", "2026-10-31T00:00:00-04:00", "2026-11-03T00:00:00-05:00",
			[]string{"2026-10-31T01:30:00-04:00", "2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"}},
		"several slots in the gap are one": {"*/20 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", []string{"2026-03-29T03:00:00+02:00"}},
		"hourly over the gap": {"0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00+01:00", "2026-03-29T05:00:00+02:00",
			[]string{"2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},
		"half an hour of gap": {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", "2026-10-05T00:00:00+11:00", []string{"2026-10-04T02:30:00+11:00"}},
		"a day that was skipped": {"0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00-10:00", "2012-01-01T00:00:00+14:00",
			[]string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"}},
		"southern autumn":       {"30 2 * * *", "Australia/Sydney", "2026-04-04T12:00:00+11:00", "2026-04-06T00:00:00+10:00", []string{"2026-04-05T02:30:00+11:00"}},
		"leap day":              {"0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2033-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		"day of month or week":  {"0 0 13 * 5", "", "2026-11-01T00:00:00Z", "2026-11-21T00:00:00Z", []string{"2026-11-06T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"}},
		"descriptor":            {"@daily", "Asia/Kathmandu", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", []string{"2026-11-02T00:00:00+05:45"}},
		"second pass is no run": {"*/30 * * * *", "America/New_York", "2026-11-01T01:45:00-04:00", "2026-11-01T02:45:00-05:00", []string{"2026-11-01T02:00:00-05:00", "2026-11-01T02:30:00-05:00"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := slots(parse(t, tt.expr, tt.zone), at(t, tt.from), at(t, tt.to))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("runs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, in := range map[string][2]string{
		"IN-29 TZ without a blank":      {"TZ=X", ""},
		"IN-29 CRON_TZ without a blank": {"CRON_TZ=Europe/Berlin", ""},
		"IN-29 zone in the expression":  {"TZ=Europe/Berlin 0 3 * * *", ""},
		"IN-29 impossible date":         {"30 2 31 2 *", ""},
		"empty":                         {"", ""},
		"six fields":                    {"0 0 3 * * *", ""},
		"out of range":                  {"61 * * * *", ""},
		"interval":                      {"@every 5m", ""},
		"unknown zone":                  {"0 3 * * *", "Mars/Olympus"},
		"zone is a path":                {"0 3 * * *", "../../etc/passwd"},
		"Local":                         {"0 3 * * *", "Local"},
		"words":                         {"every day", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := cron.Parse(in[0], in[1]); s != nil || problem.CodeOf(err) != problem.ConfigInvalid {
				t.Errorf("parsed %q in %q: %v", in[0], in[1], err)
			}
		})
	}
}

// Slots rise strictly, none lies in the past, and the wall clock at each is what
// the expression says unless it is the first instant after a gap.
func TestNextProperties(t *testing.T) {
	zones := []string{"", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata", "Africa/Casablanca"}
	rapid.Check(t, func(t *rapid.T) {
		minute, hour := rapid.IntRange(0, 59).Draw(t, "minute"), rapid.IntRange(0, 23).Draw(t, "hour")
		s, err := cron.Parse(fmt.Sprintf("%d %d * * *", minute, hour), rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		from := time.Unix(rapid.Int64Range(1.2e9, 2.2e9).Draw(t, "from"), 0)
		for range 20 {
			next := s.Next(from)
			start, _ := next.ZoneBounds()
			if !next.After(from) || next.Sub(from) > 50*time.Hour || (next.Hour() != hour || next.Minute() != minute) && !next.Equal(start) {
				t.Fatalf("after %s comes %s", from.In(next.Location()), next)
			}
			from = next
		}
	})
}

// fakeClock moves when told.
type fakeClock struct {
	now    time.Time
	asked  chan time.Duration
	answer chan time.Time
}

func (c *fakeClock) Now() time.Time { return c.now }
func (c *fakeClock) After(d time.Duration) <-chan time.Time {
	c.asked <- d
	return c.answer
}

// node is one replica.
type node struct {
	t     *testing.T
	dir   string
	fs    journal.FS
	clock *fakeClock
	j     *journal.Journal
	stop  func()
}

func start(t *testing.T, n *node, now time.Time, known func(context.Context, string) (bool, error), jobs ...cron.Job) *node {
	t.Helper()
	if n == nil {
		n = &node{t: t, dir: t.TempDir()}
	}
	var err error
	if n.j, err = journal.Open(filepath.Join(n.dir, "journal"), journal.Options{FS: n.fs, SegmentBytes: 64 << 10, ReserveBytes: 16 << 10}); err != nil {
		t.Fatal(err)
	}
	n.clock = &fakeClock{now: now, asked: make(chan time.Duration), answer: make(chan time.Time)}
	ctx, cancel := context.WithCancel(context.Background())
	r, err := cron.New(ctx, cron.Options{Journal: n.j, Jobs: jobs, Clock: n.clock, Known: known})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-n.clock.asked
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := n.j.Close(); err != nil {
			t.Error(err)
		}
	}
	return n
}

// tick moves the clock and waits until the runner has looked at it.
func (n *node) tick(now time.Time) {
	n.clock.now = now
	n.clock.answer <- now
	<-n.clock.asked
}

func (n *node) records() map[string]string {
	n.t.Helper()
	out := map[string]string{}
	for group, err := range n.j.Groups(0) {
		if err != nil {
			n.t.Fatal(err)
		}
		for _, r := range group {
			if _, ok := out[r.Subject]; ok {
				n.t.Errorf("two events of one slot: %s", r.Data)
			}
			out[r.Subject] = string(r.Data)
		}
	}
	return out
}

func (n *node) events() []string {
	n.t.Helper()
	var out []string
	for _, data := range n.records() {
		e, err := event.Decode([]byte(data))
		if err != nil {
			n.t.Fatal(err)
		}
		if e.Trust != event.TrustOperator || e.OriginAt("/anything") != event.Operator || !event.Startable(e.Kind) || e.Facts["job"] != "audit" {
			n.t.Errorf("event %+v", e)
		}
		out = append(out, e.Facts["slot"]+" missed="+e.Facts["missed"])
	}
	slices.Sort(out)
	return out
}

// IN-30: replicas that fire one slot at once write the same subject and bytes.
func TestReplicas(t *testing.T) {
	job := cron.Job{Endpoint: "nightly", Schedule: parse(t, "0 3 * * *", "Europe/Berlin"), Facts: map[string]string{"job": "audit"}}
	now := at(t, "2026-11-20T02:59:30+01:00")
	stream := map[string]string{}
	for range 3 {
		n := start(t, nil, now, nil, job)
		n.tick(now.Add(45 * time.Second))
		n.tick(now.Add(50 * time.Second))
		records := n.records()
		if len(records) != 1 {
			t.Errorf("one replica wrote %d events", len(records))
		}
		for subject, data := range records {
			if was, ok := stream[subject]; ok && was != data {
				t.Errorf("IN-30: replicas differ:\n%s\n%s", was, data)
			}
		}
		maps.Copy(stream, records)
		if got := n.events(); !cmp.Equal(got, []string{"2026-11-20T03:00:00+01:00 missed=false"}) {
			t.Errorf("events %v", got)
		}
		n.stop()
	}
	if len(stream) != 1 {
		t.Errorf("IN-30: %d events of one slot", len(stream))
	}
}

// IN-30: what a restart makes up for.
func TestMissed(t *testing.T) {
	first := at(t, "2026-11-10T03:00:00Z")
	tests := map[string]struct {
		policy cron.Missed
		cap    int
		known  []string // slots another node stored
		want   []string // after ten days of nothing
	}{
		"default":        {"", 0, nil, nil},
		"skip":           {cron.MissedSkip, 0, nil, nil},
		"last":           {cron.MissedLast, 0, nil, []string{"2026-11-20T03:00:00Z missed=true"}},
		"all, capped":    {cron.MissedAll, 2, nil, []string{"2026-11-19T03:00:00Z missed=true", "2026-11-20T03:00:00Z missed=true"}},
		"known to other": {cron.MissedAll, 2, []string{"cron:nightly:2026-11-20T03:00:00Z"}, []string{"2026-11-19T03:00:00Z missed=true"}},
	}
	for name, tt := range tests {
		t.Run("IN-30 "+name, func(t *testing.T) {
			job := cron.Job{Endpoint: "nightly", Schedule: parse(t, "0 3 * * *", ""), Facts: map[string]string{"job": "audit"}, Missed: tt.policy, Cap: tt.cap}
			known := func(_ context.Context, subject string) (bool, error) {
				for _, id := range tt.known {
					e := event.Event{ID: id, Source: "cron", Endpoint: "nightly", Kind: "slot"}
					if e.Subject() == subject {
						return true, nil
					}
				}
				return false, nil
			}
			n := start(t, nil, first.Add(-time.Hour), known, job)
			n.tick(first)
			n.stop()
			n = start(t, n, first.Add(10*24*time.Hour+time.Hour), known, job)
			defer n.stop()
			want := append([]string{"2026-11-10T03:00:00Z missed=false"}, tt.want...)
			if diff := cmp.Diff(want, n.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			n.tick(first.Add(10*24*time.Hour + 2*time.Hour))
			if diff := cmp.Diff(want, n.events()); diff != "" {
				t.Errorf("an hour later (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a new schedule missed nothing", func(t *testing.T) {
		n := start(t, nil, first, nil, cron.Job{Endpoint: "nightly", Schedule: parse(t, "* * * * *", ""), Missed: cron.MissedAll, Facts: map[string]string{"job": "audit"}})
		defer n.stop()
		if got := n.events(); len(got) != 0 {
			t.Errorf("events %v", got)
		}
	})
}

// A full disk delays a slot and does not end the runner.
func TestDiskFull(t *testing.T) {
	fs := &faultfs.FS{}
	job := cron.Job{Endpoint: "often", Schedule: parse(t, "* * * * *", ""), Facts: map[string]string{"job": "audit"}, Missed: cron.MissedAll, Cap: 1000}
	now := at(t, "2026-11-20T00:00:00Z")
	n := start(t, &node{t: t, dir: t.TempDir(), fs: fs}, now, nil, job)
	defer func() { n.stop() }()
	fs.SetCapacity(fs.Used())
	minutes := 0
	for ; n.j.Err() == nil; minutes++ {
		if minutes > 2000 {
			t.Fatal("the disk never filled up")
		}
		now = now.Add(time.Minute)
		n.tick(now)
	}
	n.tick(now.Add(time.Second))
	fs.SetCapacity(0)
	deadline := time.Now().Add(20 * time.Second)
	for len(n.events()) < minutes {
		if time.Now().After(deadline) {
			t.Fatalf("%d events of %d slots", len(n.events()), minutes)
		}
		n.tick(now.Add(2 * time.Second))
	}
}

func TestNewRefuses(t *testing.T) {
	j, err := journal.Open(t.TempDir(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	s := parse(t, "0 3 * * *", "")
	for name, jobs := range map[string][]cron.Job{
		"policy":           {{Endpoint: "a", Schedule: s, Missed: "some"}},
		"name taken":       {{Endpoint: "a", Schedule: s}, {Endpoint: "a", Schedule: s}},
		"name":             {{Endpoint: "A b", Schedule: s}},
		"sentence as fact": {{Endpoint: "a", Schedule: s, Facts: map[string]string{"job": "audit all of it"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := cron.New(context.Background(), cron.Options{Journal: j, Jobs: jobs}); r != nil || problem.CodeOf(err) == problem.Internal {
				t.Errorf("made a runner: %v", err)
			}
		})
	}
}

// FuzzParse: no expression crashes the node, and what is accepted comes.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"0 3 * * *", "TZ=X", "CRON_TZ=", "30 2 31 2 *", "@every 1s", "@daily", "*/0 * * * *", "1-0 * * * *", "0 0 L * *", "0 0 * * 1#6", "? ? ? ? ?", "H * * * *", "\x00"} {
		f.Add(s, "Europe/Berlin")
	}
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expr, zone string) {
		s, err := cron.Parse(expr, zone)
		if err != nil {
			return
		}
		if next := s.Next(from); !next.IsZero() && !next.After(from) {
			t.Fatalf("after %s comes %s", from, next)
		}
	})
}
