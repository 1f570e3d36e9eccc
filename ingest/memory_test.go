package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gatehouse/internal/problem"
)

// Whatever bodies do, the account adds up: what is free and what is held is the
// memory there is, nothing is negative, and the shared part is out of reach of
// an endpoint that owes too much.
func TestMemoryAccount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		m := newMemory(1000, func() time.Time { return now })
		pools := []*pool{{reserve: 300}, {reserve: 300}}
		var holds []*hold
		total := func() (sum int64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			sum = m.shared
			for _, p := range pools {
				if p.reserve < 0 {
					t.Fatalf("reserve %d", p.reserve)
				}
				sum += p.reserve
			}
			for h := range m.holds {
				if h.own < 0 || h.common < 0 {
					t.Fatalf("held %d and %d", h.own, h.common)
				}
				sum += h.own + h.common
			}
			if m.shared < 0 {
				t.Fatalf("shared %d", m.shared)
			}
			return sum
		}
		gone, cancel := context.WithCancel(context.Background())
		cancel() // nobody waits in this test
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				holds = append(holds, m.open(pools[rapid.IntRange(0, 1).Draw(t, "pool")], func() {}))
			},
			"charge": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip()
				}
				h, n := holds[rapid.IntRange(0, len(holds)-1).Draw(t, "hold")], rapid.Int64Range(1, 900).Draw(t, "n")
				own, common := h.own, h.common
				err := h.charge(gone, n)
				if err != nil && (problem.CodeOf(err) != problem.Busy || h.own != own || h.common != common) {
					t.Fatalf("refused with %v and still charged", err)
				}
				if err == nil && h.common > common && h.p.debt > debtLimit {
					t.Fatal("an endpoint in debt took shared memory")
				}
			},
			"give": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip()
				}
				h := holds[rapid.IntRange(0, len(holds)-1).Draw(t, "hold")]
				if held := h.own + h.common; held > 0 {
					h.give(rapid.Int64Range(1, held).Draw(t, "n"))
				}
			},
			"close": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(holds)-1).Draw(t, "hold")
				holds[i].close()
				holds = append(holds[:i], holds[i+1:]...)
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond)
			},
			"unverified": func(t *rapid.T) {
				m.unverified(pools[rapid.IntRange(0, 1).Draw(t, "pool")], rapid.IntRange(0, 40<<20).Draw(t, "bytes"))
			},
			"": func(t *rapid.T) {
				if sum := total(); sum != 1600 {
					t.Fatalf("the account holds %d, want 1600", sum)
				}
			},
		})
	})
}

// Strangers at one endpoint do not take what the others share, and are forgiven.
func TestUnverifiedBytes(t *testing.T) {
	now := time.Unix(0, 0)
	m := newMemory(1000, func() time.Time { return now })
	p := &pool{reserve: 100}
	m.unverified(p, debtLimit+1)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	h := m.open(p, func() {})
	if err := h.charge(gone, 101); problem.CodeOf(err) != problem.Busy {
		t.Errorf("an endpoint in debt took shared memory: %v", err)
	}
	if err := h.charge(gone, 100); err != nil {
		t.Errorf("an endpoint in debt lost its own reserve: %v", err)
	}
	now = now.Add(time.Second)
	if err := h.charge(gone, 1); err != nil {
		t.Errorf("the debt is never forgotten: %v", err)
	}
}

// The window forgets: an id older than it is a new delivery.
func TestDedupeWindow(t *testing.T) {
	x := newDedupe(24*time.Hour, true)
	at := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for i := range 100 {
		name := fmt.Sprintf("github:main:%d", i)
		x.add(name, keys{id: digestOf(name), body: digestOf(name + " body"), same: digestOf(name + " same")}, at.Add(time.Duration(i)*time.Hour))
	}
	for i := range 100 {
		name := fmt.Sprintf("github:main:%d", i)
		age := 99 - i
		k := x.ask(keys{id: digestOf(name), body: digestOf(name + " body")})
		switch {
		case age <= 24 && (!k.seen || k.first != name):
			t.Errorf("forgot a delivery of %d h ago", age)
		case age > 24+2*24/generations && k.seen:
			t.Errorf("remembers a delivery of %d h ago", age)
		}
		if other := x.ask(keys{id: digestOf(name), body: digestOf("other")}); k.seen && !other.conflict {
			t.Errorf("the id of %d h ago with another body is no conflict", age)
		}
		if other := x.ask(keys{id: digestOf("new"), body: digestOf(name + " body")}); k.seen && (!other.seen || other.first != name) {
			t.Errorf("the body of %d h ago under a new id is no duplicate", age)
		}
		if other := x.ask(keys{id: digestOf("new"), body: digestOf("new"), same: digestOf(name + " same")}); k.seen && (!other.seen || other.first != name) {
			t.Errorf("what was said %d h ago in another body is no duplicate", age)
		}
	}
}

// BenchmarkDedupe looks up in an index of 10 million keys, ids and bodies
// together: IN-34 allows 20 us.
func BenchmarkDedupe(b *testing.B) {
	const events = 5_000_000
	x := newDedupe(7*24*time.Hour, true)
	key := func(i uint64) (d digest) {
		binary.LittleEndian.PutUint64(d[:], i*0x9e3779b97f4a7c15)
		binary.LittleEndian.PutUint64(d[8:], i)
		return d
	}
	at := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for i := range uint64(events) {
		x.add("github:main:72d3162e-cc78-11e3-81ab-4c9367dc0958", keys{id: key(2 * i), body: key(2*i + 1)}, at.Add(time.Duration(i)*100*time.Millisecond))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := uint64(0); b.Loop(); i++ {
		x.ask(keys{id: key(2 * (i % events)), body: key(2*(i%events) + 3)})
		x.ask(keys{id: key(3*events + i), body: key(4*events + i)})
	}
}
