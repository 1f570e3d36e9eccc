package canon

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// CheckText reports why s may not be a string of the profile; nil means it may.
func CheckText(s string) error {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			return checkUnicode(s)
		case c < ' ' || c == 0x7f:
			return fmt.Errorf("%w: control character U+%04X", ErrText, c)
		}
	}
	return nil
}

func checkUnicode(s string) error {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return fmt.Errorf("%w: invalid UTF-8", ErrText)
			}
		}
		if outside(r) {
			return fmt.Errorf("%w: character U+%04X", ErrText, r)
		}
	}
	if !norm.NFC.IsNormalString(s) {
		return fmt.Errorf("%w: not in normalization form C", ErrText)
	}
	return nil
}

// outside reports whether r is a control character or a noncharacter.
func outside(r rune) bool {
	return unicode.IsControl(r) || r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE
}

// Clean returns s as a string of the profile: each invalid byte, control
// character and noncharacter becomes U+FFFD, then the result is brought to
// normalization form C. Clean of a string of the profile is that string.
func Clean(s string) string {
	if CheckText(s) == nil {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if outside(r) {
			return utf8.RuneError
		}
		return r // an invalid byte arrives here as U+FFFD
	}, s)
	return norm.NFC.String(s)
}

// CheckKey reports why s may not be an object key: keys are 1 to 256 printable
// ASCII characters without the quote and the backslash, so that their bytes
// are the same escaped and not, and byte order is RFC 8785's order.
func CheckKey(s string) error {
	if s == "" || len(s) > 256 {
		return fmt.Errorf("%w: length %d", ErrKey, len(s))
	}
	if plain(s) {
		return nil
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !plainByte[c] {
			return fmt.Errorf("%w: byte 0x%02x", ErrKey, c)
		}
	}
	return nil
}

// plain reports whether s is printable ASCII without the quote and the backslash:
// its bytes are those that are written, and nothing else has to be looked at.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if !plainByte[s[i]] {
			return false
		}
	}
	return true
}

// plainByte is a table, as nearly all bytes that are written are asked once.
var plainByte = func() (t [256]bool) {
	for c := ' '; c <= '~'; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// AppendString appends s as Writer.String writes it. Like AppendTime and
// AppendDigest it is for a schema whose keys are constants, which needs no Writer
// to check their order each time.
func AppendString(b []byte, s string) ([]byte, error) {
	if plain(s) {
		return between(b, s), nil
	}
	if err := CheckText(s); err != nil {
		return b, err
	}
	return quote(b, s), nil
}

// between appends a plain string.
func between(b []byte, s string) []byte {
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func quote(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == '"' || c == '\\' {
			b = append(b, s[start:i]...)
			b = append(b, '\\', c)
			start = i + 1
		}
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// TimeLayout is RFC 3339 in UTC with nine decimals, always 30 characters.
const TimeLayout = "2006-01-02T15:04:05.000000000Z"

// AppendTime appends t in TimeLayout. The year must lie in 0..9999.
func AppendTime(b []byte, t time.Time) ([]byte, error) {
	t = t.UTC()
	y, mo, d := t.Date()
	if y < 0 || y > 9999 {
		return b, fmt.Errorf("%w: year %d", ErrTime, y)
	}
	h, mi, s := t.Clock()
	// By hand: every receipt and every action has a time, and AppendFormat reads
	// its layout each time.
	var out [len(TimeLayout)]byte
	copy(out[:], TimeLayout)
	decimal(out[0:4], y)
	decimal(out[5:7], int(mo))
	decimal(out[8:10], d)
	decimal(out[11:13], h)
	decimal(out[14:16], mi)
	decimal(out[17:19], s)
	decimal(out[20:29], t.Nanosecond())
	return append(b, out[:]...), nil
}

// decimal fills b with n, zeros in front.
func decimal(b []byte, n int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

// ParseTime reads exactly what AppendTime writes.
func ParseTime(b []byte) (time.Time, error) {
	var f [7]int
	if len(b) != len(TimeLayout) {
		return time.Time{}, fmt.Errorf("%w: length %d", ErrTime, len(b))
	}
	field := 0
	for i, c := range b {
		if l := TimeLayout[i]; l < '0' || l > '9' {
			if c != l {
				return time.Time{}, fmt.Errorf("%w: byte 0x%02x at %d", ErrTime, c, i)
			}
			field++
			continue
		}
		if c < '0' || c > '9' {
			return time.Time{}, fmt.Errorf("%w: byte 0x%02x at %d", ErrTime, c, i)
		}
		f[field] = f[field]*10 + int(c-'0')
	}
	t := time.Date(f[0], time.Month(f[1]), f[2], f[3], f[4], f[5], f[6], time.UTC)
	// time.Date carries 31 February into March and second 60 into the next
	// minute; only a value that stays what was written is accepted.
	y, m, d := t.Date()
	if y != f[0] || int(m) != f[1] || d != f[2] || t.Hour() != f[3] || t.Minute() != f[4] || t.Second() != f[5] {
		return time.Time{}, fmt.Errorf("%w: no such time", ErrTime)
	}
	return t, nil
}

var digestEncoding = base64.RawURLEncoding.Strict()

// DigestLen is the length of a written digest.
const DigestLen = 43

// AppendDigest appends d as base64url without padding.
func AppendDigest(b []byte, d [32]byte) []byte { return digestEncoding.AppendEncode(b, d[:]) }

// ParseDigest reads exactly what AppendDigest writes.
func ParseDigest(b []byte) (d [32]byte, err error) {
	if len(b) != DigestLen {
		return d, fmt.Errorf("%w: length %d", ErrDigest, len(b))
	}
	// Go's base64 skips line ends: with one in place of a final zero digit the
	// zero digest had a second spelling (RC-22).
	if bytes.ContainsAny(b, "\r\n") {
		return d, fmt.Errorf("%w: a line end", ErrDigest)
	}
	if _, err := digestEncoding.Decode(d[:], b); err != nil {
		return [32]byte{}, fmt.Errorf("%w: %w", ErrDigest, err)
	}
	return d, nil
}
