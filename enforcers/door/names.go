package door

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"
)

// Synthetic addresses come from blocks that netguard never calls public: the
// benchmark network and a unique local prefix. An address that escaped the
// table would be refused as a literal.
var (
	synthetic4 = netip.MustParsePrefix("198.18.0.0/15")
	synthetic6 = netip.MustParsePrefix("fd67:6174:6568:6f75::/64")
)

// Bounds on a session's names: DESIGN.md section 9.
const (
	maxNames       = 4096
	namesPerMinute = 64
)

// names is a session's own table of names and the addresses that stand for
// them inside. An address is never given to a second name.
type names struct {
	clock func() time.Time

	mu    sync.Mutex
	order []string       // index -> name; address index+1
	index map[string]int // name -> index
	rate  [namesPerMinute]time.Time
	slot  int
}

// admit reports whether a name may be judged now: "" for a name the table
// knows or a new one within the bounds, else the code of the bound it passes.
func (n *names) admit(name string) (code string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.index[name]; ok {
		return ""
	}
	if len(n.order) == maxNames {
		return codeNamesFull
	}
	// A ring of the newest times: the oldest of them must be a minute old.
	now := n.clock()
	if old := n.rate[n.slot]; !old.IsZero() && now.Sub(old) < time.Minute {
		return codeNameRate
	}
	n.rate[n.slot] = now
	n.slot = (n.slot + 1) % namesPerMinute
	return ""
}

// addresses returns the synthetic addresses of a name that was let through,
// making them when it is new; ok is false when the table is full.
func (n *names) addresses(name string) (v4, v6 netip.Addr, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, known := n.index[name]
	if !known {
		if len(n.order) == maxNames {
			return v4, v6, false
		}
		i = len(n.order)
		n.order = append(n.order, name)
		if n.index == nil {
			n.index = make(map[string]int)
		}
		n.index[name] = i
	}
	v4, v6 = syntheticOf(i)
	return v4, v6, true
}

// name returns the name that a synthetic address stands for.
func (n *names) name(a netip.Addr) (string, bool) {
	a = a.Unmap()
	var i uint64
	switch {
	case synthetic4.Contains(a):
		b, base := a.As4(), synthetic4.Addr().As4()
		i = uint64(binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(base[:]))
	case synthetic6.Contains(a):
		b := a.As16()
		i = binary.BigEndian.Uint64(b[8:])
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if i == 0 || i > uint64(len(n.order)) {
		return "", false
	}
	return n.order[i-1], true
}

func syntheticOf(index int) (v4, v6 netip.Addr) {
	b4, b6 := synthetic4.Addr().As4(), synthetic6.Addr().As16()
	n := uint32(index + 1)
	binary.BigEndian.PutUint32(b4[:], binary.BigEndian.Uint32(b4[:])+n)
	binary.BigEndian.PutUint64(b6[8:], uint64(n))
	return netip.AddrFrom4(b4), netip.AddrFrom16(b6)
}
