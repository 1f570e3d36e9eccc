package bundle

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"gatehouse/internal/event"
)

// Floor is the lowest origin of what a session is shown, and where it stands.
// It speaks of the delivery only: text that a session reads later through the
// door is not rated.
type Floor struct {
	Origin  event.Origin
	Pointer string // "" when nothing is delivered or nothing lowers it
}

// Deliver returns the passages of e that the bundle hands over, in the event's
// order. A value with origin credential is never among them.
func (b *Bundle) Deliver(e *event.Event) []event.Passage {
	list := b.deliverFor(e.Source, e.Kind)
	var out []event.Passage
	for _, p := range e.Text {
		if p.Origin != event.Credential && slices.ContainsFunc(list, func(want string) bool { return pointerMatch(want, p.Pointer) }) {
			out = append(out, p)
		}
	}
	return out
}

// deliverFor returns the pointers handed over for one kind of event.
func (b *Bundle) deliverFor(source, kind string) []string {
	if b.Session.Deliver != nil {
		return b.Session.Deliver
	}
	return DefaultDeliver(source, kind)
}

// Floor returns the lowest origin of the delivered text (of the whole payload
// when the bundle delivers that), and the first pointer that set it.
func (b *Bundle) Floor(e *event.Event) Floor {
	low := Floor{Origin: event.Platform}
	see := func(pointer string, o event.Origin) {
		if o.Below(low.Origin) {
			low = Floor{Origin: o, Pointer: pointer}
		}
	}
	for _, p := range b.Deliver(e) {
		// Passage and table were written by one hand; if they ever differ, the lower one holds.
		see(p.Pointer, event.Join(p.Origin, e.OriginAt(p.Pointer)))
	}
	if b.Session.Payload {
		var tree any
		if err := json.Unmarshal(e.Payload, &tree); err != nil {
			// A body that is not here to be rated is rated as a stranger's.
			see("/", event.Outsider)
			return low
		}
		leaves(tree, "", func(pointer string) {
			if o := e.OriginAt(pointer); o != event.Credential { // redacted before it got here
				see(pointer, o)
			}
		})
	}
	return low
}

// leaves calls fn for every scalar of a JSON value, keys in order.
func leaves(v any, at string, fn func(pointer string)) {
	switch x := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			leaves(x[k], at+"/"+event.Escape(k), fn)
		}
	case []any:
		for i, item := range x {
			leaves(item, at+"/"+strconv.Itoa(i), fn)
		}
	case nil:
	default:
		fn(at)
	}
}

// pointerMatch compares a delivered pointer with a passage's; * stands for an
// index, on either side (a source may tag every element alike).
func pointerMatch(want, have string) bool {
	ws, hs := strings.Split(want, "/"), strings.Split(have, "/")
	if len(ws) != len(hs) {
		return false
	}
	for i, w := range ws {
		if w != hs[i] && !(w == "*" && isIndex(hs[i])) {
			return false
		}
	}
	return true
}

func isIndex(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil || s == "*"
}
