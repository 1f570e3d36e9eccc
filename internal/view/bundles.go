package view

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/receipts"
)

// Bundle is the state of one bundle as the control chains tell it.
type Bundle struct {
	Name    string            `json:"name"`
	Digest  string            `json:"digest" doc:"version in force, empty before the first is applied"`
	Mode    string            `json:"mode" doc:"mode in force"`
	Modes   map[string]string `json:"modes,omitempty" doc:"modes of single enforcers that differ"`
	Waiting string            `json:"waiting,omitempty" doc:"digest of a version that waits for approval"`
	Paused  bool              `json:"paused,omitempty"`
	Changed time.Time         `json:"changed"`
	Changes int               `json:"changes"`
}

// Change is one receipt of a bundle's history.
type Change struct {
	Node      string    `json:"node"`
	Seq       uint64    `json:"seq" doc:"in the node's control chain"`
	Leaf      string    `json:"leaf"`
	Type      string    `json:"type"`
	Time      time.Time `json:"time"`
	Digest    string    `json:"digest,omitempty"`
	Old       string    `json:"old,omitempty"`
	From      string    `json:"from,omitempty"`
	To        string    `json:"to,omitempty"`
	Enforcer  string    `json:"enforcer,omitempty"`
	By        string    `json:"by"`
	Via       string    `json:"via"`
	Result    string    `json:"result"`
	Approvers uint64    `json:"approvers,omitempty"`
	Single    bool      `json:"single_approver,omitempty"`
	Group     string    `json:"group,omitempty" doc:"the would-block group that was marked"`
	Status    string    `json:"status,omitempty" doc:"of the mark"`
	Proposal  string    `json:"proposal,omitempty" doc:"the proposal that this is a step of: the leaf of its first receipt"`
	Reason    string    `json:"reason,omitempty"`
	Token     string    `json:"token,omitempty" doc:"API token that the person used"`
}

// maxHistory bounds one bundle's history; the control chain keeps all of it.
const maxHistory = 1000

type bundle struct {
	row     Bundle
	history []Change // oldest first
}

type bundles struct {
	byName map[string]*bundle
	groups *groups
	steps  []Step // oldest first
}

// Step is something a person did that changed no bundle: a session killed or
// tried again, an event delivered again.
type Step struct {
	Node    string    `json:"node"`
	Seq     uint64    `json:"seq" doc:"in the node's control chain"`
	Leaf    string    `json:"leaf"`
	Time    time.Time `json:"time"`
	Step    string    `json:"step" doc:"kill, retry or redeliver; access when an agent asks"`
	Subject string    `json:"subject" doc:"session or event"`
	By      string    `json:"by"`
	Via     string    `json:"via"`
	Token   string    `json:"token,omitempty"`
	Refusal string    `json:"refusal,omitempty" doc:"receipt that an agent asks for access about"`
}

// Steps returns what people did, the newest first, at most 1,000. subject ""
// stands for all.
func (v *View) Steps(subject string) []Step {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := []Step{}
	for _, s := range slices.Backward(v.bundles.steps) {
		if subject == "" || s.Subject == subject {
			out = append(out, s)
		}
	}
	return out
}

func (s *bundles) fold(m bus.Msg) error {
	r, err := receipts.Decode(m.Data)
	if err != nil {
		return err
	}
	c := r.Change
	if c == nil || c.Bundle == "" {
		return nil
	}
	if r.Session != receipts.ControlSession {
		return fmt.Errorf("receipt of session %s on a control subject", r.Session)
	}
	if r.Type == receipts.TypePolicyChange && r.X[XStep] != "" {
		s.steps = append(s.steps, Step{
			Node: m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], Seq: r.Seq, Leaf: receipts.Leaf(m.Data).String(), Time: r.T,
			Step: r.X[XStep], Subject: r.X[XSubject], By: c.By, Via: c.Via, Token: r.X[XToken], Refusal: r.X[XRefusal],
		})
		if len(s.steps) > maxHistory {
			s.steps = s.steps[1:]
		}
		return nil
	}
	b := s.byName[c.Bundle]
	if b == nil {
		b = &bundle{row: Bundle{Name: c.Bundle}}
		s.byName[c.Bundle] = b
	}
	b.history = append(b.history, Change{
		Node: m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], Seq: r.Seq, Leaf: receipts.Leaf(m.Data).String(),
		Type: string(r.Type), Time: r.T, Digest: digest(c.Digest), Old: digest(c.Old), From: string(c.From), To: string(c.To),
		Enforcer: c.Enforcer, By: c.By, Via: c.Via, Result: c.Result, Approvers: c.Approvers, Single: c.Single,
		Group: r.X[XGroup], Status: r.X[XStatus], Proposal: r.X[XProposal], Reason: r.X[XReason], Token: r.X[XToken],
	})
	if len(b.history) > maxHistory {
		b.history = b.history[1:]
	}
	switch {
	case r.X[XGroup] != "":
		s.groups.mark(r, receipts.Leaf(m.Data))
	case r.Type == receipts.TypeApproval: // a step of a proposal: what it changes has a receipt of its own
		b.row.step(r)
	default:
		b.row.apply(r)
	}
	return nil
}

func (b *Bundle) step(r *receipts.Receipt) {
	b.Changed, b.Changes = r.T, b.Changes+1
	switch version := digest(r.Change.Digest); {
	case r.Change.Result == "waiting" && version != b.Digest:
		b.Waiting = version
	case r.Change.Result == "rejected" && version == b.Waiting:
		b.Waiting = ""
	}
}

func (b *Bundle) apply(r *receipts.Receipt) {
	c := r.Change
	b.Changed, b.Changes = r.T, b.Changes+1
	version := digest(c.Digest)
	switch c.Result {
	case "waiting":
		b.Waiting = version
		return
	case "rejected":
		if b.Waiting == version {
			b.Waiting = ""
		}
		return
	case "paused":
		b.Paused = true
		return
	}
	if r.X[XStep] == "resume" {
		b.Paused = false
		return
	}
	if c.To != "" {
		if c.Enforcer == "" {
			b.Mode = string(c.To)
		} else {
			modes := maps.Clone(b.Modes) // rows handed out earlier keep theirs
			if modes == nil {
				modes = map[string]string{}
			}
			modes[c.Enforcer] = string(c.To)
			b.Modes = modes
		}
	}
	if r.Type == receipts.TypeBundleApply && version != "" { // a policy.change names a module
		b.Digest, b.Waiting = version, "" // what waited was asked for against the version before
	}
}

func (s *bundles) list() []Bundle {
	out := []Bundle{}
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		out = append(out, s.byName[name].row)
	}
	return out
}

// Bundles lists all bundles by name.
func (v *View) Bundles() []Bundle {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.bundles.list()
}

// History returns the changes of one bundle, the newest first.
func (v *View) History(name string) ([]Change, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	b := v.bundles.byName[name]
	if b == nil {
		return nil, notFound("bundle", name)
	}
	out := slices.Clone(b.history)
	slices.Reverse(out)
	return out, nil
}

// target names what an action was about, in one short form.
func target(a *receipts.Act) string {
	switch {
	case a.Repository != "":
		return a.Repository
	case a.Name != "" && a.Host == "":
		return a.Name
	case a.Host != "" && a.Port != 0:
		return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
	}
	return a.Host
}
