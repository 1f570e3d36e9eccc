package canon_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gatehouse/internal/canon"
)

func TestWriter(t *testing.T) {
	var w canon.Writer
	w.Object()
	w.Key("a")
	w.Array()
	w.Int(-7)
	w.Int(canon.MaxInt)
	w.Bool(true)
	w.Array()
	w.EndArray()
	w.EndArray()
	w.Key("at")
	at, err := canon.AppendTime(nil, time.Date(2026, 2, 3, 4, 5, 6, 7, time.FixedZone("x", 3600)))
	if err != nil {
		t.Fatal(err)
	}
	w.String(string(at))
	w.Key("b")
	w.Object()
	w.EndObject()
	w.Key("h")
	w.String(string(canon.AppendDigest(nil, [32]byte{31: 1})))
	w.Key("s")
	w.String("quote \" back \\ slash / é 漢 \U0001F600 \u2028")
	w.EndObject()
	got, err := w.Bytes()
	want := `{"a":[-7,9007199254740991,true,[]],"at":"2026-02-03T03:05:06.000000007Z","b":{},` +
		`"h":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE","s":"quote \" back \\ slash / é 漢 😀 ` + "\u2028" + `"}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	if err := canon.Valid([]byte(want)); err != nil {
		t.Error(err)
	}
}

func TestWriterRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(*canon.Writer)
		want  error
	}{
		"nothing":           {func(*canon.Writer) {}, canon.ErrSyntax},
		"unfinished":        {func(w *canon.Writer) { w.Object() }, canon.ErrSyntax},
		"two documents":     {func(w *canon.Writer) { w.Bool(true); w.Bool(true) }, canon.ErrSyntax},
		"wrong end":         {func(w *canon.Writer) { w.Object(); w.EndArray() }, canon.ErrSyntax},
		"end too many":      {func(w *canon.Writer) { w.EndObject() }, canon.ErrSyntax},
		"value without key": {func(w *canon.Writer) { w.Object(); w.Int(1) }, canon.ErrSyntax},
		"key without value": {func(w *canon.Writer) { w.Object(); w.Key("a"); w.EndObject() }, canon.ErrSyntax},
		"key in array":      {func(w *canon.Writer) { w.Array(); w.Key("a") }, canon.ErrSyntax},
		"falling keys":      {func(w *canon.Writer) { w.Object(); w.Key("b"); w.Int(1); w.Key("a") }, canon.ErrOrder},
		"same key twice":    {func(w *canon.Writer) { w.Object(); w.Key("a"); w.Int(1); w.Key("a") }, canon.ErrOrder},
		"empty key":         {func(w *canon.Writer) { w.Object(); w.Key("") }, canon.ErrKey},
		"key with quote":    {func(w *canon.Writer) { w.Object(); w.Key(`a"`) }, canon.ErrKey},
		"key not ASCII":     {func(w *canon.Writer) { w.Object(); w.Key("é") }, canon.ErrKey},
		"2^53":              {func(w *canon.Writer) { w.Int(canon.MaxInt + 1) }, canon.ErrNumber},
		"-2^53":             {func(w *canon.Writer) { w.Int(-canon.MaxInt - 1) }, canon.ErrNumber},
		"control character": {func(w *canon.Writer) { w.String("a\x00") }, canon.ErrText},
		"newline":           {func(w *canon.Writer) { w.String("a\nb") }, canon.ErrText},
		"delete":            {func(w *canon.Writer) { w.String("a\x7f") }, canon.ErrText},
		"C1":                {func(w *canon.Writer) { w.String("a\u0085") }, canon.ErrText},
		"noncharacter":      {func(w *canon.Writer) { w.String("\ufffe") }, canon.ErrText},
		"invalid UTF-8":     {func(w *canon.Writer) { w.String("a\xff") }, canon.ErrText},
		"surrogate":         {func(w *canon.Writer) { w.String("\xed\xa0\x80") }, canon.ErrText},
		"not composed":      {func(w *canon.Writer) { w.String("e\u0301") }, canon.ErrText},
		"deeper than the limit": {func(w *canon.Writer) {
			for range canon.MaxDepth + 1 {
				w.Array()
			}
		}, canon.ErrDepth},
	} {
		t.Run(name, func(t *testing.T) {
			var w canon.Writer
			tc.write(&w)
			if b, err := w.Bytes(); !errors.Is(err, tc.want) || b != nil {
				t.Errorf("got %q, %v; want %v", b, err, tc.want)
			}
		})
	}
}

