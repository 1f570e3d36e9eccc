package enforcers

import "sync"

// uploads counts what a session in shadow has sent to each host that nothing
// lists, so that a cap on one request is no cap on one packet of many (EG-93).
// It outlives a policy swap.
type uploads struct {
	mu sync.Mutex
	by map[string]int64 // host -> bytes
}

// Sent counts n more bytes that the action sends, and reports whether they may
// go: a would-block shares DefaultUp with everything else that its session sends
// to the same host. What a rule allows is not counted here.
func (p *Permit) Sent(n int64) bool {
	if !p.genuine() {
		return false
	}
	if !p.denied {
		return true
	}
	u, host := &p.gate.uploads, p.act.host()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.by = make(map[string]int64)
	}
	if n > DefaultUp-u.by[host] {
		return false
	}
	u.by[host] += n
	return true
}
