package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// TestBenchEnds measures how long a stream from outside outlives its session,
// for every end of every provider, and prints the median and the longest beside
// what is promised: a second.
func TestBenchEnds(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	const rounds, promised = 10, time.Second
	for _, provider := range []string{"local", "oci", "remote"} {
		t.Run(provider, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Skipped() {
					fmt.Printf("BENCH SKIPS session.cut.%s: it needs podman and root\n", provider)
				}
			})
			e := newEnds(t, provider)
			e.start()
			took := map[string][]time.Duration{}
			all := endings(provider)
			number := 0
			run := func(c ending) time.Duration {
				number++
				return e.run(number, c)
			}
			for range rounds {
				// Three failures in a row would pause a bundle.
				run(ending{"reset", goes, dismiss, "no_effect"})
				run(ending{"reset", early, dismiss, "no_effect"})
				for _, c := range all {
					took[c.name] = append(took[c.name], max(0, run(c)))
				}
			}
			for _, c := range all {
				slices.Sort(took[c.name])
				for name, d := range map[string]time.Duration{"p50": took[c.name][rounds/2], "max": took[c.name][rounds-1]} {
					ours, goal := float64(d.Microseconds())/1e3, float64(promised.Milliseconds())
					line, err := json.Marshal(map[string]any{"name": fmt.Sprintf("session.cut.%s.%s_%s/goal", provider, c.name, name), "ours": ours, "base": goal, "ratio": ours / goal, "unit": "ms"})
					if err != nil {
						t.Fatal(err)
					}
					fmt.Println(string(line))
				}
			}
		})
	}
}