func TestValid(t *testing.T) {
	deep := strings.Repeat("[", canon.MaxDepth) + strings.Repeat("]", canon.MaxDepth)
	for _, good := range []string{
		`{}`, `[]`, `""`, `0`, `true`, `[0,-1,"a",{"a":[],"b":{"c":false}}]`, `"é"`, deep,
		`{" ":1,"!":2,"~":3}`, `9007199254740991`, `-9007199254740991`, `"\"\\"`, `[[],[]]`,
	} {
		if err := canon.Valid([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		``, ` `, `{`, `}`, `[1,]`, `[,1]`, `[1 ]`, ` 1`, `1 `, `01`, `-0`, `-`, `+1`, `1.0`, `1e3`, `null`, `nul`, `tru`, `True`,
		`9007199254740992`, `-9007199254740992`, `99999999999999999999999999999999`, `{"a":1,}`, `{"a" :1}`, `{"a": 1}`, `{a:1}`,
		`{"b":1,"a":2}`, `{"a":1,"a":1}`, `{"":1}`, `{"é":1}`, `{"a"}`, `{"a":}`, `{"a":1 }`, `{"a":1}{}`, `{"\"":1}`,
		`"`, `"\`, `"\n"`, `"\/"`, `"\u0041"`, "\"\n\"", "\"\x7f\"", "\"\u0085\"", "\"e\u0301\"", "\"\xff\"", `""""`, "[" + deep + "]",
	} {
		if err := canon.Valid([]byte(bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestScannerWalk(t *testing.T) {
	const doc = `{"a":"x\"y","c":{"k":1,"l":2},"d":[1,2,3],"e":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE","t":"2026-02-03T03:05:06.000000007Z"}`
	var s canon.Scanner
	s.Reset([]byte(doc))
	s.Object()
	if !s.TryKey("a") || s.String() != `x"y` {
		t.Error("a")
	}
	if s.TryKey("b") {
		t.Error("b is not there")
	}
	if !s.TryKey("c") {
		t.Error("c")
	}
	s.Object()
	sum := uint64(0)
	for k, ok := s.Key(); ok; k, ok = s.Key() {
		sum += s.Uint() * uint64(k[0])
	}
	s.EndObject()
	if sum != 'k'+2*'l' {
		t.Error("c", sum)
	}
	s.TryKey("d")
	s.Array()
	for s.More() {
		sum += s.Uint()
	}
	s.EndArray()
	s.TryKey("e")
	if d := s.Digest(); d != [32]byte{31: 1} {
		t.Error("e")
	}
	s.TryKey("t")
	if at := s.Time(); !at.Equal(time.Date(2026, 2, 3, 3, 5, 6, 7, time.UTC)) {
		t.Error("t", at)
	}
	s.EndObject()
	if err := s.End(); err != nil {
		t.Error(err)
	}
}

func TestScannerUnknownKey(t *testing.T) {
	var s canon.Scanner
	s.Reset([]byte(`{"a":1,"b":2}`))
	s.Object()
	s.TryKey("a")
	s.Uint()
	s.EndObject()
	var unknown *canon.UnknownKeyError
	if err := s.End(); !errors.As(err, &unknown) || unknown.Key != "b" {
		t.Errorf("%v", err)
	}
}

func TestParseTime(t *testing.T) {
	for _, bad := range []string{
		"", "2026-02-03T03:05:06Z", "2026-02-03T03:05:06.000000007+00:00", "2026-02-30T03:05:06.000000007Z",
		"2026-13-03T03:05:06.000000007Z", "2026-02-03T24:05:06.000000007Z", "2026-02-03T03:05:60.000000007Z",
		"2026-02-03t03:05:06.000000007Z", "2026-02-03T03:05:06.00000000aZ", "2026-00-03T03:05:06.000000007Z",
	} {
		if at, err := canon.ParseTime([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, at)
		}
	}
}

// What AppendTime writes by hand is what package time writes from the layout.
func TestAppendTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	first := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	check := func(at time.Time) {
		t.Helper()
		got, err := canon.AppendTime([]byte("x"), at)
		if want := "x" + at.UTC().Format(canon.TimeLayout); err != nil || string(got) != want {
			t.Fatalf("%s, %v, want %s", got, err, want)
		}
	}
	check(first)
	check(last)
	for range 20_000 {
		at := time.Unix(first.Unix()+r.Int64N(last.Unix()-first.Unix()), r.Int64N(1_000_000_000))
		check(at.In(time.FixedZone("", int(r.Int64N(20*3600))-10*3600)))
	}
	for _, at := range []time.Time{first.Add(-1), last.Add(1)} {
		if _, err := canon.AppendTime(nil, at); !errors.Is(err, canon.ErrTime) {
			t.Errorf("%v: %v", at, err)
		}
	}
}

func TestParseDigest(t *testing.T) {
	const good = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE"
	if d, err := canon.ParseDigest([]byte(good)); err != nil || string(canon.AppendDigest(nil, d)) != good {
		t.Error(err)
	}
	for _, bad := range []string{good[:42], good + "=", good[:42] + "F", good[:42] + "+", "+" + good[1:], "",
		strings.Repeat("A", 42) + "\r", "\n" + strings.Repeat("A", 42)} {
		if _, err := canon.ParseDigest([]byte(bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestClean(t *testing.T) {
	for _, s := range []string{"", "plain", "a\"b\\c", "\x00\x7f", "e\u0301", "\xff", "\ufdd0"} {
		var a, b canon.Writer
		a.String(canon.Clean(s))
		b.Cleaned(s)
		want, _ := a.Bytes()
		if got, err := b.Bytes(); err != nil || string(got) != string(want) {
			t.Errorf("%q: Cleaned %s, %v, want %s", s, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"plain":                "plain",
		"a\x00b\nc\x7f\u0085d": "a\ufffdb\ufffdc\ufffd\ufffdd",
		"\xff\xfe":             "\ufffd\ufffd",
		"e\u0301":              "é",
		"\ufffe":               "\ufffd",
	} {
		got := canon.Clean(in)
		if got != want || canon.CheckText(got) != nil || canon.Clean(got) != got {
			t.Errorf("%q gives %q", in, got)
		}
	}
}

// TestEveryByte: what a writer does with plain strings it does with all others.
func TestEveryByte(t *testing.T) {
	write := func(put func(w *canon.Writer)) (string, error) {
		var w canon.Writer
		put(&w)
		b, err := w.Bytes()
		return string(b), err
	}
	for c := range 256 {
		for _, s := range []string{string([]byte{byte(c)}), "a" + string([]byte{byte(c)}) + "z"} {
			ascii := c >= ' ' && c <= '~'
			_, err := write(func(w *canon.Writer) { w.Object(); w.Key(s); w.Int(0); w.EndObject() })
			if plain := ascii && c != '"' && c != '\\'; plain != (err == nil) || err != nil && !errors.Is(err, canon.ErrKey) {
				t.Errorf("key %q: %v", s, err)
			}
			got, err := write(func(w *canon.Writer) { w.String(s) })
			if ascii != (err == nil) || (canon.CheckText(s) == nil) != ascii {
				t.Errorf("text %q: %v", s, err)
			}
			want := `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(canon.Clean(s)) + `"`
			if err == nil && got != want {
				t.Errorf("text %q: %s, want %s", s, got, want)
			}
			if got, err := write(func(w *canon.Writer) { w.Cleaned(s) }); err != nil || got != want {
				t.Errorf("cleaned %q: %s, %v, want %s", s, got, err, want)
			}
		}
	}
}
