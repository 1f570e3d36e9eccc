package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// PutAction keeps the canonical bytes of an action under the leaf hash of its
// decision receipt, for reviewers and replay. The same bytes twice are fine;
// other bytes under a hash that is taken are a *FenceError. Deleting the
// stream changes no receipt.
func (b *Bus) PutAction(ctx context.Context, leafHash string, action []byte) error {
	subject, err := actionSubject(leafHash)
	if err != nil {
		return err
	}
	_, err = b.js.Publish(ctx, subject, action, jetstream.WithExpectLastSequencePerSubject(0))
	if err == nil {
		return nil
	}
	have, seq, headErr := b.head(ctx, Actions, subject)
	switch {
	case headErr != nil || seq == 0:
		return fmt.Errorf("couldn't store the action of %s: %w", leafHash, errors.Join(err, headErr))
	case bytes.Equal(have.Data, action):
		return nil
	}
	return &FenceError{Stream: Actions, Subject: subject, Seq: seq, Why: OtherBytes}
}

// GetAction returns what PutAction stored, or ErrNotFound.
func (b *Bus) GetAction(ctx context.Context, leafHash string) ([]byte, error) {
	subject, err := actionSubject(leafHash)
	if err != nil {
		return nil, err
	}
	m, seq, err := b.head(ctx, Actions, subject)
	if err != nil {
		return nil, err
	}
	if seq == 0 {
		return nil, fmt.Errorf("action of %s: %w", leafHash, ErrNotFound)
	}
	return m.Data, nil
}

func actionSubject(leafHash string) (string, error) {
	if !validTokens(leafHash, 1) {
		return "", fmt.Errorf("bus: %q is not a leaf hash", leafHash)
	}
	return actionsPrefix + leafHash, nil
}

// head reads the last message on a subject from the stream's leader; seq 0
// means that there is none. It never uses direct get, which a lagging replica
// may answer.
func (b *Bus) head(ctx context.Context, stream, subject string) (m Msg, seq uint64, err error) {
	ctx, cancel := request(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return Msg{}, 0, fmt.Errorf("couldn't read the head of %s: %w", subject, err)
	}
	raw, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Msg{}, 0, nil
	}
	if err != nil {
		return Msg{}, 0, fmt.Errorf("couldn't read the head of %s: %w", subject, err)
	}
	return Msg{Subject: raw.Subject, Data: raw.Data, Header: flat(raw.Header), Stream: stream, Seq: raw.Sequence}, raw.Sequence, nil
}
