package gatekeeper

import "gatehouse/gatekeeper/bundle"

// Hardens says what a bundle would lack on this node in hard mode, "" when it
// lacks nothing: the same that admission would refuse its sessions for.
func (g *Gatekeeper) Hardens(b *bundle.Bundle) (why string) {
	modes := map[string]bundle.Mode{}
	for name, e := range b.Enforcers {
		modes[name] = e.Mode
	}
	_, code, why := g.prepare(bundle.Choice{Bundle: b.WithModes(bundle.Hard, modes)})
	if code == "" {
		return ""
	}
	return why
}
