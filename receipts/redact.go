package receipts

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"gatehouse/internal/canon"
)

// minSecret is the shortest value that is searched for. Shorter ones occur by
// chance; nothing that short is a credential.
const minSecret = 8

// Redacted stands where a field held a known secret.
const Redacted = "[redacted]"

// Redactor is the last gate before sealing: it knows a session's secret values
// and replaces any field of a receipt that holds one, in any of the usual
// encodings. It is safe for concurrent use.
type Redactor struct{ s *scanner }

// NewRedactor returns a Redactor for these secret values. The values are copied
// in encoded form into the Redactor's memory and nowhere else.
func NewRedactor(secrets ...[]byte) *Redactor { return &Redactor{newScanner(secrets)} }

// Append is r.Append with every field that holds a secret replaced. The decision
// itself stays; r.Red["secret"] counts the replaced fields. It fails closed: if
// a secret is left in bytes that no field explains, there are no bytes.
func (d *Redactor) Append(b []byte, r *Receipt) ([]byte, error) {
	out, err := r.Append(b)
	if err != nil || !d.s.found(out[len(b):]) {
		return out, err
	}
	n := r.redact(func(s string) bool { return d.s.found([]byte(s)) })
	if r.Red == nil {
		r.Red = map[string]uint64{}
	}
	r.Red["secret"] += n
	if out, err = r.Append(b); err != nil {
		return nil, err
	}
	if d.s.found(out[len(b):]) {
		return nil, fmt.Errorf("receipt %s: %w: a secret that cannot be removed", r.Type, ErrSchema)
	}
	return out, nil
}

// Found reports whether b holds one of the secrets.
func (d *Redactor) Found(b []byte) bool { return d.s.found(b) }

// redact replaces every free string for which hit is true, and returns how many
// there were. Enums, numbers, hashes and times cannot hold a secret.
func (r *Receipt) redact(hit func(string) bool) (n uint64) {
	one := func(list ...*string) {
		for _, p := range list {
			if hit(*p) {
				*p = Redacted
				n++
			}
		}
	}
	many := func(list []string) {
		for i := range list {
			one(&list[i])
		}
	}
	pairs := func(m map[string]string) map[string]string {
		out := make(map[string]string, len(m))
		for _, k := range canon.Keys(m) { // sorted, so that the result is one
			v := m[k]
			if hit(k) {
				k, v = fmt.Sprintf("redacted.%d", n), Redacted
				n++
			}
			one(&v)
			out[k] = v
		}
		return out
	}
	if o := r.Open; o != nil {
		one(&o.Bundle, &o.Code, &o.Event, &o.Floor, &o.FloorAt, &o.Parent, &o.Provider, &o.Text)
		many(o.Points)
		many(o.NotSeen)
		many(o.Deliveries)
		o.Facts = pairs(o.Facts)
		o.Modules, o.Sets = redactKeys(o.Modules, hit, &n), redactKeys(o.Sets, hit, &n)
	}
	if s := r.State; s != nil {
		one(&s.From, &s.To, &s.Reason)
	}
	if l := r.Close; l != nil {
		l.Out, l.Verdicts = redactKeys(l.Out, hit, &n), redactKeys(l.Verdicts, hit, &n)
	}
	if a := r.Act; a != nil {
		one(&a.ID, &a.Scheme, &a.Host, &a.Method, &a.Connection, &a.Repository, &a.Name)
		a.Args, a.Units = redactKeys(a.Args, hit, &n), redactKeys(a.Units, hit, &n)
	}
	if d := r.Dec; d != nil {
		one(&d.Fault, &d.Rule, &d.Reason, &d.By)
	}
	if o := r.Out; o != nil {
		one(&o.Code, &o.Address)
	}
	if r.Obs != nil { // one for many receipts
		o := *r.Obs
		one(&o.Point, &o.Kind)
		r.Obs = &o
	}
	if c := r.Change; c != nil {
		one(&c.Bundle, &c.By, &c.Enforcer)
	}
	if c := r.Cred; c != nil {
		one(&c.Name, &c.Host)
		c.Scope = pairs(c.Scope)
	}
	if k := r.Key; k != nil {
		one(&k.ID)
	}
	if l := r.Loss; l != nil {
		one(&l.Cause)
	}
	if d := r.Disc; d != nil {
		one(&d.By, &d.What)
		many(d.Classes)
	}
	r.X = pairs(r.X)
	return n
}

