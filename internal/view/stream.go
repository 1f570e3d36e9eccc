package view

import (
	"context"
	"encoding/base64"
	"iter"
	"strconv"
	"strings"

	"gatehouse/internal/bus"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Streamed is one receipt as it arrives, with the cursor after it.
type Streamed struct {
	Cursor  string
	Receipt Receipt
}

// Stream yields the receipts of one session, or of all when session is "", from
// after the cursor on, and waits for more until ctx ends. A session's stream ends
// with its session.close; nil means that the cursor is that end. The cursor names the stream position and the receipt
// there: a stream that was made again since, with other positions, is
// problem.Conflict, never a silent gap.
func (v *View) Stream(ctx context.Context, session, after string) (iter.Seq2[Streamed, error], error) {
	filter, from := "", uint64(1)
	if session != "" {
		v.mu.RLock()
		x := v.sessions.byID[session]
		if x != nil {
			from = x.opened
		}
		v.mu.RUnlock()
		if x == nil {
			return nil, notFound("session", session)
		}
		filter = "gatehouse.v1.sessions." + session
	}
	if after != "" {
		at, err := v.resume(ctx, filter, after)
		if err != nil {
			return nil, err
		}
		if session != "" && isClose(at) {
			return nil, nil
		}
		from = at.Seq + 1
	}
	return func(yield func(Streamed, error) bool) {
		for m, err := range v.src.Follow(ctx, bus.Sessions, filter, from) {
			if err != nil {
				yield(Streamed{}, err)
				return
			}
			id := strings.TrimPrefix(m.Subject, "gatehouse.v1.sessions.")
			if !yield(Streamed{streamCursor(m), v.receipt(id, m)}, nil) || session != "" && isClose(m) {
				return
			}
		}
	}, nil
}

// resume finds the message that a cursor names.
func (v *View) resume(ctx context.Context, filter, after string) (bus.Msg, error) {
	gone := problem.New(problem.Conflict, "the stream no longer holds what the cursor names", "Start again without Last-Event-ID and skip what you have.")
	b, err := base64.RawURLEncoding.DecodeString(after)
	digits, _, ok := strings.Cut(string(b), ".")
	seq, perr := strconv.ParseUint(strings.TrimPrefix(digits, "t"), 36, 64)
	if err != nil || perr != nil || !ok || seq == 0 {
		return bus.Msg{}, problem.New(problem.Usage, "Last-Event-ID not understood", "Send the id of the last event, or none.")
	}
	for m, err := range v.src.Read(ctx, bus.Sessions, filter, seq) {
		if err != nil {
			return bus.Msg{}, err
		}
		if streamCursor(m) != after {
			return bus.Msg{}, gone
		}
		return m, nil
	}
	return bus.Msg{}, gone
}

func streamCursor(m bus.Msg) string {
	leaf := receipts.Leaf(m.Data)
	return base64.RawURLEncoding.EncodeToString([]byte("t" + strconv.FormatUint(m.Seq, 36) + "." + leaf.String()[:16]))
}

func isClose(m bus.Msg) bool {
	return m.Header[receipts.HeaderType] == string(receipts.TypeSessionClose)
}
