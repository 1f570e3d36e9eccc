//go:build linux

package local_test

import (
	"net"
	"strings"
	"testing"

	"gatehouse/gatekeeper/sandbox"
)

// Expect and Saw make fakeDoor a witness.
func (d *fakeDoor) Expect(targets []string) {}
func (d *fakeDoor) Saw(target string) bool  { return d.saw(target) }

func probe(t *testing.T, s sandbox.Spec, door net.Listener) sandbox.Report {
	t.Helper()
	p, _ := provider(t)
	s.Argv = []string{"/bin/true"}
	b := start(t, p, s, door)
	report, err := b.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := finish(t, b); r.Exit != 0 {
		t.Errorf("after the probe: %+v\n%s", r.End, r.out)
	}
	return report
}

func judge(t *testing.T, r sandbox.Report) {
	t.Helper()
	for _, c := range r.Cases {
		name := c.ID + "_" + strings.ReplaceAll(c.Name, " ", "_")
		t.Run(name, func(t *testing.T) {
			if c.Outcome == sandbox.Failed {
				t.Errorf("%s", c.Evidence)
			} else {
				t.Logf("%s: %s", c.Outcome, c.Evidence)
			}
		})
	}
}

func TestProbeWithDoor(t *testing.T) {
	d := openDoor(t, refuse)
	judge(t, probe(t, sandbox.Spec{Witness: d, Canaries: []string{"canary-planted-nowhere-inside"}}, d))
}

func TestProbeWithoutDoor(t *testing.T) { judge(t, probe(t, sandbox.Spec{}, nil)) }
