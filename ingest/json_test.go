package ingest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"gatehouse/internal/problem"
)

// plain decodes a node the way encoding/json would.
func plain(t *testing.T, n Node) any {
	t.Helper()
	switch n.v().kind {
	case kindNull:
		return nil
	case kindTrue, kindFalse:
		return n.True()
	case kindNumber:
		return json.Number(n.Bytes())
	case kindString:
		s, _ := n.Text()
		return replaced(s)
	case kindArray:
		out := []any{}
		for _, item := range n.Items() {
			out = append(out, plain(t, item))
		}
		return out
	case kindObject:
		out := map[string]any{}
		for i := n.first(); i != 0; i = n.d.values[i].next {
			v := &n.d.values[i]
			key := n.d.raw[v.key:v.keyEnd]
			if v.keyEscaped {
				key = unquote(key)
			}
			out[replaced(string(key))] = plain(t, Node{n.d, i})
		}
		return out
	}
	t.Fatalf("node without a kind at %d", n.i)
	return nil
}

// replaced puts one U+FFFD for every byte that is not UTF-8, and one for a lone
// surrogate, as encoding/json does.
func replaced(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if len(s) >= 3 && s[0] == 0xed && s[1] >= 0xa0 && s[1] <= 0xbf && s[2] >= 0x80 && s[2] <= 0xbf {
			b.WriteRune(utf8.RuneError)
			s = s[3:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

// FuzzScan: the scanner and encoding/json agree on what is an object and what
// is in it, except where the scanner says that readers could disagree.
func FuzzScan(f *testing.F) {
	files, err := filepath.Glob("testdata/corpus/*/*.json")
	if err != nil || len(files) < 50 {
		f.Fatalf("%d corpus files: %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, s := range []string{`{}`, ` { "a" : [ 1 , -0.5e+7 , true , false , null , "\u00e9\ud83d\ude00\ud800" ] } `, `{"a":01}`, `{"a":1,}`, `{"a":[1,]}`,
		`{"a":.5}`, `{"a":1.}`, `{"a":1e}`, `{"a":-}`, `{"a":"\x"}`, `{"a":"\u12"}`, "{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}", `{"a":tru}`, `{"a" 1}`, `{a:1}`,
		"\xef\xbb\xbf{}", `{"a":{"b":{}},"c":[[],[[]]]}`, `{"a":1}x`, `{"a":`, `{"\u0061":1,"a":2}`, `{"ſ":1,"s":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := Scan(raw)
		body := bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
		object := bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
		if err != nil {
			if object && json.Valid(body) && problem.CodeOf(err) == problem.BadJSON && err != errTooComplex {
				t.Fatalf("refused valid JSON: %v", err)
			}
			return
		}
		if !object || !json.Valid(body) {
			t.Fatal("accepted what is not a JSON object")
		}
		compact := doc.redacted(nil)
		if !utf8.Valid(compact) || !json.Valid(compact) {
			t.Fatalf("payload is not JSON in UTF-8: %q", compact)
		}
		if doc.odd[anomalyTwinKeys] {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if got := plain(t, doc.Root()); !reflect.DeepEqual(got, want) {
			t.Fatalf("read %#v\nwant %#v", got, want)
		}
		if again, err := Scan(compact); err != nil || !bytes.Equal(again.redacted(nil), compact) {
			t.Fatalf("payload does not scan to itself: %v", err)
		}
	})
}

// Twin keys are found by comparing every pair, the slow way.
func FuzzTwinKeys(f *testing.F) {
	f.Add(`a`, `A`, `b`)
	f.Add(`\u0061`, `a`, `b`)
	f.Add("\u212a", `k`, `s`)
	f.Add("ß", "ẞ", "ss")
	f.Add("\xff", "\xfe", "x")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		keys := []string{a, b, c}
		raw := `{"x":{` + `"` + a + `":1,"` + b + `":[],"` + c + `":{}}}`
		doc, err := Scan([]byte(raw))
		if err != nil || doc.At("/x").Len() != 3 {
			return
		}
		want := false
		for i, k := range keys {
			for _, l := range keys[i+1:] {
				want = want || strings.EqualFold(string(unquote([]byte(k))), string(unquote([]byte(l))))
			}
		}
		if doc.odd[anomalyTwinKeys] != want {
			t.Fatalf("twin keys in %s: %v, want %v", raw, doc.odd[anomalyTwinKeys], want)
		}
	})
}

func TestScanLimits(t *testing.T) {
	tests := map[string]struct {
		raw  string
		code problem.Code // "" accepted
		big  bool         // beyond what is indexed
	}{
		"deepest":        {`{"a":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + `}`, "", false},
		"too deep":       {`{"a":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`, problem.TooDeep, false},
		"deep objects":   {strings.Repeat(`{"a":`, 10_000) + `1` + strings.Repeat(`}`, 10_000), problem.TooDeep, false},
		"never closed":   {strings.Repeat(`{"a":`, 60), problem.BadJSON, false},
		"long string":    {`{"a":"` + strings.Repeat("x", maxString) + `"}`, "", false},
		"longer string":  {`{"a":"` + strings.Repeat("x", maxString+1) + `"}`, problem.BadJSON, true},
		"long key":       {`{"` + strings.Repeat("x", maxString+1) + `":1}`, problem.BadJSON, true},
		"many values":    {`{"a":[` + strings.Repeat("1,", maxValues) + `1]}`, problem.BadJSON, true},
		"number of kind": {`{"a":` + strings.Repeat("9", 5000) + `}`, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Scan([]byte(tt.raw))
			got := problem.Code("")
			if err != nil {
				got = problem.CodeOf(err)
			}
			if got != tt.code || (err == errTooComplex) != tt.big {
				t.Errorf("Scan says %v, want %q, beyond limits %v", err, tt.code, tt.big)
			}
		})
	}
}

func TestNode(t *testing.T) {
	doc, err := Scan([]byte(`{"id":9223372036854775809,"neg":-1,"exp":1e3,"text":"a b","esc":"\u0061","list":[{"id":"x-1"},{"id":null},7],"a/b":{"~":1},"t":true}`))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{"/id": "9223372036854775809", "/neg": "", "/exp": "", "/text": "", "/esc": "a", "/list/0/id": "x-1", "/list/1/id": "", "/list/2": "7",
		"/list/3": "", "/list/-": "", "/a~1b/~0": "1", "/nope/deeper": "", "/t": "", "/text/x": ""}
	for p, want := range ids {
		if got := doc.At(p).ID(); got != want {
			t.Errorf("id at %s is %q, want %q", p, got, want)
		}
	}
	if !doc.At("/esc").Is("a") || doc.At("/esc").Is("b") || !doc.At("/t").True() || doc.At("/list/1/id").Exists() != true || !doc.At("/list/1/id").Null() {
		t.Error("a look at a value is wrong")
	}
}
