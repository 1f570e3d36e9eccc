package gatekeeper

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/canon"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Names of those who are no person: what they ask for counts as nobody's word.
// Whoever may open the node's socket may well be the person who also logs in, so
// the socket's user is never one of the people that a widening needs.
const (
	ByLocal  = "local"
	ByConfig = "config"
)

// By is who asks for a change.
type By struct {
	Name  string // person, the owner of a token; ByLocal or ByConfig
	Via   string // config | cli | api | ui
	Token string // id of the API token used, "" if none
}

// person reports whether the name is that of somebody whom an identity provider
// vouched for.
func (b By) person() bool { return b.Name != "" && b.Name != ByLocal && b.Name != ByConfig }

// Kinds of proposals.
const (
	ProposeVersion = "version" // another version of a bundle
	ProposeMode    = "mode"    // another mode of a bundle, or of one enforcer
	ProposeResume  = "resume"  // the end of a pause under hard mode
)

// States of a proposal.
const (
	ProposalOpen     = "open"
	ProposalApplied  = "applied"
	ProposalRejected = "rejected"
	ProposalReplaced = "replaced" // what it was made against is no longer in force, or a newer one waits
)

// Proposal is a change that waits for people. It is pinned: to the version it
// asks for, to the one it was made against, to the modes at that time, and to the
// bundles that it was judged beside.
type Proposal struct {
	ID        string // leaf of its first receipt
	Bundle    string
	Kind      string // version | mode | resume
	Digest    string // of the version that would be in force, lower hex
	Base      string // of the version that was in force when it was made
	Enforcer  string // of a mode; "" = the bundle
	From, To  bundle.Mode
	By        string
	Via       string
	Token     string
	Reason    string
	At        time.Time
	Approvals []Approval
	Beside    map[string]string // state of each bundle that it was judged beside, by name
	Drifted   []string          // of an open one: those that are others by now, so that an approval is refused
	Needs     int               // people in all; a proposer that is a person counts as one
	State     string
	Ended     time.Time // zero while open
	EndedBy   string
}

// Approval is one person's yes.
type Approval struct {
	By, Via, Token string
	At             time.Time
	Receipt        string
}

// Extensions of the receipts of a proposal's steps and of other steps that
// people take. internal/view reads the same names.
const (
	xProposal = "review.proposal" // leaf of the proposal's first receipt
	xKind     = "review.kind"
	xReason   = "review.reason"
	xToken    = "review.token"
	xStep     = "review.step"
	xSubject  = "review.subject" // the session or event that a step is about
	xBeside   = "beside."        // and a bundle's name: its state when the proposal was made
	xSet      = "set."           // and a set's name: digest of the content that the version holds
)

// Steps that a person takes and that change no bundle's version or mode.
const (
	stepPause     = "pause"
	stepResume    = "resume"
	StepKill      = "kill"
	StepRetry     = "retry"
	StepRedeliver = "redeliver"
	StepReveal    = "reveal" // text of strangers was shown
)

// maxReason bounds the words that stand in a receipt for ever.
const maxReason = 500

func (b By) extensions(more map[string]string) map[string]string {
	x := map[string]string{}
	for k, v := range more {
		if v != "" {
			x[k] = v
		}
	}
	if b.Token != "" {
		x[xToken] = b.Token
	}
	return x
}

// Alone reports whether one person is enough for a widening.
func (g *Gatekeeper) Alone() bool { return g.approvers() == 1 }

// approvers is how many people a widening needs.
func (g *Gatekeeper) approvers() int { return max(1, g.o.Approvers) }

