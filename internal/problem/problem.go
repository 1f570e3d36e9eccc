package problem

import (
	"errors"
	"fmt"
)

// Code names one failure. Codes are a closed enum (see codes.go); the same
// string is used in RFC 9457 bodies, CLI output, metric labels and receipts.
type Code string

// Error is an error that a person can act on: one line saying what happened,
// a stable Code, and a Hint naming the next step. It never carries a secret or
// untrusted text in Msg or Hint; wrap the cause in Err instead.
type Error struct {
	Code Code
	Msg  string // lower case, no full stop
	Hint string // one imperative sentence, may be empty
	Err  error  // cause, for the operator's log only; may be nil
}

// New returns an Error without a cause.
func New(code Code, msg, hint string) *Error { return &Error{Code: code, Msg: msg, Hint: hint} }

// Wrap returns an Error whose cause is err.
func Wrap(err error, code Code, msg, hint string) *Error {
	return &Error{Code: code, Msg: msg, Hint: hint, Err: err}
}

// Error returns "msg (code): cause".
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s (%s): %v", e.Msg, e.Code, e.Err)
	}
	return fmt.Sprintf("%s (%s)", e.Msg, e.Code)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the Code of the first *Error in err's tree, or Internal.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// HintOf returns the Hint of the first *Error in err's tree, or "".
func HintOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Hint
	}
	return ""
}
