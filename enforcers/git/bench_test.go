//go:build linux

package git_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestBench prints the rows of docs/benchmarks.md about git: a push of 100 MB
// through the door and its inspection against the same push to a folder (goal: at
// most 2), and a clone of 200 MB through the door against one from the same server
// (goal: at most 1.15). Ratios are ours over base, in turns.
func TestBench(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	t.Run("push", benchPush)
	t.Run("clone", benchClone)
}

// compare runs ours and the base in turns, once without counting, and prints the
// medians of five as one JSON line.
func compare(t *testing.T, name string, ours, base func(i int) time.Duration) {
	t.Helper()
	var o, b []float64
	for i := range 6 {
		one, other := ours(i).Seconds(), base(i).Seconds()
		if i > 0 {
			o, b = append(o, one), append(b, other)
		}
	}
	slices.Sort(o)
	slices.Sort(b)
	line, err := json.Marshal(map[string]any{"name": name, "ours": o[2], "base": b[2], "ratio": o[2] / b[2], "unit": "s"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}

func took(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

func benchPush(t *testing.T) {
	w := newWorld(t)
	s := open(t, w, setup{push: pushBranches})
	dir := filepath.Join(t.TempDir(), "shop")
	s.must("", "clone", "-q", url+"acme/shop.git", dir)
	write(t, filepath.Join(dir, "large"), random(100<<20))
	s.must(dir, "add", "-A")
	s.must(dir, "commit", "-q", "-m", "large")
	compare(t, "git.push_100MB/native_local", func(i int) time.Duration {
		ref := fmt.Sprintf("refs/heads/gatehouse/b%d", i)
		d := took(func() { s.must(dir, "push", "-q", "origin", "HEAD:"+ref) })
		drop(t, w, ref)
		return d
	}, func(i int) time.Duration {
		ref := fmt.Sprintf("refs/heads/native/b%d", i)
		d := took(func() {
			s.must(dir, "-c", "protocol.file.allow=always", "push", "-q", w.bare("acme/shop"), "HEAD:"+ref)
		})
		drop(t, w, ref)
		return d
	})
}

// drop takes a branch and its objects away, so that each push brings them.
func drop(t *testing.T, w *world, ref string) {
	t.Helper()
	run(t, w.bare("acme/shop"), nil, "update-ref", "-d", ref)
	run(t, w.bare("acme/shop"), nil, "-c", "gc.reflogExpire=now", "prune", "--expire=now")
	run(t, w.bare("acme/shop"), nil, "repack", "-q", "-a", "-d", "--unpack-unreachable=now")
}

func benchClone(t *testing.T) {
	w := newWorld(t)
	work := t.TempDir()
	run(t, "", nil, "clone", "-q", w.bare("acme/shop"), work)
	for i := range 20 {
		write(t, filepath.Join(work, fmt.Sprintf("large%d", i)), random(10<<20))
	}
	run(t, work, nil, "add", "-A")
	run(t, work, nil, "commit", "-q", "-m", "large")
	run(t, work, nil, "push", "-q", "origin", "main")
	// As a host has it: otherwise most of either clone is the server compressing.
	run(t, w.bare("acme/shop"), nil, "repack", "-q", "-a", "-d")
	s := open(t, w, setup{})
	direct := w.Upstreams()["93.184.216.35:443"]
	to := filepath.Join(t.TempDir(), "clone")
	clone := func(from string, more ...string) func(int) time.Duration {
		return func(int) time.Duration {
			d := took(func() { s.must("", append(more, "clone", "-q", "--no-checkout", from, to)...) })
			if err := os.RemoveAll(to); err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	compare(t, "git.clone_200MB/direct", clone(url+"acme/shop.git"), clone("https://"+direct+"/acme/shop.git", "-c", "http.proxy=", "-c", "http.sslVerify=false"))
}
