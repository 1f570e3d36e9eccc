package door

import (
	"context"
	"testing"
)

// TestRoom: doors that take all they can get leave every other door its own
// places, and the process its descriptors.
func TestRoom(t *testing.T) {
	r := NewRoom(800) // 100 shared, 12 doors
	over, cancel := context.WithCancel(t.Context())
	cancel()
	fill := func() (leave []func()) {
		own := make(chan struct{}, ownConns)
		for {
			l := r.enter(over, own)
			if l == nil {
				return leave
			}
			leave = append(leave, l)
		}
	}
	var leaves []func()
	// A context that has ended is only one of the ready cases while there is
	// room: fill until nothing is left.
	for len(r.shared) < cap(r.shared) {
		leaves = append(leaves, fill()...)
	}
	late := make(chan struct{}, ownConns)
	for i := range ownConns {
		if r.enter(t.Context(), late) == nil {
			t.Fatalf("a late door's place %d is taken", i)
		}
	}
	if r.enter(over, late) != nil {
		t.Error("the doors together have more than the node gives")
	}
	for _, l := range leaves {
		l()
	}
	if l := r.enter(t.Context(), late); l == nil || len(r.shared) != 1 {
		t.Error("places were not given back")
	}

	var out []func()
	for range 12 {
		l, err := r.join()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	if _, err := r.join(); err == nil {
		t.Error("there is a door whose own places the node does not have")
	}
	out[0]()
	out[0]()
	if _, err := r.join(); err != nil {
		t.Errorf("a closed door's place is gone: %v", err)
	}
	if _, err := r.join(); err == nil {
		t.Error("a place was given back twice")
	}
}
