package auth

import "slices"

// Role is what a group of people may do.
type Role string

// Roles. Nobody is exempt from the two people of a widening, admins neither.
const (
	Viewer   Role = "viewer"   // reads
	Reviewer Role = "reviewer" // marks groups, proposes
	Approver Role = "approver" // approves, promotes, rolls back, pauses
	Operator Role = "operator" // kills, retries, redelivers, applies, rolls back, pauses
	Admin    Role = "admin"    // everything, other people's tokens too
	Auditor  Role = "auditor"  // reads and exports
)

// Roles lists them all.
var Roles = []Role{Viewer, Reviewer, Approver, Operator, Admin, Auditor}

// Act is something that a role allows.
type Act string

// Acts.
const (
	Read       Act = "read"
	Export     Act = "export"     // receipts, disclosures
	Review     Act = "review"     // mark, simulate
	Propose    Act = "propose"    //
	Approve    Act = "approve"    // say yes or no to a proposal, promote
	Narrow     Act = "narrow"     // roll back, pause: what one person may
	Apply      Act = "apply"      // a bundle version; what would widen waits
	Operate    Act = "operate"    // sessions and events
	Administer Act = "administer" // tokens of others
)

var allowed = map[Role][]Act{
	Viewer:   {Read},
	Reviewer: {Read, Review, Propose},
	Approver: {Read, Review, Propose, Approve, Narrow},
	Operator: {Read, Operate, Apply, Narrow, Propose},
	Admin:    {Read, Export, Review, Propose, Approve, Narrow, Apply, Operate, Administer},
	Auditor:  {Read, Export},
}

// May reports whether one of the identity's roles allows an act.
func (i Identity) May(a Act) bool {
	return slices.ContainsFunc(i.Roles, func(r Role) bool { return slices.Contains(allowed[r], a) })
}

// known returns the roles of a list that there are, sorted, each once.
func known(roles []Role) []Role {
	var out []Role
	for _, r := range Roles {
		if slices.Contains(roles, r) {
			out = append(out, r)
		}
	}
	return out
}
