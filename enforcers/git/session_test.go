//go:build linux

package git_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/enforcers/git"
)

// TestSeventyMinutes: a session that outlives its tokens goes on fetching and
// pushing, and every request carries one that lives.
func TestSeventyMinutes(t *testing.T) {
	w := newWorld(t)
	i := newIssuer()
	c := credentials(t, i)
	c.Open("s-1", git.Repository{ID: shopID, Name: "acme/shop"}, nil)
	s := open(t, w, setup{push: pushBranches, real: c})
	dir := filepath.Join(t.TempDir(), "shop")
	basic := func(n int) string {
		return "Basic " + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "x-access-token:ghs_token%04d", n))
	}
	// used returns the tokens that the host has seen since the last time.
	used := func() map[string]bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		seen := map[string]bool{}
		for auth := range w.auth {
			seen[auth] = true
		}
		clear(w.auth)
		return seen
	}
	work := func(branch string) {
		t.Helper()
		s.must(dir, "fetch", "-q")
		s.commit(dir, branch, "x\n")
		s.must(dir, "push", "-q", "origin", "HEAD:refs/heads/gatehouse/"+branch)
	}
	later := func(d time.Duration) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.now = i.now.Add(d)
	}
	s.must("", "clone", "-q", url+"acme/shop.git", dir)
	work("early")
	later(54 * time.Minute)
	work("late")
	first := used()
	later(16 * time.Minute)
	work("seventy")
	second := used()
	if diff := cmp.Diff(map[string]bool{basic(1): true, basic(2): true}, first); diff != "" {
		t.Errorf("in the first hour (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{basic(3): true, basic(4): true}, second); diff != "" {
		t.Errorf("after seventy minutes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1001 read", "1001 write", "1001 read", "1001 write"}, i.asked); diff != "" {
		t.Errorf("minted (-want +got):\n%s", diff)
	}
	s.stop()
	if err := c.End(t.Context(), "s-1"); err != nil {
		t.Fatal(err)
	}
	for v := range maps.Keys(i.live) {
		if v == "ghs_token0003" || v == "ghs_token0004" {
			t.Errorf("%s lives after the end", v)
		}
	}
}
