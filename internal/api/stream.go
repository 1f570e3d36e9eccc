package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"gatehouse/internal/view"
)

// pingEvery is how long a stream stays silent before it says that it lives.
const pingEvery = 15 * time.Second

// stalledAfter is how long a reader may take nothing before its stream ends: a
// stream has no end of its own, and nobody keeps one open by not reading it.
const stalledAfter = time.Minute

// streamInput is the query of the receipt stream.
type streamInput struct {
	Session string `query:"session" maxLength:"64" doc:"one session; all when left out"`
	Last    string `header:"Last-Event-ID" maxLength:"128" doc:"id of the last event that was read"`
}

// stream adds the route that sends receipts as server-sent events: id is the
// cursor, event is receipt, data is a Receipt. A session's stream ends behind its
// session.close with an event named end; asking again from there is 204, which
// stops a browser's reconnects. A stream whose reader may read no more just ends:
// who comes back is told why.
func (a *API) stream() {
	op := a.operation(read, http.MethodGet, "stream-receipts", "/v1/receipts/stream", "Receipts as they become durable, as server-sent events; resumes after Last-Event-ID", http.StatusOK)
	op.Responses["200"] = &huma.Response{Description: "OK", Content: map[string]*huma.MediaType{
		"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}},
	}}
	op.Responses["204"] = &huma.Response{Description: "the session is closed and everything was read"}
	huma.Register(a.huma, op, func(ctx context.Context, in *streamInput) (*huma.StreamResponse, error) {
		if err := a.allow(callerOf(ctx), read); err != nil {
			return nil, a.fail(err)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			_, w := humago.Unwrap(hc)
			if err := a.sendStream(ctx, w, in); err != nil {
				refuse(w, a.fail(err))
			}
		}}, nil
	})
}

// sendStream returns an error only before it has written anything.
func (a *API) sendStream(ctx context.Context, w http.ResponseWriter, in *streamInput) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(a.ending, stop)()
	rows, err := a.o.View.Stream(ctx, in.Session, in.Last)
	if err != nil {
		return err
	}
	if rows == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	type row struct {
		view.Streamed
		err error
	}
	feed := make(chan row)
	go func() {
		defer close(feed)
		for s, err := range rows {
			select {
			case feed <- row{s, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		// Whoever reads slowly waits here; nothing is buffered for them. The deadline is
		// behind the next ping, which moves it.
		_ = out.SetWriteDeadline(time.Now().Add(pingEvery + stalledAfter))
		if err := out.Flush(); err != nil {
			return nil
		}
		select {
		case r, ok := <-feed:
			switch {
			case !ok && ctx.Err() == nil && in.Session != "":
				_, _ = io.WriteString(w, "event: end\ndata: {}\n\n")
				return nil
			case !ok || r.err != nil: // the reader comes back with Last-Event-ID
				if r.err != nil && ctx.Err() == nil {
					a.o.Log.WarnContext(ctx, "receipt stream broke off", slog.Any("err", r.err))
				}
				return nil
			}
			if !a.mayReadOn(ctx) {
				return nil
			}
			b, err := json.Marshal(r.Receipt)
			if err != nil {
				return nil
			}
			if _, err := fmt.Fprintf(w, "id: %s\nevent: receipt\ndata: %s\n\n", r.Cursor, b); err != nil {
				return nil
			}
		case <-tick.C:
			if _, err := io.WriteString(w, ": ping\n\n"); err != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
