package receipts

import (
	"crypto/hmac"
	"crypto/sha256"
)

// CommitKey derives from a session's commitment key the key for one label
// (path, query, ref, body, ...). Handing an auditor a label's key opens the
// session's commitments under that label, and no other label.
func CommitKey(session []byte, label string) [32]byte {
	m := hmac.New(sha256.New, session)
	m.Write([]byte("gatehouse-commit/1\n"))
	m.Write([]byte(label))
	return [32]byte(m.Sum(nil))
}

// Commit returns the keyed commitment to value under a label key: HMAC-SHA256.
// A plain hash would let anyone try likely values; without the key nobody can,
// and when the session's key is destroyed the value is gone for good.
func Commit(label [32]byte, value []byte) Hash {
	m := hmac.New(sha256.New, label[:])
	m.Write(value)
	return Hash(m.Sum(nil))
}

// Opening discloses one committed value of a receipt.
type Opening struct {
	Session string
	Seq     uint64
	Label   string   // label in Act.Args, or "in" for the decision input
	Key     [32]byte // CommitKey of the session and the label
	Value   []byte
}

// Opens reports whether the opening matches a commitment of r.
func (o *Opening) Opens(r *Receipt) bool { // RC-32
	if r.Session != o.Session || r.Seq != o.Seq {
		return false
	}
	var want Hash
	switch {
	case o.Label == "in":
		want = r.In
	case r.Act != nil:
		want = r.Act.Args[o.Label]
	}
	if want.IsZero() {
		return false
	}
	got := Commit(o.Key, o.Value)
	return hmac.Equal(got[:], want[:])
}
