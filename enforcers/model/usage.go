package model

import (
	"bytes"
	"encoding/json"

	"gatehouse/enforcers/spend"
)

// report is what a provider said of a call.
type report struct {
	spend.Usage
	model string // that answered, as reported
	tier  string // that served it
	final bool   // nothing of the usage is outstanding
	extra bool   // something was used that tokens do not pay for
	media bool   // some of the tokens have rates that the table does not know
}

// meter reads usage from an answer as it passes.
type meter interface {
	event(data []byte) // the data of one server-sent event
	end()              // a stream ended in order
	body(b []byte)     // a whole answer
	report() report
}

// A provider's numbers are a stranger's: a field that is no number is absent,
// and absent usage costs what was held.

// anthropicTokens counts classes that do not overlap.
type anthropicTokens struct {
	Input    int64 `json:"input_tokens"`
	Output   int64 `json:"output_tokens"`
	Read     int64 `json:"cache_read_input_tokens"`
	Written  int64 `json:"cache_creation_input_tokens"`
	Creation struct {
		Short int64 `json:"ephemeral_5m_input_tokens"`
		Long  int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Iterations []anthropicTokens `json:"iterations"`
	Tier       string            `json:"service_tier"`
	Tools      map[string]int64  `json:"server_tool_use"`
}

// classes returns the tokens by price. Written tokens whose lifetime is not
// told are taken for the dearer ones.
func (t *anthropicTokens) classes() spend.Usage {
	u := spend.Usage{Input: t.Input, Output: t.Output, CacheRead: t.Read, CacheWrite5m: t.Creation.Short, CacheWrite1h: t.Creation.Long}
	u.CacheWrite1h += max(0, t.Written-t.Creation.Short-t.Creation.Long)
	if len(t.Iterations) == 0 {
		return u
	}
	var sum spend.Usage
	for i := range t.Iterations {
		one := t.Iterations[i]
		one.Iterations = nil
		sum = add(sum, one.classes())
	}
	return most(u, sum)
}

// most takes the larger of each class: running totals may repeat and may
// restate, and are never added.
func most(a, b spend.Usage) spend.Usage {
	return spend.Usage{
		Input: max(a.Input, b.Input), CacheRead: max(a.CacheRead, b.CacheRead), Output: max(a.Output, b.Output),
		CacheWrite5m: max(a.CacheWrite5m, b.CacheWrite5m), CacheWrite1h: max(a.CacheWrite1h, b.CacheWrite1h),
	}
}

func add(a, b spend.Usage) spend.Usage {
	return spend.Usage{
		Input: a.Input + b.Input, CacheRead: a.CacheRead + b.CacheRead, Output: a.Output + b.Output,
		CacheWrite5m: a.CacheWrite5m + b.CacheWrite5m, CacheWrite1h: a.CacheWrite1h + b.CacheWrite1h,
	}
}

type anthropicUsage struct{ r report }

func (a *anthropicUsage) take(t *anthropicTokens) {
	a.r.Usage = most(a.r.Usage, t.classes())
	a.r.extra = a.r.extra || min(t.Input, t.Output, t.Read, t.Written, t.Creation.Short, t.Creation.Long) < 0
	if t.Tier != "" {
		a.r.tier = t.Tier
	}
	for _, n := range t.Tools {
		a.r.extra = a.r.extra || n > 0
	}
}

// anthropicAnswer is the part of an answer, or of a stream's event, that tells
// what was used.
type anthropicAnswer struct {
	Type    string           `json:"type"`
	Model   string           `json:"model"`
	Usage   *anthropicTokens `json:"usage"`
	Message *struct {
		Model string           `json:"model"`
		Usage *anthropicTokens `json:"usage"`
	} `json:"message"`
	Delta struct {
		Stop string `json:"stop_reason"`
	} `json:"delta"`
}

func (a *anthropicUsage) event(data []byte) {
	// Most events are pieces of text, and have no usage.
	if !bytes.Contains(data, []byte(`"usage"`)) && !bytes.Contains(data, []byte(`"message_stop"`)) {
		return
	}
	var e anthropicAnswer
	if json.Unmarshal(data, &e) != nil {
		return
	}
	switch e.Type {
	case "message_start":
		if e.Message != nil && e.Message.Usage != nil {
			a.r.model = e.Message.Model
			a.take(e.Message.Usage)
		}
	case "message_delta":
		if e.Usage != nil {
			a.take(e.Usage)
			a.r.final = a.r.final || e.Delta.Stop != ""
		}
	}
}

func (a *anthropicUsage) body(b []byte) {
	var e anthropicAnswer
	if json.Unmarshal(b, &e) == nil && e.Usage != nil {
		a.r.model = e.Model
		a.take(e.Usage)
		a.r.final = true
	}
}

func (a *anthropicUsage) end()           {}
func (a *anthropicUsage) report() report { return a.r }
