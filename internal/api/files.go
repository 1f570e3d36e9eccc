package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// operation describes one route; every one may answer with a Problem.
func (a *API) operation(s Step, method, id, path, summary string, status int) huma.Operation {
	n := needs[s]
	description := "Needs a role that may " + string(n.act) + "."
	if n.fresh {
		description = "Needs a role that may " + string(n.act) + ", and a login that is minutes old."
	}
	return huma.Operation{
		Description: description,
		Method:      method, OperationID: id, Path: path, Summary: summary, DefaultStatus: status,
		MaxBodyBytes: 1 << 20,
		Responses:    map[string]*huma.Response{"default": a.problemResponse()},
	}
}

func (a *API) problemResponse() *huma.Response {
	schema := a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "")
	return &huma.Response{Description: "Problem", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: schema}}}
}

// document removes the schemas of huma's own errors, which no route answers with.
func (a *API) document() {
	schemas := a.huma.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
}

// files adds the routes that answer with bytes instead of JSON.
func (a *API) files() {
	file(a, read, "session-logs", "/v1/sessions/{id}/logs", "The transcript of a session, untrusted; reading it is a receipt too, but for the machine's own user on the socket", "text/plain; charset=utf-8", "transcript.txt",
		func(ctx context.Context, in *ByID, w io.Writer) error {
			r, err := a.o.Sessions.Logs(ctx, in.ID)
			if err != nil {
				return err
			}
			if err = a.reveal(ctx, a.bundleOf(in.ID), in.ID); err == nil {
				_, err = io.Copy(w, r)
			}
			return errors.Join(err, r.Close())
		})
	file(a, read, "session-artifact", "/v1/sessions/{id}/artifacts/{sha256}", "A file that the agent left, untrusted; reading it is a receipt too, but for the machine's own user on the socket", "application/octet-stream", "artifact",
		func(ctx context.Context, in *struct {
			ByID
			SHA256 string `path:"sha256" minLength:"64" maxLength:"64"`
		}, w io.Writer) error {
			r, err := a.o.Sessions.Artifact(ctx, in.ID, in.SHA256)
			if err != nil {
				return err
			}
			if err = a.reveal(ctx, a.bundleOf(in.ID), in.ID); err == nil {
				_, err = io.Copy(w, r)
			}
			return errors.Join(err, r.Close())
		})
	file(a, read, "receipt-action", "/v1/receipts/{id}/action", "The action that a decision receipt judged, without bodies and values, in the client's words; kept for 30 days; reading it is a receipt too, but for the machine's own user on the socket", "application/json", "action.json",
		func(ctx context.Context, in *ByID, w io.Writer) error {
			b, err := a.o.View.Action(ctx, in.ID)
			if err == nil {
				err = a.reveal(ctx, "", in.ID)
			}
			if err != nil {
				return err
			}
			_, err = w.Write(b)
			return err
		})
	file(a, export, "export-receipts", "/v1/receipts/export", "Receipts as one self-contained file; the export is a receipt too", "application/octet-stream", "gatehouse-receipts.txt",
		func(ctx context.Context, in *struct {
			Session string    `query:"session" maxLength:"64" doc:"one session; all when left out"`
			Since   time.Time `query:"since" doc:"with until: the sessions opened in the period"`
			Until   time.Time `query:"until"`
			Open    []string  `query:"open" enum:"paths,refs" doc:"classes of committed values to disclose"`
		}, w io.Writer) error {
			return a.o.Receipts.Export(ctx, w, ExportOf(*in), callerOf(ctx).Actor)
		})
	file(a, export, "session-envelope", "/v1/sessions/{id}/envelope", "The digests of a session's receipts as one signed DSSE envelope; handing it out is a receipt too", "application/json", "gatehouse-session.dsse.json",
		func(ctx context.Context, in *ByID, w io.Writer) error {
			return a.o.Receipts.Envelope(ctx, w, in.ID, callerOf(ctx).Actor)
		})
}

// bundleOf is the bundle of a session, "" when the lists do not have it yet.
func (a *API) bundleOf(session string) string {
	row, err := a.o.View.Session(session)
	if err != nil {
		return ""
	}
	return row.Bundle
}

func file[I any](a *API, n Step, id, path, summary, contentType, name string, f func(context.Context, *I, io.Writer) error) {
	op := a.operation(n, http.MethodGet, id, path, summary, http.StatusOK)
	op.Responses["200"] = &huma.Response{Description: "OK", Content: map[string]*huma.MediaType{
		contentType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		if err := a.allow(callerOf(ctx), n); err != nil {
			return nil, a.fail(err)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			w := &lateWriter{hc: hc, header: func() {
				hc.SetHeader("Content-Type", contentType)
				hc.SetHeader("Content-Disposition", `attachment; filename="`+name+`"`)
				hc.SetStatus(http.StatusOK)
			}}
			err := f(ctx, in, w)
			switch {
			case err == nil:
				w.start()
			case w.started:
				// The status is gone; a cut connection is the only way to say that the
				// file is not whole.
				a.o.Log.ErrorContext(ctx, "file not sent whole", slog.String("route", id), slog.Any("err", err))
				panic(http.ErrAbortHandler)
			default:
				_, rw := humago.Unwrap(hc)
				refuse(rw, a.fail(err))
			}
		}}, nil
	})
}

// lateWriter sends the header with the first byte, so that an error before it
// can still be a problem.
type lateWriter struct {
	hc      huma.Context
	header  func()
	started bool
}

func (w *lateWriter) start() {
	if !w.started {
		w.started = true
		w.header()
	}
}

// Write sends p.
func (w *lateWriter) Write(p []byte) (int, error) {
	w.start()
	return w.hc.BodyWriter().Write(p)
}
