package notary_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// A chain's receipt is sealed as the chain wrote it, on its subject, once, and by
// its own notary.
func TestSealsOnlyFlights(t *testing.T) {
	other, _ := fresh(t)
	for name, c := range map[string]struct {
		change func(group []journal.Record) []journal.Record
		by     *notary.Notary
	}{
		"other bytes": {change: func(g []journal.Record) []journal.Record {
			g[1].Data = append(g[1].Data[:len(g[1].Data):len(g[1].Data)], ' ')
			return g
		}},
		"another subject": {change: func(g []journal.Record) []journal.Record { g[1].Subject += "2"; return g }},
		"no mark":         {change: func(g []journal.Record) []journal.Record { g[1].Mark = nil; return g }},
		"twice":           {change: func(g []journal.Record) []journal.Record { return append(g, g[1]) }},
		"another notary":  {by: other.Notary},
		"nothing changed": {},
	} {
		t.Run(name, func(t *testing.T) {
			n := notary.New(notary.Options{Node: "node-1", Keys: testKeys()})
			var sealed error
			seal := func(group []journal.Record) (all []journal.Record, err error) {
				if len(group) < 2 || group[1].Subject != "gatehouse.v1.sessions.S1" {
					return n.Seal(group) // of Start
				}
				if c.change != nil {
					group = c.change(slices.Clone(group))
				}
				all, sealed = cmp.Or(c.by, n).Seal(group)
				return all, sealed
			}
			j, err := journal.Open("journal", journal.Options{Seal: seal, PrivateKey: testKeys().NodeKey().Reveal(), FS: &faultfs.FS{}})
			if err == nil {
				defer j.Close() //nolint:errcheck // it has failed
				err = n.Start(t.Context(), j)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = n.Open(t.Context(), "S1", receipts.Open{State: "admitted"}, keeperObs)
			if name == "nothing changed" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if problem.CodeOf(err) != problem.JournalFailed || sealed == nil || !strings.Contains(sealed.Error(), "that no chain made") {
				t.Errorf("opened: %v; sealed: %v", err, sealed)
			}
		})
	}
}
