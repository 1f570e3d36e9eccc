// Package storetest states what every secretstore.Store must do. It reads and
// writes the store it is given, and must never print a value.
package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/internal/secretstore"
)

// Run checks the contract. open returns the same store on every call within one
// test: what one handle sets another must find.
func Run(t *testing.T, open func(t *testing.T) secretstore.Store) {
	s := open(t)
	ctx := t.Context()
	if l, err := s.List(ctx); err != nil || len(l) != 0 {
		t.Fatalf("a new store lists %v, %v", l, err)
	}
	if _, err := s.Get(ctx, "a"); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("get of nothing: %v", err)
	}
	if err := s.Remove(ctx, "a"); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("remove of nothing: %v", err)
	}

	binary := []byte("line one\nline two\x00\xff \n")
	for _, v := range [][]byte{[]byte("first-value"), binary} {
		if err := s.Set(ctx, "b.key", secret.New(bytes.Clone(v))); err != nil {
			t.Fatal(err)
		}
		got, err := open(t).Get(ctx, "b.key")
		if err != nil || !bytes.Equal(got.Reveal(), v) {
			t.Errorf("a value came back changed: %v", err)
		}
	}
	if err := s.Set(ctx, "A", secret.FromString("x")); err != nil {
		t.Fatal(err)
	}
	l, err := s.List(ctx)
	if err != nil || len(l) != 2 || l[0].Name != "A" || l[1].Name != "b.key" || l[0].Set.IsZero() {
		t.Errorf("list: %v, %v", l, err)
	}

	canary := "canary-" + strings.Repeat("x", secretstore.MaxValue)
	for name, value := range map[string]string{"": "v", "../up": "v", "-a": "v", "a/b": "v", strings.Repeat("n", 65): "v", "empty": "", "big": canary} {
		err := s.Set(ctx, name, secret.FromString(value))
		if problem.CodeOf(err) != problem.Usage {
			t.Errorf("%.10q was accepted: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary-") {
			t.Error("an error repeats the value")
		}
	}

	if err := s.Remove(ctx, "A"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t).Get(ctx, "A"); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("a removed secret is still there: %v", err)
	}

	var wg sync.WaitGroup
	for i := range 8 {
		handle := open(t)
		wg.Go(func() {
			if err := handle.Set(ctx, fmt.Sprintf("many-%d", i), secret.FromString("v")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if l, err := s.List(ctx); err != nil || len(l) != 9 {
		t.Errorf("after eight writers at once: %d secrets, %v", len(l), err)
	}
}
