package bundle_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
)

// A version holds the sets that it was made with: another file is another
// version, and no session is judged by one that nobody approved.
func TestPin(t *testing.T) {
	src := minimal + "egress: [{set: npm}, {host: a.test}]\n"
	folder := func(file string) bundle.SetResolver {
		return bundle.Sets(fstest.MapFS{"npm.yaml": {Data: []byte(file)}})
	}
	wider := strings.Replace(npmSet, "[registry", "[evil.test, registry", 1)
	pin := func(t *testing.T, file string) *bundle.Bundle {
		b, err := parse(t, src).Pin(folder(file))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Run("bytes_hold_the_content", func(t *testing.T) {
		b := pin(t, npmSet)
		again := parse(t, string(b.Canonical()))
		if again.Digest() != b.Digest() || len(again.Sets["npm"].Rules()) != 2 {
			t.Errorf("the canonical bytes are another version: %s", again.Canonical())
		}
		raw, err := parse(t, src).Policy(folder(npmSet), subject)
		held, err2 := again.Policy(nil, subject)
		if err != nil || err2 != nil || !bytes.Equal(rulesOf(raw), rulesOf(held)) {
			t.Errorf("held content compiles to other rules: %v %v\n%s\n%s", err, err2, raw, held)
		}
		a, err := parse(t, src).SetDigests(folder(npmSet))
		z, err2 := again.SetDigests(nil)
		if err != nil || err2 != nil || a["npm"] != z["npm"] {
			t.Errorf("held content has another set digest: %x %x %v %v", a, z, err, err2)
		}
	})
	t.Run("another_file_is_another_version", func(t *testing.T) {
		a, z := pin(t, npmSet), pin(t, wider)
		if a.Digest() == z.Digest() {
			t.Fatal("the digest does not see the set's change")
		}
		if ok, why := a.Covers(z); ok || why != "egress set npm adds host evil.test" {
			t.Errorf("covers = %v, %q", ok, why)
		}
		if ok, why := z.Covers(a); !ok {
			t.Errorf("the wider one does not cover the narrower one: %s", why)
		}
	})
	t.Run("held_content_wins_over_the_file", func(t *testing.T) {
		held := pin(t, npmSet)
		raw, err := held.Policy(folder(wider), subject)
		if err != nil || bytes.Contains(raw, []byte("evil.test")) {
			t.Errorf("the file's content was used: %v %s", err, raw)
		}
		again, err := held.Pin(folder(wider))
		if err != nil || again.Digest() != held.Digest() {
			t.Errorf("pinning again read the file: %v", err)
		}
	})
	t.Run("not_held_is_a_named_refusal", func(t *testing.T) {
		if _, err := parse(t, src).Policy(nil, subject); problem.CodeOf(err) != problem.SetNotPinned {
			t.Errorf("error %v", err)
		}
		if _, err := parse(t, src).SetDigests(nil); problem.CodeOf(err) != problem.SetNotPinned {
			t.Errorf("error %v", err)
		}
	})
	t.Run("changes_in_words", func(t *testing.T) {
		held := pin(t, npmSet)
		for file, want := range map[string]string{
			wider:                             "set npm adds evil.test",
			npmSet + "methods: [GET, POST]\n": "set npm has other ports, schemes, methods, paths or addresses",
			strings.Replace(npmSet, "registry.example.com, ", "", 1):                                     "set npm leaves out registry.example.com",
			strings.Replace(npmSet, "registry.example.com, \"*", "\"*.mirror.example.com\", \"*.new", 1): "set npm adds *.new.mirror.example.com and leaves out registry.example.com",
			"hosts: 3": "set npm cannot be read: ",
		} {
			got := held.SetChanges(folder(file))
			if len(got) != 1 || !strings.HasPrefix(got[0].String(), want) {
				t.Errorf("changes %v, want %q", got, want)
			}
		}
		if got := held.SetChanges(folder(npmSet)); len(got) != 0 {
			t.Errorf("the same file is a change: %v", got)
		}
	})
	for name, c := range map[string]struct{ src, msg string }{
		"named_by_nothing": {minimal + "sets: {npm: {hosts: [a.test]}}\n", "named by nothing"},
		"bad_host":         {minimal + "egress: [{set: npm}]\nsets: {npm: {hosts: ['*']}}\n", "hosts[0]"},
		"no_hosts":         {minimal + "egress: [{set: npm}]\nsets: {npm: {hosts: []}}\n", "hosts"},
		"empty":            {minimal + "egress: [{set: npm}]\nsets: {npm: {}}\n", "npm"},
		"bad_method":       {minimal + "egress: [{set: npm}]\nsets: {npm: {hosts: [a.test], methods: [TRACE]}}\n", "methods"},
		"unknown_key":      {minimal + "egress: [{set: npm}]\nsets: {npm: {hosts: [a.test], connection: c}}\n", "unknown key"},
	} {
		t.Run("refuses_"+name, func(t *testing.T) {
			if _, err := bundle.Parse([]byte(c.src)); problem.CodeOf(err) != problem.ConfigInvalid || !strings.Contains(err.Error(), c.msg) {
				t.Errorf("error %v lacks %q", err, c.msg)
			}
		})
	}
}

// rulesOf is a policy without the digest of its bundle.
func rulesOf(policy []byte) []byte {
	_, rest, _ := bytes.Cut(policy, []byte(`"egress":`))
	return rest
}
