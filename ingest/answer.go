package ingest

import (
	"encoding/json"
	"net/http"
	"strconv"

	"gatehouse/internal/problem"
)

// answer is what a sender is told: reference section 5.5.
type answer struct {
	status int
	code   problem.Code // of a refusal
	result string       // for metrics
	said   string       // accepted or duplicate
	id     string
	echo   string // challenge of a verified delivery
	bytes  int
}

// answered is exactly 200 for every outcome that was stored (IN-05).
func answered(result, id string) answer {
	said := "accepted"
	if result == "duplicate" {
		said = result
	}
	return answer{status: http.StatusOK, result: result, said: said, id: id}
}

func refuseErr(err error) answer { return refuse(problem.CodeOf(err)) }

func refuse(code problem.Code) answer {
	return answer{status: status(code), code: code, result: string(code)}
}

// status maps the closed list of codes. A code that is not in it is a fault of
// this node: 503, so that the sender tries again.
func status(code problem.Code) int {
	switch code {
	case problem.Unauthorized:
		return http.StatusUnauthorized
	case problem.BadJSON, problem.TooDeep, problem.AmbiguousForm, problem.DeliveryIDMissing, problem.Stale, problem.BodyShort:
		return http.StatusBadRequest
	case problem.MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case problem.BodySlow:
		return http.StatusRequestTimeout
	case problem.BodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case problem.ContentType, problem.ContentEncoding:
		return http.StatusUnsupportedMediaType
	case problem.RateLimited:
		return http.StatusTooManyRequests
	case problem.HeadersTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	}
	return http.StatusServiceUnavailable
}

// retryAfter is in seconds: soon for what passes by itself.
func (a answer) retryAfter() int {
	switch a.code {
	case problem.RateLimited, problem.Busy:
		return 2
	case problem.Draining:
		return 10
	}
	return 30
}

type answerBody struct {
	Status     string `json:"status"`
	ID         string `json:"id,omitempty"`
	Code       string `json:"code,omitempty"`
	Durability string `json:"durability,omitempty"`
	Challenge  string `json:"challenge,omitempty"`
}

func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	body := answerBody{Status: a.said, ID: a.id, Durability: "fsync", Challenge: a.echo}
	if a.status != http.StatusOK {
		// The connection is not used again: its body may not have been read.
		h.Set("Connection", "close")
		body = answerBody{Status: "refused", Code: string(a.code)}
	}
	switch a.status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", strconv.Itoa(a.retryAfter()))
	case http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	}
	b, err := json.Marshal(body)
	if err != nil {
		a.status = http.StatusServiceUnavailable
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(a.status)
	_, _ = w.Write(b)
}
