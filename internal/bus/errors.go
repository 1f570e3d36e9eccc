package bus

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/problem"
)

// wrongSequence reports whether the server refused a publish because the
// subject does not end where the writer thinks. Replicated streams have a code
// of their own for it.
func wrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// Why says what a FenceError found.
type Why string

// Reasons of a fence.
const (
	OtherBytes  Why = "other bytes"          // the position holds something else
	StreamAhead Why = "ahead of the journal" // the stream goes on after the journal ends
)

// FenceError says that somebody else wrote to a subject of this node: the
// stream holds other bytes than the journal, or more. The node must stop
// writing; it never takes over what the stream says.
type FenceError struct {
	Stream  string
	Subject string
	Seq     uint64 // stream sequence of the foreign message
	Why     Why
}

// Error names the subject and the position.
func (e *FenceError) Error() string {
	return fmt.Sprintf("stream %s, %s at %d: %s (%s)", e.Stream, e.Subject, e.Seq, e.Why, problem.StreamFenced)
}

// Unwrap gives the problem that operators see.
func (e *FenceError) Unwrap() error {
	return problem.New(problem.StreamFenced, "a NATS stream holds what this node's journal does not",
		"Find out who else writes to the stream before you start again; receipts in the journal are intact.")
}

// DamageError says that a stream lost records which the journal still has.
type DamageError struct {
	Stream  string
	Subject string // "" when the loss shows only in the stream's own count
	Lost    uint64 // at least this many
}

// Error names the stream.
func (e *DamageError) Error() string {
	if e.Subject == "" {
		return fmt.Sprintf("stream %s counts %d messages that it cannot deliver (%s)", e.Stream, e.Lost, problem.StoreDamage)
	}
	return fmt.Sprintf("stream %s, %s: %d records missing (%s)", e.Stream, e.Subject, e.Lost, problem.StoreDamage)
}

// Unwrap gives the problem that operators see.
func (e *DamageError) Unwrap() error {
	return problem.New(problem.StoreDamage, "a NATS stream lost records that the journal has",
		"Stop the node, move the JetStream store away and start again: the streams are made anew from the journal.")
}

// DriftError says that a stream is set up so that records may be lost.
type DriftError struct{ Differences []Difference }

// Error lists the differences.
func (e *DriftError) Error() string {
	lines := make([]string, len(e.Differences))
	for i, d := range e.Differences {
		lines[i] = d.String()
	}
	return fmt.Sprintf("%s (%s)", strings.Join(lines, "; "), problem.StreamDrift)
}

// Unwrap gives the problem that operators see.
func (e *DriftError) Unwrap() error {
	return problem.New(problem.StreamDrift, "a NATS stream is set up so that it may lose records",
		"Run gatehouse doctor, correct the stream's settings, or move the store away and start again.")
}
