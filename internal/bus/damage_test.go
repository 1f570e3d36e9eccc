package bus_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
)

// blocks returns the block files of a stopped store's stream.
func blocks(t *testing.T, dir, stream string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".blk") && strings.Contains(p, "/"+stream+"/") {
			out = append(out, p)
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("no blocks of %s: %v", stream, err)
	}
	slices.Sort(out)
	return out
}

func flip(t *testing.T, file string, at int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x40
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTamperStore changes a stopped store. At the next start the pump must
// either refuse with store_damage (the journal is intact) or put right what it
// can; afterwards a store made again equals the journal. It never goes on with
// a stream that differs.
func TestTamperStore(t *testing.T) {
	find := func(t *testing.T, file, text string) int {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(b), text)
		if at < 0 {
			t.Fatalf("%q is not in the block", text)
		}
		return at
	}
	index := func(t *testing.T, dir string) {
		t.Helper()
		err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(p, "index.db") {
				return os.Remove(p)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]func(t *testing.T, dir, block string){
		"RC-35_payload_bit_first": func(t *testing.T, _, block string) {
			flip(t, block, find(t, block, "session 0 receipt 0"))
		},
		"RC-35_payload_bit_middle": func(t *testing.T, _, block string) {
			flip(t, block, find(t, block, "session 3 receipt 8")+3)
		},
		"RC-35_payload_bit_last": func(t *testing.T, _, block string) {
			flip(t, block, find(t, block, "session 6 receipt 27"))
		},
		"RC-35_subject_bit": func(t *testing.T, _, block string) {
			flip(t, block, find(t, block, "gatehouse.v1.sessions.S2")+23)
		},
		"RC-34_length_bit": func(t *testing.T, _, block string) {
			b, err := os.ReadFile(block)
			if err != nil {
				t.Fatal(err)
			}
			// The second record starts where the first one's length says.
			n := int(b[0]) | int(b[1])<<8
			flip(t, block, n)
		},
		"RC-34_length_bit_without_index": func(t *testing.T, dir, block string) {
			b, err := os.ReadFile(block)
			if err != nil {
				t.Fatal(err)
			}
			flip(t, block, int(b[0])|int(b[1])<<8)
			index(t, dir)
		},
		"truncated": func(t *testing.T, _, block string) {
			st, err := os.Stat(block)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(block, st.Size()*9/10); err != nil {
				t.Fatal(err)
			}
		},
		"truncated_without_index": func(t *testing.T, dir, block string) {
			st, err := os.Stat(block)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(block, st.Size()*9/10); err != nil {
				t.Fatal(err)
			}
			index(t, dir)
		},
		"block_gone": func(t *testing.T, dir, block string) {
			if err := os.Remove(block); err != nil {
				t.Fatal(err)
			}
			index(t, dir)
		},
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			dir, jdir := t.TempDir(), t.TempDir()
			j := openJournal(t, jdir)
			for i := range 14 {
				recs := []journal.Record{}
				for s := range 7 {
					recs = append(recs, receipt(s, 2*i), receipt(s, 2*i+1))
				}
				add(t, j, recs...)
			}
			b := open(t, bus.Options{Dir: dir})
			stop := pumping(t, b, j)
			stored(t, b, j)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			damage(t, dir, blocks(t, dir, bus.Sessions)[0])

			b = open(t, bus.Options{Dir: dir})
			add(t, j, receipt(1, 100)) // the node goes on
			want := end(t, j)
			stop = pumping(t, b, j)
			until(t, func() bool {
				s := b.Status()
				return s.Phase == bus.Stopped || s.Phase == bus.Pumping && s.Stored >= want
			})
			switch err := stop(); {
			case err == nil:
				t.Log("put right")
				same(t, b, j)
			case problem.CodeOf(err) != problem.StoreDamage || !errors.As(err, new(*bus.DamageError)):
				t.Fatalf("stopped with %v, want %s", err, problem.StoreDamage)
			default:
				t.Log("refused:", err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			b = open(t, bus.Options{Dir: dir})
			pumping(t, b, j)
			stored(t, b, j)
			same(t, b, j)
		})
	}
}

// TestGapInAStream: the stream lacks a record in the middle and counts right.
func TestGapInAStream(t *testing.T) {
	b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, t.TempDir())
	for i := range 4 {
		add(t, j, receipt(1, i))
	}
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	for g := range j.Groups(0) {
		msgs, _ := encode(g)
		for _, m := range msgs {
			if string(m.Data) == "session 1 receipt 1" || string(m.Data) == "session 1 receipt 2" {
				continue
			}
			nm := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
			for k, v := range m.Header {
				nm.Header.Set(k, v)
			}
			if _, err := js.PublishMsg(context60(t), nm); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = stopsWith(t, b, pumping(t, b, j))
	var d *bus.DamageError
	if !errors.As(err, &d) || d.Subject != sessionSubject(1) || d.Lost != 2 || problem.CodeOf(err) != problem.StoreDamage {
		t.Fatalf("got %v", err)
	}
}

// TestTrimmedJournal: the streams may hold what the journal let go.
func TestTrimmedJournal(t *testing.T) {
	j, err := journal.Open(t.TempDir(), journal.Options{SegmentBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	b := open(t, bus.Options{Dir: t.TempDir()})
	stop := pumping(t, b, j)
	control := func(s string) journal.Record {
		return journal.Record{Kind: journal.KindReceipt, Subject: "gatehouse.v1.control.n1", Data: []byte(s)}
	}
	add(t, j, control("first"))
	for i := range 400 {
		add(t, j, receipt(i%5, i/5), event(fmt.Sprint(i), fmt.Sprint("event ", i)))
	}
	stored(t, b, j)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	before := wanted(t, j)
	if len(before["gatehouse.v1.control.n1"]) != 1 {
		t.Fatal("no control record that goes")
	}
	if err := j.Trim(b.Status().Stored); err != nil {
		t.Fatal(err)
	}
	if len(wanted(t, j)) == len(before) {
		t.Fatal("nothing was trimmed")
	}
	add(t, j, receipt(0, 80), receipt(9, 0))
	stop = pumping(t, b, j)
	stored(t, b, j)
	got := contents(t, b, bus.Sessions)
	want := append(before[sessionSubject(0)], "session 0 receipt 80")
	if !slices.Equal(got[sessionSubject(0)], want) || len(got[sessionSubject(9)]) != 1 {
		t.Fatalf("got %q", got)
	}
	// The node's own chain goes on, though the journal holds nothing of it any more.
	add(t, j, control("second"))
	stored(t, b, j)
	if got := contents(t, b, bus.Log)["gatehouse.v1.control.n1"]; !slices.Equal(got, []string{"first", "second"}) {
		t.Fatalf("control chain %q", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// A foreign record at the end is still seen.
	intrude(t, b, sessionSubject(0), "forged")
	if err := stopsWith(t, b, pumping(t, b, j)); problem.CodeOf(err) != problem.StreamFenced {
		t.Fatalf("got %v", err)
	}
}