// Propose makes a version of a bundle wait for approval, whatever the mode.
func (g *Gatekeeper) Propose(ctx context.Context, source []byte, reason string, by By) (Proposal, error) {
	b, err := bundle.Parse(source)
	if err != nil {
		return Proposal{}, err
	}
	if err := CheckReason(reason); err != nil {
		return Proposal{}, err
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	all, have, err := g.known(ctx, b.Name)
	if err != nil {
		return Proposal{}, err
	}
	pinned, unpinned := b.Pin(g.o.Sets)
	if unpinned == nil {
		b = pinned
	}
	if found := g.lint(b, all); bundle.Blocks(found) {
		return Proposal{}, problem.New(problem.ConfigInvalid, "bundle "+b.Name+" has errors: "+found[0].String(), "see them all with `gatehouse bundle lint`")
	}
	if unpinned != nil {
		return Proposal{}, unpinned
	}
	digest := b.Digest()
	if have.Digest == hex.EncodeToString(digest[:]) {
		return Proposal{}, problem.New(problem.Conflict, "bundle "+b.Name+" has this version already", "")
	}
	if err := g.registry.keep(b); err != nil {
		return Proposal{}, err
	}
	return g.ask(ctx, have, receipts.Change{
		Bundle: b.Name, Digest: digest, Old: decodeHash(have.Digest), From: receipts.Mode(have.Mode), To: receipts.Mode(have.Mode),
	}, ProposeVersion, reason, by, b)
}

// ProposeMode asks for another mode of a bundle, or of one of its enforcers. A
// node whose promotions need one person alone applies it at once.
func (g *Gatekeeper) ProposeMode(ctx context.Context, name, enforcer string, to bundle.Mode, reason string, by By) (Proposal, error) {
	if err := CheckReason(reason); err != nil {
		return Proposal{}, err
	}
	if to != bundle.Shadow && to != bundle.Hard {
		return Proposal{}, problem.New(problem.Usage, "a mode is shadow or hard", "")
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	_, have, err := g.known(ctx, name)
	if err != nil {
		return Proposal{}, err
	}
	from, err := have.modeOf(enforcer)
	if err != nil {
		return Proposal{}, err
	}
	if from == to {
		return Proposal{}, problem.New(problem.Conflict, strings.TrimSpace(name+" "+enforcer)+" is in "+string(to)+" mode already", "")
	}
	digest := decodeHash(have.Digest)
	p, err := g.ask(ctx, have, receipts.Change{
		Bundle: name, Digest: digest, Old: digest, Enforcer: enforcer, From: receipts.Mode(from), To: receipts.Mode(to),
	}, ProposeMode, reason, by, have.bundle)
	if err != nil || g.approvers() > 1 {
		return p, err
	}
	return g.approve(ctx, p.ID, p.Digest, by)
}

func (d *desired) modeOf(enforcer string) (bundle.Mode, error) {
	if enforcer == "" {
		return d.Mode, nil
	}
	e, ok := d.bundle.Enforcers[enforcer]
	if !ok {
		return "", problem.New(problem.NotFound, "bundle "+d.bundle.Name+" adds no enforcer "+enforcer, "built-in enforcers have the bundle's mode")
	}
	return e.Mode, nil
}

// known returns the bundles in force and the named one. The caller holds
// applying.
func (g *Gatekeeper) known(ctx context.Context, name string) (map[string]*desired, *desired, error) {
	have, err := g.registry.refresh(ctx)
	if err != nil {
		return nil, nil, err
	}
	if have[name] == nil {
		return nil, nil, problem.New(problem.NotFound, "no bundle is called "+name, "`gatehouse bundle apply` makes a new one known; it needs nobody's approval")
	}
	return have, have[name], nil
}

func (g *Gatekeeper) lint(b *bundle.Bundle, have map[string]*desired) []bundle.Problem {
	if g.o.Lint == nil {
		return nil
	}
	all := map[string]*bundle.Bundle{b.Name: b}
	for name, d := range have {
		if name != b.Name {
			all[name] = d.bundle
		}
	}
	lc := *g.o.Lint
	lc.Bundles, lc.Now = all, g.o.Clock()
	return bundle.Lint(b, lc)
}

// CheckReason refuses words that cannot stand in a receipt: none, too many, or
// such that no receipt can hold.
func CheckReason(reason string) error {
	if strings.TrimSpace(reason) == "" || len(reason) > maxReason {
		return problem.New(problem.Usage, fmt.Sprintf("a reason is needed, of at most %d bytes", maxReason), "say why in a sentence; it stands in the receipt")
	}
	if err := canon.CheckText(reason); err != nil {
		return problem.Wrap(err, problem.Usage, "the reason holds what no receipt can", "write it as one line of plain text")
	}
	return nil
}

// ask writes the first receipt of a proposal, by which next would be in force.
func (g *Gatekeeper) ask(ctx context.Context, have *desired, c receipts.Change, kind, reason string, by By, next *bundle.Bundle) (Proposal, error) {
	c.By, c.Via, c.Result = by.Name, by.Via, ResultWaiting
	x := withSets(by.extensions(map[string]string{xKind: kind, xReason: reason}), next)
	leaf, err := g.step(ctx, receipts.TypeApproval, c, withBeside(x, beside(g.registry.read(), have.bundle, next)))
	if err != nil {
		return Proposal{}, err
	}
	if kind == ProposeVersion {
		state := *have
		state.Waiting = hex.EncodeToString(c.Digest[:])
		if err := g.registry.put(ctx, c.Bundle, &state); err != nil {
			return Proposal{}, changedMeanwhile(err, c.Bundle)
		}
		if _, err := g.registry.refresh(ctx); err != nil {
			return Proposal{}, err
		}
	}
	return g.Proposal(leaf.String())
}

func changedMeanwhile(err error, name string) error {
	return problem.Wrap(err, problem.Conflict, "bundle "+name+" was changed by somebody else at the same time", "look at its history and ask again")
}

// step writes a receipt of the control chain with extensions and folds it.
func (g *Gatekeeper) step(ctx context.Context, t receipts.Type, c receipts.Change, x map[string]string) (receipts.Hash, error) {
	leaf, err := g.o.Notary.Control().Append(ctx, receipts.Receipt{Type: t, Change: &c, X: x})
	if err != nil {
		return receipts.Hash{}, fmt.Errorf("couldn't write the control chain: %w", err)
	}
	g.fold.changed(change{Change: c, Type: t, At: g.o.Clock(), Leaf: leaf, X: x})
	return leaf, nil
}

// Approve is one person's yes to exactly the version they were shown. It is the
// only way by which a waiting change comes into force: UI, API and CLI end here.
// When enough people have said yes the change is applied.
func (g *Gatekeeper) Approve(ctx context.Context, id, digest string, by By) (Proposal, error) {
	g.applying.Lock()
	defer g.applying.Unlock()
	return g.approve(ctx, id, digest, by)
}

func (g *Gatekeeper) approve(ctx context.Context, id, digest string, by By) (Proposal, error) {
	p, err := g.Proposal(id)
	if err != nil {
		return p, err
	}
	if p.State != ProposalOpen {
		return p, problem.New(problem.Conflict, "the proposal is "+p.State, "look at the bundle's history")
	}
	if digest != p.Digest {
		return p, problem.New(problem.CandidateChanged, "the proposal is for another version than the one you were shown", "look at it again and approve what you see")
	}
	all, have, err := g.known(ctx, p.Bundle)
	if err != nil {
		return p, err
	}
	if why := p.moved(have); why != "" {
		return p, problem.New(problem.CandidateChanged, why, "propose it again against what is in force now")
	}
	if err := g.standing(&p, all); err != nil { // T-14
		return p, err
	}
	people := p.people()
	if need := g.approvers(); need > 1 {
		switch {
		case !by.person():
			return p, problem.New(problem.PersonUnknown, "whoever uses the node's socket is nobody in particular and cannot approve", "log in as yourself, or set promotion.approvers: 1")
		case by.Name == p.By:
			return p, problem.New(problem.SelfApproval, "a proposal cannot be approved by who made it", "ask somebody else; tokens count as their owner")
		case slices.Contains(people, by.Name) && len(people) < need:
			return p, problem.New(problem.SelfApproval, "you have approved this already", fmt.Sprintf("%d people are needed", need))
		}
	}
	if !slices.Contains(people, by.Name) {
		people = append(people, by.Name)
	}
	c := p.change()
	c.By, c.Via, c.Result, c.Approvers, c.Single = by.Name, by.Via, ResultWaiting, uint64(len(people)), g.approvers() == 1
	if _, err := g.step(ctx, receipts.TypeApproval, c, by.extensions(map[string]string{xProposal: id})); err != nil {
		return p, err
	}
	if len(people) >= g.approvers() {
		c.Result = ResultApplied
		if err := g.enact(ctx, p, have, c, by); err != nil {
			return p, err
		}
	}
	return g.Proposal(id)
}

// moved says why what the proposal was made against is no longer in force.
func (p *Proposal) moved(have *desired) string {
	mode, err := have.modeOf(p.Enforcer)
	switch {
	case have.Digest != p.Base:
		return "another version of " + p.Bundle + " came into force since the proposal was made"
	case err != nil || mode != p.From:
		return "the mode changed since the proposal was made"
	case p.Kind == ProposeVersion && have.Waiting != p.Digest:
		return "another version waits now"
	}
	return ""
}

// people are the persons behind the proposal so far.
func (p *Proposal) people() []string {
	var out []string
	if (By{Name: p.By}).person() {
		out = append(out, p.By)
	}
	for _, a := range p.Approvals {
		if (By{Name: a.By}).person() && !slices.Contains(out, a.By) {
			out = append(out, a.By)
		}
	}
	return out
}

func (p *Proposal) change() receipts.Change {
	return receipts.Change{
		Bundle: p.Bundle, Digest: decodeHash(p.Digest), Old: decodeHash(p.Base), Enforcer: p.Enforcer,
		From: receipts.Mode(p.From), To: receipts.Mode(p.To),
	}
}

// enact puts an approved change in force: receipt first, then the bucket.
func (g *Gatekeeper) enact(ctx context.Context, p Proposal, have *desired, c receipts.Change, by By) error {
	state := *have
	state.Modes = maps.Clone(have.Modes)
	if state.Modes == nil {
		state.Modes = map[string]bundle.Mode{}
	}
	x := by.extensions(map[string]string{xProposal: p.ID})
	typ := receipts.TypeModeChange
	var added map[string]bundle.Mode
	switch p.Kind {
	case ProposeVersion:
		raw, err := g.registry.version(p.Digest)
		if err != nil {
			return err
		}
		b, err := bundle.Parse(raw)
		if err != nil {
			return err
		}
		typ = receipts.TypeBundleApply
		x = withSets(x, b)
		added = newEnforcers(b, have)
		state.Bytes, state.Digest, state.Waiting = string(raw), p.Digest, ""
	case ProposeResume:
		state.Paused = false
		x[xStep] = stepResume
	default:
		state.Waiting = "" // its proposal ends with the mode that it was made under: see propose
		if p.Enforcer == "" {
			state.Mode = p.To
		} else {
			state.Modes[p.Enforcer] = p.To
		}
	}
	return g.enforce(ctx, p.Bundle, &state, typ, c, x, added)
}

// enforce writes the receipt of a change, those of the enforcers that came with
// it, and the bucket.
func (g *Gatekeeper) enforce(ctx context.Context, name string, state *desired, t receipts.Type, c receipts.Change, x map[string]string, added map[string]bundle.Mode) error {
	leaf, err := g.step(ctx, t, c, x)
	if err != nil {
		return err
	}
	for _, e := range slices.Sorted(maps.Keys(added)) {
		state.Modes[e] = added[e]
		if leaf, err = g.step(ctx, receipts.TypeModeChange, receipts.Change{
			Bundle: name, Digest: c.Digest, Enforcer: e, To: receipts.Mode(added[e]), By: c.By, Via: c.Via, Result: ResultApplied,
		}, x); err != nil {
			return err
		}
	}
	state.Receipt = leaf.String()
	if err := g.registry.put(ctx, name, state); err != nil {
		return changedMeanwhile(err, name)
	}
	now, err := g.registry.refresh(ctx)
	if d := now[name]; err == nil && d != nil && changed(t, c) {
		g.renew(ctx, d.bundle)
	}
	return err
}

// Reject ends a proposal. Its own maker may take it back; that needs nobody else.
func (g *Gatekeeper) Reject(ctx context.Context, id, reason string, by By) (Proposal, error) {
	if err := CheckReason(reason); err != nil {
		return Proposal{}, err
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	p, err := g.Proposal(id)
	if err != nil {
		return p, err
	}
	if p.State != ProposalOpen {
		return p, problem.New(problem.Conflict, "the proposal is "+p.State, "")
	}
	c := p.change()
	c.By, c.Via, c.Result = by.Name, by.Via, ResultRejected
	if _, err := g.step(ctx, receipts.TypeApproval, c, by.extensions(map[string]string{xProposal: id, xReason: reason})); err != nil {
		return p, err
	}
	_, have, err := g.known(ctx, p.Bundle)
	if err != nil {
		return p, err
	}
	if p.Kind == ProposeVersion && have.Waiting == p.Digest {
		state := *have
		state.Waiting = ""
		if err := g.registry.put(ctx, p.Bundle, &state); err != nil {
			return p, changedMeanwhile(err, p.Bundle)
		}
		if _, err := g.registry.refresh(ctx); err != nil {
			return p, err
		}
	}
	return g.Proposal(id)
}

// Note writes to the control chain that a person takes a step about a session or
// an event, before it is taken. bundle may be "".
func (g *Gatekeeper) Note(ctx context.Context, step, bundle, subject string, by By) error {
	if bundle == "" {
		bundle = "none"
	}
	_, err := g.step(ctx, receipts.TypePolicyChange, receipts.Change{Bundle: bundle, By: by.Name, Via: by.Via, Result: ResultApplied},
		by.extensions(map[string]string{xStep: step, xSubject: subject}))
	return err
}

// Version returns the canonical bytes of a bundle version by its digest, of the
// ones that this node ever applied or kept for approval.
func (g *Gatekeeper) Version(digest string) ([]byte, error) {
	if decodeHash(digest).IsZero() {
		return nil, problem.New(problem.NotFound, "not a bundle version: "+digest, "a version is 64 hexadecimal digits")
	}
	rc, err := g.o.Blobs.Get(digest)
	if err != nil {
		return nil, problem.Wrap(err, problem.NotFound, "this node does not have bundle version "+digest, "")
	}
	defer rc.Close()
	return io.ReadAll(rc)
}

// Proposals lists the proposals of this node's control chain, the newest first.
func (g *Gatekeeper) Proposals() []Proposal {
	out := g.fold.proposed()
	for i := range out {
		out[i] = g.shown(out[i])
	}
	slices.Reverse(out)
	return out
}

// Proposal returns one proposal.
func (g *Gatekeeper) Proposal(id string) (Proposal, error) {
	for _, p := range g.fold.proposed() {
		if p.ID == id {
			return g.shown(p), nil
		}
	}
	return Proposal{}, problem.New(problem.NotFound, "no proposal "+id, "list them with `gatehouse bundle proposals`")
}
