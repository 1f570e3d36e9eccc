package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Requests files what one session's agent asks a reviewer for. The session
// cannot name itself: whoever makes the Requests binds it.
type Requests interface {
	// File notes that the session asks for what a refusal of its own refused. An
	// error's code says why not.
	File(ctx context.Context, refusal receipts.Hash) error
}

// Access is the handler of the resource "access". It takes a receipt and no
// words: what an agent would say of itself could speak for whoever wrote the
// event, so that a reviewer sees only what was refused, as it was recorded.
func Access(f Requests) door.Handler { return access{f} }

type access struct{ requests Requests }

// ServeDoor files one request. It grants nothing, now or later.
func (a access) ServeDoor(w http.ResponseWriter, r *door.Request) {
	if r.Method != http.MethodPost || Rest(r, "access") != "" {
		w.Header().Set("Allow", "POST")
		Problem(w, http.StatusMethodNotAllowed, "method_not_allowed", "Ask with POST "+URL+`access and {"receipt": "..."}.`)
		return
	}
	refusal, err := askedReceipt(r.Body)
	if err != nil {
		Problem(w, http.StatusBadRequest, CodeAccess, `Send {"receipt": "..."} with the receipt of a refusal, and nothing else.`)
		return
	}
	found, ok := r.Gate.Explain(refusal)
	if !ok {
		NotFound(w) // EG-73: another session's receipt is as unknown as one that never was
		return
	}
	if found.Decision.Effect == enforcers.Allow {
		Problem(w, http.StatusConflict, CodeAccess, "That action was allowed; there is nothing to ask for.")
		return
	}
	if err := a.requests.File(context.WithoutCancel(r.Context()), refusal); err != nil {
		status := http.StatusForbidden
		if code := problem.CodeOf(err); code == problem.Internal {
			status = http.StatusServiceUnavailable
		}
		Problem(w, status, string(problem.CodeOf(err)), problem.HintOf(err))
		return
	}
	Answer(w, http.StatusAccepted, map[string]string{
		"filed": refusal.String(), "notice": "A reviewer sees what was refused. Nothing is granted to this session; go on without it, or end and say what is missing.",
	})
}

// CodeAccess refuses a request for access that is malformed or asks for what
// was allowed.
const CodeAccess = "access_request"

// askedReceipt reads {"receipt": HASH} and nothing else.
func askedReceipt(body io.Reader) (receipts.Hash, error) {
	raw, err := io.ReadAll(io.LimitReader(body, maxAsked+1))
	if err != nil || len(raw) > maxAsked {
		return receipts.Hash{}, errors.New("too long")
	}
	var ask struct {
		Receipt string `json:"receipt"`
	}
	if err := one(raw, &ask); err != nil {
		return receipts.Hash{}, err
	}
	return receipts.ParseHash(ask.Receipt)
}

// one decodes exactly one JSON object of known fields.
func one(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}
