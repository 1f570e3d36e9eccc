package github

import (
	"testing"

	"gatehouse/ingest"
	"gatehouse/ingest/sourcetest"
)

// BenchmarkNormalize verifies, scans, normalizes and encodes a pull request of
// about 25 KB: the CPU side of a delivery (reference section 5.7: 400 us, three
// times the body in allocations).
func BenchmarkNormalize(b *testing.B) {
	s := source(b)
	p := read(b, "pull_request__labeled_with-organization.json")
	h := header(signatureHeader, "sha256="+mac(testKey, p.Raw), "Content-Type", "application/json",
		deliveryHeader, "72d3162e-cc78-11e3-81ab-4c9367dc0958", kindHeader, p.Kind)
	ep := ingest.Endpoint{Name: "main", Source: s}
	b.SetBytes(int64(len(p.Raw)))
	b.ReportAllocs()
	for b.Loop() {
		d, err := s.Verify(h, p.Raw)
		if err != nil {
			b.Fatal(err)
		}
		e, err := ep.Build(d, p.Raw, sourcetest.Received)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}
