package event

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
)

// writer appends canonical JSON: no white space, the short escapes, every other
// control character as \u00xx, everything else as it is.
type writer struct{ b []byte }

func (w *writer) open()  { w.b = append(w.b, '{') }
func (w *writer) close() { w.b = append(w.b, '}') }

func (w *writer) name(k string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(appendString(w.b, k), ':')
}

func (w *writer) str(k, v string) {
	w.name(k)
	w.b = appendString(w.b, v)
}

func (w *writer) num(k string, v int) {
	w.name(k)
	w.b = strconv.AppendInt(w.b, int64(v), 10)
}

func (w *writer) bool(k string, v bool) {
	w.name(k)
	w.b = strconv.AppendBool(w.b, v)
}

func (w *writer) raw(k string, v []byte) {
	w.name(k)
	w.b = append(w.b, v...)
}

func (w *writer) list(k string, v []string) {
	w.name(k)
	w.b = append(w.b, '[')
	for i, s := range v {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = appendString(w.b, s)
	}
	w.b = append(w.b, ']')
}

func (w *writer) strings(k string, v map[string]string) {
	w.name(k)
	w.open()
	for _, k := range sorted(v) {
		w.str(k, v[k])
	}
	w.close()
}

// sorted returns the keys of m in byte order.
func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

const hexDigits = "0123456789abcdef"

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\t':
			b = append(b, '\\', 't')
		case '\n':
			b = append(b, '\\', 'n')
		case '\f':
			b = append(b, '\\', 'f')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
