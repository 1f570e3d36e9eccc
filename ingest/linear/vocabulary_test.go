package linear

import (
	"slices"
	"strings"
	"testing"

	"gatehouse/ingest/sourcetest"
)

// The page lists the same tables.
func TestDocs(t *testing.T) {
	known := kinds()
	var list []sourcetest.Kind
	for _, k := range known {
		facts, _, _, ok := Vocabulary(k.name)
		if ok && len(k.rows) > 0 {
			list = append(list, sourcetest.Kind{Name: k.name, Facts: facts, Table: k.table})
		}
	}
	slices.SortFunc(list, func(a, b sourcetest.Kind) int { return strings.Compare(a.Name, b.Name) })
	sourcetest.Docs(t, "../../docs/sources/linear.md", list, *update)
}
