package receipts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"gatehouse/internal/canon"
)

// MaxReceipt is the largest encoded receipt in bytes.
const MaxReceipt = 64 << 10

// Encode returns the canonical bytes of r: the bytes that are hashed, sealed and
// stored for ever. A receipt outside the schema, a string outside the profile
// (package canon) or a number above 2^53-1 is an error, never changed in silence.
func (r *Receipt) Encode() ([]byte, error) { return r.Append(nil) }

// Append is Encode behind b, whose capacity it uses.
func (r *Receipt) Append(b []byte) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("receipt: %w", err)
	}
	start := len(b)
	c := codecs.Get().(*codec)
	c.reading, c.bad, c.b = false, nil, append(b, '{')
	r.fields(c)
	out, err := append(c.b, '}'), c.bad
	c.b = nil
	codecs.Put(c)
	if err != nil {
		return nil, fmt.Errorf("receipt %s: %w", r.Type, asSchema(err))
	}
	if len(out)-start > MaxReceipt {
		return nil, fmt.Errorf("receipt %s: %w: %d bytes", r.Type, ErrSchema, len(out)-start)
	}
	return out, nil
}

// Decode reads exactly what Encode writes: encoding the result again gives b.
// The error says what is wrong by ErrUnsupported (newer than this package),
// ErrSchema (canonical, but not a receipt of format v1) or ErrCanonical.
func Decode(b []byte) (*Receipt, error) {
	r, err := decode(b)
	switch {
	case err == nil:
		return r, nil
	case newer(b):
		return nil, fmt.Errorf("receipt: %w: %w", ErrUnsupported, err)
	case len(b) > MaxReceipt, canon.Valid(b) == nil:
		return nil, fmt.Errorf("receipt: %w", asSchema(err))
	default: // %v: what the walk stumbled over is not what is wrong
		return nil, fmt.Errorf("receipt: %w: %v", ErrCanonical, err)
	}
}

func decode(b []byte) (*Receipt, error) {
	if len(b) > MaxReceipt { // RC-45
		return nil, fmt.Errorf("%d bytes", len(b))
	}
	r := new(Receipt)
	c := codecs.Get().(*codec)
	c.reading = true
	c.s.Reset(b)
	c.s.Object()
	r.fields(c)
	c.s.EndObject()
	err := c.s.End()
	c.s.Reset(nil)
	codecs.Put(c)
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	// The walk above already admits one spelling only; encoding again makes
	// that a checked fact and not a property of its code (RC-22).
	again, err := r.Append(make([]byte, 0, len(b)))
	if err != nil || !bytes.Equal(again, b) {
		return nil, errors.New("encoding again gives other bytes")
	}
	return r, nil
}

// asSchema makes a value that the profile does not allow an ErrSchema.
func asSchema(err error) error {
	if errors.Is(err, ErrSchema) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrSchema, err)
}

// newer reports whether bytes that are no v1 receipt claim to be of another
// version, of a type that v1 does not have, or to carry a critical extension:
// then they are beyond this package, not wrong (RC-23, RC-24).
func newer(b []byte) bool {
	if len(b) > MaxReceipt {
		return false
	}
	var probe struct {
		V    json.Number                `json:"v"`
		Type string                     `json:"type"`
		X    map[string]json.RawMessage `json:"x"`
	}
	if err := json.Unmarshal(b, &probe); err != nil {
		return false
	}
	for k := range probe.X {
		if len(k) > 0 && k[0] == '!' {
			return true
		}
	}
	if v, err := probe.V.Int64(); err == nil && v != Version {
		return true
	}
	return probe.Type != "" && bodiesOf(Type(probe.Type)) == 0
}
