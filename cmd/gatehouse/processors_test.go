package main

import (
	"runtime"
	"testing"
)

func TestSpareProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for name, tc := range map[string]struct {
		set   string
		spare int
	}{"unset": {"", 1}, "set by the operator": {"7", 0}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", tc.set)
			runtime.GOMAXPROCS(before)
			if spareProcessor(); runtime.GOMAXPROCS(0) != before+tc.spare {
				t.Errorf("%d places in the scheduler, want %d", runtime.GOMAXPROCS(0), before+tc.spare)
			}
		})
	}
}
