package operations

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

// maxBody bounds a request's body, whatever the operation's own limit is.
const maxBody = 1 << 20

func readAll(r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, problem.Wrap(err, CodeArguments, "the arguments could not be read", "")
	case len(b) > maxBody:
		return nil, problem.New(CodeArguments, "the arguments are too large", "")
	}
	return b, nil
}

func reply(w http.ResponseWriter, status int, v any) { answer(w, status, "application/json", v) }

func answer(w http.ResponseWriter, status int, kind string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "internal", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// refuse answers as RFC 9457 with members of Gatehouse's own. Nothing in it
// comes from outside.
func refuse(w http.ResponseWriter, d enforcers.Decision, err error) {
	code := string(problem.CodeOf(err))
	status := http.StatusForbidden
	switch code {
	case CodeArguments, CodeKey:
		status = http.StatusBadRequest
	case CodeUnlisted:
		status = http.StatusNotFound
	case CodeFailed, CodeResult, string(problem.Internal):
		status = http.StatusBadGateway
	case enforcers.CodeReceiptUnavailable:
		status = http.StatusServiceUnavailable
	}
	body := map[string]any{"type": "about:blank", "title": message(err), "status": status, "code": code}
	if hint := problem.HintOf(err); hint != "" {
		body["hint"] = hint
	}
	if d.Rule != "" {
		body["rule"] = d.Rule
	}
	if !d.Receipt.IsZero() {
		body["receipt"] = d.Receipt.String()
		w.Header().Set("Gatehouse-Receipt", d.Receipt.String())
	}
	answer(w, status, "application/problem+json", body)
}

// message is what a problem says by itself, without its cause: that may hold
// words from outside.
func message(err error) string {
	var p *problem.Error
	if errors.As(err, &p) {
		return p.Msg
	}
	return "the operation failed"
}
