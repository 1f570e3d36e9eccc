//go:build linux

package sandboxtest

import (
	"fmt"
	"slices"
	"strings"

	"gatehouse/gatekeeper/sandbox"
)

// lastCase is the highest id of the matrix: docs/sandbox.md.
const lastCase = 50

// Matrix puts cases under the ids of the matrix, one of each, in order: SB-01
// to SB-50, then what has no id there. An id is failed when one of its cases
// is, absent when all are; one that nobody judged is failed.
func Matrix(cases []sandbox.Case) []sandbox.Case {
	byID := map[string][]sandbox.Case{}
	var others []string
	for _, c := range cases {
		if byID[c.ID] == nil && !strings.HasPrefix(c.ID, "SB-") {
			others = append(others, c.ID)
		}
		byID[c.ID] = append(byID[c.ID], c)
	}
	var ids []string
	for n := 1; n <= lastCase; n++ {
		ids = append(ids, fmt.Sprintf("SB-%02d", n))
	}
	var out []sandbox.Case
	for _, id := range append(ids, others...) {
		out = append(out, merged(id, byID[id]))
	}
	return out
}

func merged(id string, cases []sandbox.Case) sandbox.Case {
	if len(cases) == 0 {
		return sandbox.Case{ID: id, Outcome: sandbox.Failed, Evidence: "not judged"}
	}
	m := sandbox.Case{ID: id, Outcome: sandbox.Absent, Proves: cases[0].Proves}
	var names, evidence []string
	for _, c := range cases {
		switch {
		case c.Outcome == sandbox.Failed, c.Outcome == "":
			m.Outcome = sandbox.Failed
		case c.Outcome == sandbox.Passed && m.Outcome != sandbox.Failed:
			m.Outcome = sandbox.Passed
		}
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
		evidence = append(evidence, c.Name+": "+c.Evidence)
	}
	m.Name, m.Evidence = strings.Join(names, "; "), strings.Join(evidence, "; ")
	return m
}
