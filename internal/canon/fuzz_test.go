package canon_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/gowebpki/jcs"

	"gatehouse/internal/canon"
)

// FuzzValid: what the scanner accepts, an independent RFC 8785 implementation
// leaves as it is.
func FuzzValid(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2,true],"b":{"c":"é\"\\"}}`, `[]`, `{"x":9007199254740991}`, `"a"`, `{"":0}`, `{"a":1.0}`, `{"b":1,"a":2}`, `{"a":"\u0041"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if canon.Valid(b) != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("%q is not JSON", b)
		}
		if len(b) == 0 || b[0] != '{' && b[0] != '[' {
			return // the library takes objects and arrays only
		}
		got, err := jcs.Transform(b)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%q: the library gives %q, %v", b, got, err)
		}
	})
}

// FuzzWriter: any document that the writer writes is accepted by the scanner and
// left as it is by the library. The fuzzer's bytes steer the calls.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("{kaikbs\x05hello}"))
	f.Add([]byte("{ka[iiiu\x01\x02]kb{}}"))
	f.Add([]byte("[s\x03\x22\x5c\xc3t]"))
	f.Fuzz(func(t *testing.T, script []byte) {
		var w canon.Writer
		play(&w, script)
		b, err := w.Bytes()
		if err != nil {
			return
		}
		if err := canon.Valid(b); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if b[0] != '{' && b[0] != '[' {
			return
		}
		got, err := jcs.Transform(b)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%q: the library gives %q, %v", b, got, err)
		}
	})
}

func play(w *canon.Writer, script []byte) {
	take := func(n int) []byte {
		n = min(n, len(script))
		b := script[:n]
		script = script[n:]
		return b
	}
	for len(script) > 0 {
		switch take(1)[0] {
		case '{':
			w.Object()
		case '}':
			w.EndObject()
		case '[':
			w.Array()
		case ']':
			w.EndArray()
		case 'k':
			w.Key(string(take(1)))
		case 's':
			if n := take(1); len(n) == 1 {
				w.String(string(take(int(n[0]))))
			}
		case 'c':
			if n := take(1); len(n) == 1 {
				w.Cleaned(string(take(int(n[0]))))
			}
		case 'i':
			w.Int(int64(binary.BigEndian.Uint64(append(take(7), make([]byte, 8)...)[:8])) >> 8)
		case 'u':
			w.Int(int64(len(script)))
		case 'b':
			w.Bool(len(script)%2 == 0)
		}
	}
}
