package bundle_test

import (
	"os"
	"testing"

	"gatehouse/gatekeeper/bundle"
)

const sampleFile = "../../examples/bundles/fix-failing-ci.yaml"

func sample(t testing.TB) []byte {
	t.Helper()
	src, err := os.ReadFile(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func parse(t testing.TB, src string) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Parse([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSampleParses(t *testing.T) {
	b := parse(t, string(sample(t)))
	again := parse(t, string(b.Canonical()))
	if again.Digest() != b.Digest() {
		t.Errorf("canonical bytes have another digest:\n%s\n%s", b.Canonical(), again.Canonical())
	}
	t.Logf("%s", b.Canonical())
}
