package upstream

import (
	"bytes"
	"html"
	"regexp"
	"strings"
	"unicode/utf8"
)

// What hands out authority by itself is found by name first and by a pattern
// then: the patterns alone took 40 us of every KiB of an answer.

// signedKeys are the query keys that make a URL work without a credential.
var signedKeys = []string{"x-amz-signature", "x-amz-security-token", "x-goog-signature", "signature", "sig", "access_token", "token", "jwt", "policy", "key-pair-id"}

// tokenKeys are the fields of a JSON answer that hold a credential.
var tokenKeys = []string{"access_token", "refresh_token", "id_token", "session_token", "client_secret", "private_key", "secret_access_key", "token", "secret", "password"}

var (
	signedURL  = regexp.MustCompile(`\A(?i)[?&;#](` + strings.Join(signedKeys, "|") + `)=[^&\s"]{8}`)
	tokenField = regexp.MustCompile(`\A(?i)"(` + strings.Join(tokenKeys, "|") + `)"\s*:\s*"[^"]{8}`)
)

// longestKey is the most bytes that one of the keys can take: a letter that
// folds to one of theirs has up to three.
const longestKey = len("x-amz-security-token") * utf8.UTFMax

// signs reports whether text holds a signed URL as it stands: a key between a
// delimiter and an equals sign, and a value.
func signs(b []byte) bool {
	for at := 0; ; at++ {
		n := bytes.IndexByte(b[at:], '=')
		if n < 0 {
			return false
		}
		at += n
		from := max(0, at-longestKey-1)
		key := b[from:at]
		if d := bytes.LastIndexAny(key, "?&;#"); d >= 0 && named(key[d+1:], signedKeys) && signedURL.Match(b[from+d:]) {
			return true
		}
	}
}

// tokens reports whether a JSON text holds a field with a credential.
func tokens(b []byte) bool {
	last := -1
	for at := 0; ; at++ {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return false
		}
		at += n
		if last >= 0 && at-last-1 <= longestKey && named(b[last+1:at], tokenKeys) && tokenField.Match(b[last:]) {
			return true
		}
		last = at
	}
}

// named reports whether key is one of the names, in capitals or not, folded as
// the patterns fold.
func named(key []byte, names []string) bool {
	k := string(key)
	for _, name := range names {
		if len(k) >= len(name) && strings.EqualFold(k, name) {
			return true
		}
	}
	return false
}

// holdsSignedURL looks at text as it stands and without the escapes of JSON and
// HTML, which may stand within each other.
func holdsSignedURL(b []byte) bool {
	if signs(b) {
		return true
	}
	plain := unescapeJSON(b)
	return len(plain) != len(b) && signs(plain) || bytes.IndexByte(plain, '&') >= 0 && signs([]byte(html.UnescapeString(string(plain))))
}

// unescapeJSON undoes the escapes that JSON writers put into URLs.
func unescapeJSON(b []byte) []byte {
	if !bytes.Contains(b, []byte(`\`)) {
		return b
	}
	b = bytes.ReplaceAll(b, []byte(`\u0026`), []byte("&"))
	b = bytes.ReplaceAll(b, []byte(`\u003d`), []byte("="))
	return bytes.ReplaceAll(b, []byte(`\/`), []byte("/"))
}