func redactKeys[V any](m map[string]V, hit func(string) bool, n *uint64) map[string]V {
	out := make(map[string]V, len(m))
	for _, k := range canon.Keys(m) {
		v := m[k]
		if hit(k) {
			k = fmt.Sprintf("redacted.%d", *n)
			*n++
		}
		out[k] = v
	}
	return out
}

// scanner searches bytes for any of a set of values in any of their encodings.
// Every pattern has at least window bytes; a bit set of the hashes of their
// first window bytes keeps the search at about a nanosecond a byte.
type scanner struct {
	patterns map[[window]byte][][]byte
	bits     [1 << 12 / 64]uint64
}

const window = 8

func newScanner(values [][]byte) *scanner {
	s := &scanner{patterns: map[[window]byte][][]byte{}}
	for _, v := range values {
		if len(v) < minSecret {
			continue
		}
		for _, p := range encodings(v) {
			s.add(p)
		}
	}
	return s
}

func (s *scanner) add(p []byte) {
	if len(p) < window {
		return
	}
	k := [window]byte(p[:window])
	if slices.ContainsFunc(s.patterns[k], func(q []byte) bool { return bytes.Equal(p, q) }) {
		return
	}
	s.patterns[k] = append(s.patterns[k], p)
	h := bucketOf(p)
	s.bits[h/64] |= 1 << (h % 64)
}

func bucketOf(b []byte) uint32 {
	x := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	return x * 2654435761 >> 20
}

func (s *scanner) found(b []byte) bool {
	if len(s.patterns) == 0 {
		return false
	}
	for i := 0; i+window <= len(b); i++ {
		h := bucketOf(b[i:])
		if s.bits[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		for _, p := range s.patterns[[window]byte(b[i:i+window])] {
			if bytes.HasPrefix(b[i:], p) {
				return true
			}
		}
	}
	return false
}

// encodings returns the forms of v that are searched for: v itself and, where
// they are long enough to mean something, its halves; each of these plain and
// reversed, as it is and as it stands inside a JSON string; and v in base64 and
// base64url at every alignment, in hex, and percent-encoded wholly, as a query
// does and as a path does.
func encodings(v []byte) [][]byte {
	plain := [][]byte{v}
	if half := len(v) / 2; half >= 2*minSecret {
		plain = append(plain, v[:half], v[half:])
	}
	var out [][]byte
	for _, p := range plain {
		for _, q := range [][]byte{p, reversed(p)} {
			out = append(out, q, bytes.ReplaceAll(bytes.ReplaceAll(q, []byte(`\`), []byte(`\\`)), []byte(`"`), []byte(`\"`)))
		}
	}
	lower := hex.EncodeToString(v)
	out = append(out, []byte(lower), []byte(strings.ToUpper(lower)))
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for skip := range 3 {
			out = append(out, aligned(e, v, skip))
		}
	}
	out = append(out, percent(v, "%02x"), percent(v, "%02X"))
	q := url.QueryEscape(string(v))
	return append(out, []byte(q), []byte(strings.ReplaceAll(q, "+", "%20")), []byte(url.PathEscape(string(v))))
}

// aligned returns the characters of the base64 form of "skip bytes, then v, then
// anything" that depend on v alone.
func aligned(e *base64.Encoding, v []byte, skip int) []byte {
	b := []byte(e.EncodeToString(append(make([]byte, skip), v...)))
	first := (skip*8 + 5) / 6 // characters that bits of the skipped bytes touch
	if (len(v)+skip)%3 != 0 {
		b = b[:len(b)-1] // its last bits belong to what follows
	}
	return b[first:]
}

func percent(v []byte, verb string) []byte {
	var b strings.Builder
	for _, c := range v {
		b.WriteByte('%')
		fmt.Fprintf(&b, verb, c)
	}
	return []byte(b.String())
}

func reversed(v []byte) []byte {
	r := slices.Clone(v)
	slices.Reverse(r)
	return r
}
