package diag

import (
	"encoding/json"
	"net/http"
	"sync"

	"gatehouse/internal/problem"
)

// Reason says why a node is not ready.
type Reason struct {
	Name   string       `json:"name"` // the check: journal, bus, bundles ...
	Code   problem.Code `json:"code"`
	Detail string       `json:"detail"`
	Hint   string       `json:"hint,omitempty"`
}

// Health collects readiness checks. It is safe for concurrent use; the zero
// value is ready.
type Health struct {
	mu     sync.Mutex
	checks []check
	notes  []note
}

type note struct {
	name string
	f    func() string
}

type check struct {
	name string
	f    func() error
}

// Check adds a readiness check. f is called for each request and must not
// block: it reads state that its owner keeps. Checks are reported in the order
// they were added.
func (h *Health) Check(name string, f func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check{name, f})
}

// Note adds something that whoever asks for readiness should see although the
// node is ready, for example a weaker policy. f is called like a check's; "" says
// nothing.
func (h *Health) Note(name string, f func() string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, note{name, f})
}

// Notes returns what the notes say, by name.
func (h *Health) Notes() map[string]string {
	h.mu.Lock()
	notes := h.notes
	h.mu.Unlock()
	out := map[string]string{}
	for _, n := range notes {
		if said := n.f(); said != "" {
			out[n.name] = scrub(said)
		}
	}
	return out
}

// Reasons returns the failing checks, none when the node is ready.
func (h *Health) Reasons() []Reason {
	h.mu.Lock()
	checks := h.checks
	h.mu.Unlock()
	reasons := []Reason{}
	for _, c := range checks {
		if err := c.f(); err != nil {
			reasons = append(reasons, Reason{Name: c.name, Code: problem.CodeOf(err), Detail: scrub(err.Error()), Hint: problem.HintOf(err)})
		}
	}
	return reasons
}

func (h *Health) readyz(w http.ResponseWriter, _ *http.Request) {
	reasons := h.Reasons()
	status := http.StatusOK
	if len(reasons) > 0 {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Ready   bool              `json:"ready"`
		Reasons []Reason          `json:"reasons"`
		Notes   map[string]string `json:"notes,omitempty"`
	}{len(reasons) == 0, reasons, h.Notes()})
}
