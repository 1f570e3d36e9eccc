package gatekeeper

import (
	"encoding/hex"
	"maps"
	"slices"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/receipts"
)

// proposed returns the proposals that the control chain holds, oldest first.
func (f *fold) proposed() []Proposal {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Proposal, len(f.proposals))
	for i, p := range f.proposals {
		out[i] = *p
		out[i].Approvals, out[i].Beside = slices.Clone(p.Approvals), maps.Clone(p.Beside)
	}
	return out
}

// waiting returns the digest of the version of a bundle that waits, "" if none.
func (f *fold) waiting(name string) (digest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.each(func(p *Proposal) bool { return p.Bundle == name && p.Kind == ProposeVersion }, func(p *Proposal) { digest = p.Digest })
	return digest
}

// waitsBeside reports whether the version of a bundle that waits was asked for
// beside the others as they are now. What another node asked for is that node's.
func (f *fold) waitsBeside(name string, now map[string]string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	same := true
	f.each(func(p *Proposal) bool { return p.Bundle == name && p.Kind == ProposeVersion }, func(p *Proposal) { same = len(p.drifted(now)) == 0 })
	return same
}

// propose folds what one receipt of the control chain means for proposals. The
// caller holds mu.
func (f *fold) propose(c change) {
	of := c.X[xProposal]
	switch {
	case c.Type == receipts.TypeApproval && of == "" && c.X[xKind] != "" && c.Result == ResultWaiting:
		f.openProposal(c, c.X[xKind])
	case c.Type == receipts.TypeBundleApply && c.Result == ResultWaiting:
		f.openProposal(c, ProposeVersion) // a widening that somebody applied
	case c.Type == receipts.TypeApproval && of != "":
		f.each(func(p *Proposal) bool { return p.ID == of }, func(p *Proposal) {
			if c.Result == ResultRejected {
				p.end(ProposalRejected, c)
				return
			}
			p.Approvals = append(p.Approvals, Approval{By: c.By, Via: c.Via, Token: c.X[xToken], At: c.At, Receipt: c.Leaf.String()})
		})
	case c.Enforcer != "" && c.Type == receipts.TypeModeChange && of == "":
		// An enforcer that came with a version: the version's receipt says so.
	case inForceNow(c.Result) || c.Result == ResultPaused && c.X[xStep] == stepPause:
		f.each(func(p *Proposal) bool { return p.Bundle == c.Bundle }, func(p *Proposal) {
			switch {
			case p.ID == of:
				p.end(ProposalApplied, c)
			case c.Type == receipts.TypeBundleApply, p.Kind == ProposeResume,
				// A version may leave out the enforcer that became hard.
				c.X[xStep] == "" && (p.Enforcer == c.Enforcer || p.Kind == ProposeVersion):
				p.end(ProposalReplaced, c)
			}
		})
	}
}

func (f *fold) openProposal(c change, kind string) {
	// One version waits at a time; the same mode asked for again takes the place of
	// what its neighbours have left behind.
	f.each(func(p *Proposal) bool {
		return p.Bundle == c.Bundle && p.Kind == kind && (kind == ProposeVersion || p.Enforcer == c.Enforcer && string(p.To) == string(c.To))
	}, func(p *Proposal) { p.end(ProposalReplaced, c) })
	f.proposals = append(f.proposals, &Proposal{
		ID: c.Leaf.String(), Bundle: c.Bundle, Kind: kind, Digest: lower(c.Digest), Base: lower(c.Old), Enforcer: c.Enforcer,
		From: bundle.Mode(c.From), To: bundle.Mode(c.To), By: c.By, Via: c.Via, Token: c.X[xToken], Reason: c.X[xReason], At: c.At, State: ProposalOpen,
		Beside: besideOf(c.X),
	})
}

// each calls fn for the open proposals that match.
func (f *fold) each(match func(*Proposal) bool, fn func(*Proposal)) {
	for _, p := range f.proposals {
		if p.State == ProposalOpen && match(p) {
			fn(p)
		}
	}
}

func (p *Proposal) end(state string, c change) { p.State, p.Ended, p.EndedBy = state, c.At, c.By }

func lower(h receipts.Hash) string {
	if h.IsZero() {
		return ""
	}
	return hex.EncodeToString(h[:])
}
