package upstream

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// The searches by name find what the patterns find over the whole text, as they
// did before there were names.
func TestMarkersAreThePatterns(t *testing.T) {
	url := regexp.MustCompile(`(?i)[?&;#](x-amz-signature|x-amz-security-token|x-goog-signature|signature|sig|access_token|token|jwt|policy|key-pair-id)=[^&\s"]{8}`)
	field := regexp.MustCompile(`(?i)"(access_token|refresh_token|id_token|session_token|client_secret|private_key|secret_access_key|token|secret|password)"\s*:\s*"[^"]{8}`)
	parts := append(append([]string{
		"?", "&", ";", "#", "=", `"`, ":", " ", "\n", "\f", "12345678", "1234567", "abc", "é", "\xff", "ſ", "\u212a", "{", "}", ",", `":"`, `" : "`, `="`, "=sig=", "?&",
		"ſig", "to\u212aen", "\u212aey-pair-id", "acceſſ_token", "paſſword", "x", "X-AMZ-ſecurity-to\u212aen", strings.Repeat("y", longestKey),
	}, signedKeys...), tokenKeys...)
	r := rand.New(rand.NewPCG(3, 4))
	var urls, fields int
	for range 200_000 {
		var b strings.Builder
		for range 1 + r.IntN(9) {
			p := parts[r.IntN(len(parts))]
			if r.IntN(4) == 0 {
				p = strings.ToUpper(p)
			}
			b.WriteString(p)
			if r.IntN(3) == 0 {
				b.WriteString("=12345678")
			}
			if r.IntN(6) == 0 {
				b.WriteString(`":"12345678`)
			}
		}
		s := []byte(b.String())
		if want := url.Match(s); signs(s) != want {
			t.Fatalf("%q: a signed URL is %v", s, want)
		} else if want {
			urls++
		}
		if want := field.Match(s); tokens(s) != want {
			t.Fatalf("%q: a token field is %v", s, want)
		} else if want {
			fields++
		}
	}
	if urls < 1000 || fields < 100 {
		t.Errorf("only %d signed URLs and %d token fields were tried", urls, fields)
	}
}

func BenchmarkMarkers(b *testing.B) {
	s := []byte(strings.Repeat(`{"name":"left-pad","url":"https://a.test/x?page=2&size=3"},`, 18))
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		if holdsSignedURL(s) || tokens(s) {
			b.Fatal("found")
		}
	}
}
