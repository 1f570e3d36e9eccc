package receipts

import (
	"errors"
	"fmt"
)

// Header names of a receipt or event as a message. Headers are evidence that is
// checked, never input that is believed.
const (
	HeaderType = "Gatehouse-Type" // receipt type, or "event"
	HeaderSeal = "Gatehouse-Seal" // Seal.Header
	HeaderID   = "Nats-Msg-Id"    // leaf hash
)

// TypeEvent is the HeaderType of a sealed event.
const TypeEvent = "event"

// Message is one stored message of a session or event stream.
type Message struct {
	Data []byte
	Type string // HeaderType
	Seal string // HeaderSeal
	ID   string // HeaderID
}

// Open verifies the message against a keyset: the seal by a trusted key covers
// exactly these bytes and the other headers agree with them. It returns the seal
// header, and the receipt unless the message is an event. A caller that reads a
// stream still follows Prev, Seq and the log index itself, or uses Verify on an
// export.
func (m *Message) Open(ks *Keyset) (*SealHeader, *Receipt, error) {
	h, err := ParseHeader(m.Seal)
	if err != nil {
		return nil, nil, err
	}
	leaf := Leaf(m.Data)
	if err := h.Verify(leaf, ks); err != nil {
		return nil, nil, err
	}
	if m.ID != leaf.String() { // RC-26
		return nil, nil, errors.New("message id is not the leaf hash")
	}
	if m.Type == TypeEvent {
		return h, nil, nil
	}
	r, err := Decode(m.Data)
	if err != nil {
		return nil, nil, err
	}
	if string(r.Type) != m.Type { // RC-25
		return nil, nil, fmt.Errorf("header says %.40q, payload says %s", m.Type, r.Type)
	}
	if r.Log != ks.Origin { // RC-13
		return nil, nil, fmt.Errorf("receipt of log %s in %s", r.Log, ks.Origin)
	}
	return h, r, nil
}
