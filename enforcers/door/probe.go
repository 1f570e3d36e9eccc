package door

import (
	"net/http"
	"slices"
	"strings"
)

// probeZone holds the names that a provider's probe asks for.
const probeZone = ".gatehouse-probe.invalid"

// Expect announces the targets that the provider's probe is about to try. A
// CONNECT for one of them is noted (see Saw) and refused at once: the probe
// runs before the agent, and what it does is not the session's. Expect replaces
// what was announced before; Expect(nil) ends it.
func (d *Door) Expect(targets []string) {
	announced := slices.Clone(targets)
	d.announced.Store(&announced)
}

// probed refuses a CONNECT of the probe.
func (l *link) probed(target string) bool {
	announced := l.d.announced.Load()
	if announced == nil || !slices.Contains(*announced, target) {
		return false
	}
	w := newReply(l.writer(), http.MethodConnect)
	w.close = true
	w.WriteHeader(http.StatusForbidden)
	w.finish()
	return true
}

// probeName reports whether a name is the probe's: it exists for nobody.
func probeName(host string) bool { return strings.HasSuffix(host, probeZone) }
