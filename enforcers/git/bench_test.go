//go:build linux

package git_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkPush compares pushing 100 MB through the door and its inspection with
// pushing the same to a folder, interleaved. The goal is at most 2x.
func BenchmarkPush(b *testing.B) {
	w := newWorld(b)
	s := open(b, w, setup{push: pushBranches})
	dir := filepath.Join(b.TempDir(), "shop")
	s.must("", "clone", "-q", url+"acme/shop.git", dir)
	write(b, filepath.Join(dir, "large"), random(100<<20))
	s.must(dir, "add", "-A")
	s.must(dir, "commit", "-q", "-m", "large")
	var through, native time.Duration
	n := 0
	for b.Loop() {
		n++
		began := time.Now()
		s.must(dir, "push", "-q", "origin", fmt.Sprintf("HEAD:refs/heads/gatehouse/b%d", n))
		through += time.Since(began)
		drop(b, w, fmt.Sprintf("refs/heads/gatehouse/b%d", n))
		began = time.Now()
		s.must(dir, "-c", "protocol.file.allow=always", "push", "-q", w.bare("acme/shop"), fmt.Sprintf("HEAD:refs/heads/native/b%d", n))
		native += time.Since(began)
		drop(b, w, fmt.Sprintf("refs/heads/native/b%d", n))
	}
	b.ReportMetric(float64(through)/float64(native), "x-native")
	b.ReportMetric(through.Seconds()/float64(n), "s/push")
}

// drop takes a branch and its objects away, so that each push brings them.
func drop(b *testing.B, w *world, ref string) {
	b.Helper()
	run(b, w.bare("acme/shop"), nil, "update-ref", "-d", ref)
	run(b, w.bare("acme/shop"), nil, "-c", "gc.reflogExpire=now", "prune", "--expire=now")
	run(b, w.bare("acme/shop"), nil, "repack", "-q", "-a", "-d", "--unpack-unreachable=now")
}

// BenchmarkClone compares cloning 200 MB through the door with cloning it from
// the same server directly. The goal is at most 1.15x.
func BenchmarkClone(b *testing.B) {
	w := newWorld(b)
	work := b.TempDir()
	run(b, "", nil, "clone", "-q", w.bare("acme/shop"), work)
	for i := range 20 {
		write(b, filepath.Join(work, fmt.Sprintf("large%d", i)), random(10<<20))
	}
	run(b, work, nil, "add", "-A")
	run(b, work, nil, "commit", "-q", "-m", "large")
	run(b, work, nil, "push", "-q", "origin", "main")
	s := open(b, w, setup{})
	direct := w.Upstreams()["93.184.216.35:443"]
	dir := b.TempDir()
	var through, plain time.Duration
	for i := 0; b.Loop(); i++ {
		to := filepath.Join(dir, fmt.Sprint(i))
		began := time.Now()
		s.must("", "clone", "-q", "--no-checkout", url+"acme/shop.git", to)
		through += time.Since(began)
		_ = os.RemoveAll(to)
		began = time.Now()
		s.must("", "-c", "http.proxy=", "-c", "http.sslVerify=false",
			"clone", "-q", "--no-checkout", "https://"+direct+"/acme/shop.git", to)
		plain += time.Since(began)
		_ = os.RemoveAll(to)
	}
	b.ReportMetric(float64(through)/float64(plain), "x-direct")
}
