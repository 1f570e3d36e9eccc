package publish_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/operations"
	"gatehouse/enforcers/operations/operationstest"
	"gatehouse/enforcers/operations/publish"
	"gatehouse/receipts"
)

const name = "package.publish.shop"

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// registry takes a version once.
type registry struct{ has map[string]string }

func (r *registry) answer(s operationstest.Seen) (int, string) {
	_, there := r.has[s.Target]
	switch {
	case s.Method == "HEAD" && there:
		return 200, ""
	case s.Method == "HEAD":
		return 404, ""
	case s.Method == "PUT" && !there:
		r.has[s.Target] = s.Body
		return 201, "canary"
	}
	return 409, "canary"
}

func TestPublish(t *testing.T) {
	good, other, changed := digest("package 1"), digest("package 2"), digest("package 3")
	files := map[string]string{good: "package 1", other: "package 2", changed: "what somebody put in its place"}
	r := &registry{has: map[string]string{}}
	o := &operationstest.Outside{Answer: r.answer}
	p := &publish.Package{Name: name, Summary: "Publishes shop.", Remote: o.Remote(t), Path: "/shop/{version}/shop.tgz",
		Approved: map[string]string{"1.0.0": good, "1.1.0": digest("never made"), "1.2.0": changed},
		File: func(d string) (io.ReadCloser, error) {
			if s, ok := files[d]; ok {
				return io.NopCloser(strings.NewReader(s)), nil
			}
			return nil, errors.New("no such file")
		}}
	op, err := p.Operation()
	if err != nil {
		t.Fatal(err)
	}
	call := func(version, d string) string { return fmt.Sprintf(`{"version":%q,"digest":%q}`, version, d) }
	d := operationstest.New(t, receipts.Hard, []string{name}, op)
	d.Run(t, o, []operationstest.Row{
		{Name: "unapproved_digest", Op: name, Key: "k1", Args: call("1.0.0", other), Status: 403, Code: publish.CodeUnapproved},
		{Name: "unapproved_version", Op: name, Key: "k1", Args: call("2.0.0", good), Status: 403, Code: publish.CodeUnapproved},
		{Name: "malformed_digest", Op: name, Key: "k1", Args: call("1.0.0", "latest"), Status: 400, Code: operations.CodeArguments},
		{Name: "names_a_registry", Op: name, Key: "k1", Args: `{"version":"1.0.0","digest":"` + good + `","registry":"https://evil.test"}`, Status: 400, Code: operations.CodeArguments},
		{Name: "approved", Op: name, Key: "k1", Args: call("1.0.0", good), Status: 200, Want: `"existed":false`, Left: 2},
		{Name: "replayed", Op: name, Key: "k1", Args: call("1.0.0", good), Status: 200, Want: `"existed":false`, Left: 2},
		{Name: "put_once", Op: name, Key: "k2", Args: call("1.0.0", good), Status: 200, Want: `"existed":true`, Left: 3},
	})
	if got := r.has["/shop/1.0.0/shop.tgz"]; got != "package 1" {
		t.Errorf("published %q", got)
	}
	more := operationstest.New(t, receipts.Hard, []string{name}, op)
	more.Run(t, o, []operationstest.Row{
		{Name: "not_there", Op: name, Key: "k1", Args: call("1.1.0", digest("never made")), Status: 502, Code: operations.CodeFailed, Left: 3},
		{Name: "changed_in_the_store", Op: name, Key: "k2", Args: call("1.2.0", changed), Status: 502, Code: operations.CodeFailed, Left: 3},
	})
	t.Run("over_limit", func(t *testing.T) {
		for _, key := range []string{"k3", "k4", "k5"} {
			more.Call(t, name, key, call("2.0.0", good))
		}
		if a := more.Call(t, name, "k6", call("1.0.0", good)); a.Code != operations.CodeLimit || len(o.Requests()) != 3 || more.Receipts.Last().Effect != enforcers.NotForwarded {
			t.Errorf("%s", a.Text)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			if a := operationstest.New(t, mode, nil, op).Call(t, name, "k", call("1.0.0", good)); a.Status != 403 || len(o.Requests()) != 3 {
				t.Errorf("%s: %s", mode, a.Text)
			}
		}
	})
}

func TestDeclaration(t *testing.T) {
	ok := hex.EncodeToString(bytes.Repeat([]byte{1}, 32))
	for what, p := range map[string]publish.Package{
		"no_version": {Path: "/shop/shop.tgz", Approved: map[string]string{"1": ok}}, "short_digest": {Path: "/{version}", Approved: map[string]string{"1": "ab"}},
		"dots": {Path: "/../{version}", Approved: map[string]string{"1": ok}}, "bad_version": {Path: "/{version}", Approved: map[string]string{"a/b": ok}},
	} {
		if _, err := p.Operation(); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// TestPublishAtOnce: two calls for one version, of whatever sessions, are one
// after the other: the second finds what the first put.
func TestPublishAtOnce(t *testing.T) {
	var mu sync.Mutex
	puts := 0
	there := false
	o := &operationstest.Outside{Answer: func(s operationstest.Seen) (int, string) {
		mu.Lock()
		had := there
		if s.Method == "PUT" {
			puts++
			there = true
		}
		mu.Unlock()
		if s.Method == "PUT" {
			return 201, ""
		}
		time.Sleep(50 * time.Millisecond) // as far away as a registry is
		if had {
			return 200, ""
		}
		return 404, ""
	}}
	p := &publish.Package{Name: name, Summary: "Publishes shop.", Remote: o.Remote(t), Path: "/shop/{version}/shop.tgz",
		Approved: map[string]string{"1.0.0": digest("package 1")},
		File:     func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("package 1")), nil }}
	op, err := p.Operation()
	if err != nil {
		t.Fatal(err)
	}
	args := fmt.Sprintf(`{"version":"1.0.0","digest":%q}`, digest("package 1"))
	var wg sync.WaitGroup
	for range 2 {
		d := operationstest.New(t, receipts.Hard, []string{name}, op)
		for _, key := range []string{"k1", "k2"} {
			wg.Go(func() { d.Call(t, name, key, args) })
		}
	}
	wg.Wait()
	if puts != 1 {
		t.Errorf("one version was put %d times", puts)
	}
}
