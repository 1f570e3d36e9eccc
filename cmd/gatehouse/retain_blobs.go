package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"time"

	"gatehouse/internal/journal"
)

// sweep removes the blobs that were last put before old and that nothing in the
// journal names any more. It runs after a trim, because nothing else takes a
// name away. A journal that cannot be read whole removes nothing.
func (r *retention) sweep(ctx context.Context, old time.Time) (removed int, err error) {
	names, err := r.blobs.Old(old)
	if err != nil || len(names) == 0 {
		return 0, err
	}
	left := newMentions(names)
	for group, err := range r.journal.Groups(0) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		for _, rec := range group {
			left.read(rec)
		}
		if len(left.unseen) == 0 {
			return 0, nil
		}
	}
	for name := range left.unseen {
		gone, err := r.blobs.Remove(name, old)
		if err != nil {
			return removed, err
		}
		if gone {
			removed++
		}
	}
	return removed, nil
}

// mentions looks for the names of blobs in records, in every form that a digest
// has in one, whatever the record says about it: a name that stands there by
// chance keeps a blob too long, and nothing worse.
type mentions struct {
	unseen map[string]bool
	forms  map[[mentionKey]byte][]spelling
	first  [1 << 16]bool // first two bytes of any spelling
}

// spelling is one way to write a name.
type spelling struct {
	text []byte
	name string
}

// mentionKey is how many bytes of a form find it.
const mentionKey = 8

func newMentions(names []string) *mentions {
	m := &mentions{unseen: map[string]bool{}, forms: map[[mentionKey]byte][]spelling{}}
	for _, name := range names {
		raw, err := hex.DecodeString(name)
		if err != nil {
			continue // no name of a blob
		}
		m.unseen[name] = true
		for _, text := range [][]byte{
			[]byte(name), bytes.ToUpper([]byte(name)), raw,
			[]byte(base64.RawURLEncoding.EncodeToString(raw)), []byte(base64.RawStdEncoding.EncodeToString(raw)),
		} {
			key := [mentionKey]byte(text)
			m.forms[key] = append(m.forms[key], spelling{text, name})
			m.first[uint16(text[0])<<8|uint16(text[1])] = true
		}
	}
	return m
}

func (m *mentions) read(rec journal.Record) {
	d := rec.Data
	for i := 0; i+mentionKey <= len(d); i++ {
		if !m.first[uint16(d[i])<<8|uint16(d[i+1])] {
			continue
		}
		for _, f := range m.forms[[mentionKey]byte(d[i:])] {
			if bytes.HasPrefix(d[i:], f.text) {
				delete(m.unseen, f.name)
			}
		}
	}
}
