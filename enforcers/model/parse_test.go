package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		in string
		ok bool
	}{
		"empty":              {``, false},
		"object":             {` {"a":[1,-2.5e3,true,false,null,"x\n"],"b":{}} `, true},
		"key_twice":          {`{"a":1,"a":1}`, false},
		"key_twice_escaped":  {`{"a":1,"\u0061":1}`, false},
		"key_twice_deep":     {`{"x":[{"a":1,"a":2}]}`, false},
		"lone_surrogates":    {`{"\ud800":1,"\ud801":1}`, false},
		"two_values":         {`{}{}`, false},
		"trailing_comma":     {`{"a":1,}`, false},
		"comment":            {`{/**/}`, false},
		"leading_zero":       {`{"a":01}`, false},
		"not_a_number":       {`{"a":NaN}`, false},
		"single_quotes":      {`{'a':1}`, false},
		"raw_control":        {"{\"a\":\"\x01\"}", false},
		"bad_utf8":           {"{\"a\":\"\xff\"}", false},
		"bom":                {"\ufeff{}", false},
		"nested_to_the_end":  {strings.Repeat("[", 1000) + strings.Repeat("]", 1000), false},
		"unfinished":         {`{"a"`, false},
		"unfinished_escape":  {`{"a":"\`, false},
		"unfinished_unicode": {`{"a":"\u12"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse([]byte(c.in)); (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

// FuzzParse: what is accepted is JSON as encoding/json reads it, and an edit
// changes nothing else.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"max_tokens":1,"b":[{}]}`, `{"a":"\u0061"}`, `[1,2`, `{"a":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parse(b)
		if err != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("accepted %q", b)
		}
		if v.kind != object {
			return
		}
		out := rewrite(b, []edit{v.setIn("max_tokens", "7")})
		if old := v.get("max_tokens"); old != nil {
			out = rewrite(b, []edit{{old.start, old.end, "7"}})
		}
		again, err := parse(out)
		if err != nil {
			t.Fatalf("%q became %q", b, out)
		}
		if n, ok := again.get("max_tokens").whole(out); !ok || n != 7 {
			t.Fatalf("%q became %q", b, out)
		}
		if now, was := len(again.keys), len(v.keys); now != was && now != was+1 {
			t.Fatalf("%q became %q", b, out)
		}
	})
}

func TestEvents(t *testing.T) {
	const in = ": comment\r\nevent: a\r\ndata: one\r\ndata:two\r\n\r\ndata: three\n\nid: 1\n\ndata: four\r\rdata: five"
	want := []string{"one\ntwo", "three", "four", "five"}
	for size := 1; size <= len(in); size++ {
		var got []string
		s := events{each: func(b []byte) { got = append(got, string(b)) }}
		for b := []byte(in); len(b) > 0; {
			n := min(size, len(b))
			s.feed(b[:n])
			b = b[n:]
		}
		s.finish()
		if !slices.Equal(got, want) {
			t.Fatalf("in pieces of %d: %q", size, got)
		}
	}
}

// TestLongEvents: an event too long to be read does not hide the next one.
func TestLongEvents(t *testing.T) {
	var got []string
	s := events{each: func(b []byte) { got = append(got, string(b)) }}
	s.feed([]byte("data: "))
	for range maxEvent/(1<<20) + 1 {
		s.feed(bytes.Repeat([]byte("x"), 1<<20))
	}
	s.feed([]byte("\n\ndata: next\n\n"))
	if !slices.Equal(got, []string{"next"}) {
		t.Errorf("%d events", len(got))
	}
}

// FuzzEvents: a stream of any bytes, cut anywhere, is read like the whole, and
// a sieve that drops nothing changes nothing.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: a\n\ndata: b\r\n\r\n"), uint8(3))
	f.Add([]byte("\r\rdata:\n\n\n"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		read := func(size int) (got []string, kept []byte) {
			s := events{each: func(b []byte) { got = append(got, string(b)) }}
			v := newSieve(func([]byte) bool { return true })
			for rest := b; len(rest) > 0; {
				n := min(size, len(rest))
				s.feed(rest[:n])
				kept = append(kept, v.feed(rest[:n])...)
				rest = rest[n:]
			}
			s.finish()
			return got, append(kept, v.rest()...)
		}
		whole, all := read(len(b) + 1)
		pieces, same := read(int(cut)%16 + 1)
		if !slices.Equal(whole, pieces) || !bytes.Equal(all, b) || !bytes.Equal(same, b) {
			t.Fatalf("%q %q %q", whole, pieces, all)
		}
	})
}
