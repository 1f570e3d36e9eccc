package policies

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"gatehouse/enforcers"
)

// FuzzDecide feeds arbitrary messages to all three enforcers: they must return
// an answer from the closed list or nil, and never read past their input.
func FuzzDecide(f *testing.F) {
	f.Add(httpAction(f, "a.pkg.test", "443", "https", "GET", "/x", "", ""))
	f.Add(connectAction(f, "db.test", "5432", "tcp", true, false))
	f.Add(message(f, enforcers.Action{Kind: enforcers.GitPush, Push: &enforcers.Push{Commands: []enforcers.RefUpdate{{Ref: "refs/heads/x"}}, Changed: []string{"\"\n"}}}))
	f.Add(message(f, enforcers.Action{Kind: enforcers.ModelCall, Model: &enforcers.Model{Model: "m"}}))
	f.Add(message(f, enforcers.Action{Kind: enforcers.SessionSpawn, Spawn: &enforcers.Spawn{Bundle: "b"}}))
	var judges []*Judge
	for _, name := range Names() {
		judges = append(judges, configureWith(f, name, sorted(testPolicy)))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		tight := bytes.Clone(message)
		tight = tight[:len(tight):len(tight)]
		for _, j := range judges {
			a := j.Decide(tight)
			if a == nil {
				continue
			}
			if a.Effect != allow && a.Effect != deny && a.Effect != abstain || !json.Valid(a.JSON) {
				t.Errorf("answer %+v", a)
			}
			// What is accepted ends where JSON ends.
			if a.Effect == allow && message[len(message)-1] != '}' {
				t.Errorf("trailing bytes accepted: %q", message)
			}
		}
	})
}

// FuzzConfigure feeds arbitrary policies.
func FuzzConfigure(f *testing.F) {
	f.Add([]byte(sorted(testPolicy)))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, policy []byte) {
		for _, name := range Names() {
			j, status := Configure([]byte(`{"abi":1,"bundle":` + string(policy) + `,"params":{"enforcer":"` + name + `"}}`))
			if (j == nil) == (status == OK) {
				t.Errorf("status %d, judge %v", status, j)
			}
		}
	})
}

func TestStringEnd(t *testing.T) {
	for _, s := range []string{"", "a", "abcdefg", "abcdefgh", "abcdefghi", `\"`, `abcdefg\"x`, `abcdef\\`, `\\\"\\`, strings.Repeat("x", 33), strings.Repeat(`\"`, 9), "\x22"[:0], "ü\u2028"} {
		b := []byte(`"` + s + `",tail`)
		if got := stringEnd(b, 1); got != len(s)+1 {
			t.Errorf("%q: %d, want %d", s, got, len(s)+1)
		}
	}
	for _, s := range []string{``, `abc`, `abcdefgh`, `abc\"`, `abcdefg\`, `\`} {
		if got := stringEnd([]byte(s), 0); got != -1 {
			t.Errorf("unclosed %q: %d", s, got)
		}
	}
}

func TestUnescape(t *testing.T) {
	var dst [64]byte
	for _, want := range []string{"plain", "a\"b\\c/d", "\"\"\\\\", "ü"} {
		a := enforcers.Action{Kind: enforcers.DNSQuery, DNS: &enforcers.DNS{Name: want}}
		b, err := a.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), `"name":"`)
		raw, _, _ := strings.Cut(rest, `","type"`)
		if n, ok := unescape(dst[:], []byte(raw)); !ok || string(dst[:n]) != want {
			t.Errorf("%q: %q, %v", raw, dst[:n], ok)
		}
	}
	for _, bad := range []string{`\`, `\x`, `\n`, `\u0041`, strings.Repeat("x", 65)} {
		if _, ok := unescape(dst[:], []byte(bad)); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestMalformed(t *testing.T) {
	good := string(httpAction(t, "a.pkg.test", "443", "https", "GET", "/x", "", ""))
	j := configureWith(t, "egress", sorted(testPolicy))
	if j.Decide([]byte(good)) == nil {
		t.Fatal("the base case is refused")
	}
	for name, bad := range map[string]string{
		"cut_off":          good[:len(good)-1],
		"trailing":         good + "}",
		"another_abi":      strings.Replace(good, `{"abi":1`, `{"abi":2`, 1),
		"no_to":            strings.Replace(good, `"to":`, `"tx":`, 1),
		"port_as_string":   strings.Replace(good, `:443`, `:"443"`, 1),
		"port_as_fraction": strings.Replace(good, `:443`, `:443.0`, 1),
		"kind_of_another":  strings.Replace(good, `"kind":"http.request"`, `"kind":"dns.query"`, 1),
		"too_deep":         strings.Replace(good, `"headers":{`, `"headers":{"x":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`,`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if a := j.Decide([]byte(bad)); a != nil {
				t.Errorf("answered %s %s", a.Effect, a.Reason)
			}
		})
	}
}

// FuzzSkipMember compares the one loop of skipMember, and words with bytes in
// begins and encodedSeparator, with the same in small steps.
func FuzzSkipMember(f *testing.F) {
	for _, s := range []string{
		`"a":1}`, `"a":"b","c":2}`, `"key\"with":{"x":["}",{"y":"\\"}]},"z":1}`, `"long key of more than eight":"long value \" of more"}`,
		`"a""b"`, `"a":`, `"a`, `"a":"b\`, `"":{}`, `"a":]`, `"a":[[[]]]]`, `"/v1/projects/12%2fpackages":"%5C"`, "\"12345678\\", `"a":"1234567\"",`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		slow := func() int {
			if len(b) == 0 || b[0] != '"' {
				return -1
			}
			i := 1
			for ; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if i+1 >= len(b) || b[i+1] != ':' {
				return -1
			}
			return skipValue(b, i+2)
		}
		if got, want := skipMember(b, 0), slow(); got != want {
			t.Errorf("skipMember(%q) is %d, want %d", b, got, want)
		}
		for n := range min(len(b), 24) {
			b := b[:min(len(b), 48)]
			if !begins(b, n, string(b[n:])) || begins(b, n, string(b[n:])+"x") {
				t.Errorf("begins(%q) at %d", b, n)
			}
			other := bytes.Clone(b[n:])
			for i := range other {
				other[i] ^= 1
				if begins(b, n, string(other)) {
					t.Errorf("begins(%q, %d, %q)", b, n, other)
				}
				other[i] ^= 1
			}
		}
		lower := bytes.ToLower(b)
		if got, want := encodedSeparator(b), bytes.Contains(lower, []byte("%2f")) || bytes.Contains(lower, []byte("%5c")); got != want {
			t.Errorf("encodedSeparator(%q) is %v", b, got)
		}
	})
}
