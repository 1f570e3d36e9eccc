package enforcers

import "sync"

// names counts the distinct names a session used under each wildcard rule, so
// that a wildcard is no channel of its own: one label per request could carry
// data out through the name alone (EG-109). It outlives a policy swap.
type names struct {
	mu sync.Mutex
	by map[string]map[string]struct{} // rule -> names
}

// admit counts a's name under the grant and reports whether it is within the
// cap.
func (n *names) admit(grant *Grant, a *Action) bool {
	if !grant.Hosts.Wildcard() {
		return true
	}
	name := a.host()
	if name == "" {
		return true
	}
	limit := grant.Names
	if limit == 0 {
		limit = DefaultNames
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.by[grant.Rule]
	if _, ok := seen[name]; ok {
		return true
	}
	if len(seen) >= limit {
		return false
	}
	if seen == nil {
		seen = make(map[string]struct{})
		if n.by == nil {
			n.by = make(map[string]map[string]struct{})
		}
		n.by[grant.Rule] = seen
	}
	seen[name] = struct{}{}
	return true
}
