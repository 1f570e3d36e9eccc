package netguard

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"go/format"
	"net/netip"
	"os"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write table.go from testdata/special.csv")

// TestTable keeps table.go equal to what testdata/special.csv says.
func TestTable(t *testing.T) {
	want := generate(t)
	if *update {
		if err := os.WriteFile("table.go", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("table.go is not what testdata/special.csv gives: run go test -run TestTable -update")
	}
}

type row struct {
	prefix           netip.Prefix
	class, name, rfc string
}

func rows(t *testing.T) []row {
	t.Helper()
	f, err := os.Open("testdata/special.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	r.FieldsPerRecord = 4
	records, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []row
	for _, rec := range records {
		p, err := netip.ParsePrefix(rec[0])
		if err != nil || p != p.Masked() {
			t.Fatalf("%q is not a masked prefix: %v", rec[0], err)
		}
		out = append(out, row{p, rec[1], rec[2], rec[3]})
	}
	slices.SortStableFunc(out, func(a, b row) int { return b.prefix.Bits() - a.prefix.Bits() })
	return out
}

func generate(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("// Code generated from testdata/special.csv by TestTable -update; DO NOT EDIT.\n\n")
	b.WriteString("package netguard\n\nimport \"net/netip\"\n\n")
	b.WriteString("var blocks = []block{\n")
	for _, r := range rows(t) {
		fmt.Fprintf(&b, "\t{netip.MustParsePrefix(%q), %q}, // %s (%s)\n", r.prefix, r.class, r.name, r.rfc)
	}
	b.WriteString("}\n")
	src, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return src
}
