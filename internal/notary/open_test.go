package notary_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// TestOpenings discloses paths and refs to an auditor and nothing else.
func TestOpenings(t *testing.T) {
	n, _ := fresh(t)
	stored := map[receipts.Hash][]byte{}
	record := func(c *notary.Chain, seq uint64, path string) {
		a, d := get(t, c, seq, path)
		a.HTTP.Query = "token=canary"
		leaf, err := c.Recorder(doorObs).Decision(context.Background(), a, d, true)
		if err != nil {
			t.Fatal(err)
		}
		forwarded(c, leaf)
		if stored[leaf], err = a.Canonical(); err != nil {
			t.Fatal(err)
		}
	}
	one, two := n.open("s1"), n.open("s2")
	for i := range uint64(3) {
		record(one, i+1, fmt.Sprintf("/acme/%d.tgz", i))
	}
	record(two, 1, "/other/x")
	push := &enforcers.Action{
		ID: "s1-9", Session: "s1", Seq: 9, Kind: enforcers.GitPush, Generation: 1,
		Push: &enforcers.Push{Repository: "1", Path: "/acme/shop.git", Changed: []string{"a.go", "b.go"}, Commands: []enforcers.RefUpdate{{Ref: "refs/heads/fix", Old: "0", New: "1"}}},
	}
	_, d := get(t, one, 9, "/")
	leaf, err := one.Recorder(doorObs).Decision(context.Background(), push, d, true)
	if err != nil {
		t.Fatal(err)
	}
	forwarded(one, leaf)
	if stored[leaf], err = push.Canonical(); err != nil {
		t.Fatal(err)
	}
	closeChain(t, one, "completed")
	closeChain(t, two, "completed")

	for name, c := range map[string]struct {
		open     []notary.Disclosed
		has, not []string
	}{
		"nothing": {nil, nil, []string{"opening ", "/acme/1.tgz", "refs/heads/fix"}},
		"paths":   {[]notary.Disclosed{notary.Paths}, []string{"/acme/1.tgz", "/acme/shop.git", "a.go\nb.go"}, []string{"refs/heads/fix", "/other/x", "canary"}},
		"refs":    {[]notary.Disclosed{notary.Refs}, []string{"refs/heads/fix"}, []string{"/acme/1.tgz", "canary"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := n.export(notary.Filter{Sessions: []string{"s1"}, Open: c.open, Action: func(l receipts.Hash) []byte { return stored[l] }})
			want(t, n.verify(file, receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
			for _, s := range c.has {
				if !bytes.Contains(file, []byte(s)) {
					t.Errorf("the file does not hold %q", s)
				}
			}
			for _, s := range c.not {
				if bytes.Contains(file, []byte(s)) {
					t.Errorf("the file holds %q", s)
				}
			}
		})
	}

	// RC-32: what was stored beside the log and is not what was committed to is
	// left out.
	forged := func(l receipts.Hash) []byte {
		return []byte(strings.ReplaceAll(string(stored[l]), "/acme/1.tgz", "/acme/evil"))
	}
	file := n.export(notary.Filter{Sessions: []string{"s1"}, Open: []notary.Disclosed{notary.Paths}, Action: forged})
	want(t, n.verify(file, receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
	if bytes.Contains(file, []byte("evil")) || !bytes.Contains(file, []byte("/acme/0.tgz")) {
		t.Error("a value was disclosed that opens nothing")
	}
}
