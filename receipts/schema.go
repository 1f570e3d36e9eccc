package receipts

import (
	"fmt"
	"strconv"
	"strings"
)

// This file is the schema of format v1: every field once, in key order. What
// stands here is what docs/receipts-spec.md lists.

// Closed lists.
var (
	types = []Type{
		TypeSessionOpen, TypeSessionState, TypeSessionClose, TypeDecision, TypeOutcome, TypeProgress,
		TypeHeartbeat, TypeManifest, TypeLoss, TypePolicyChange, TypeModeChange, TypeBundleApply,
		TypeApproval, TypeCredentialIssue, TypeCredentialRevoke, TypeKeyAdd, TypeKeyRetire, TypeKeyRevoke,
		TypeExport, TypeReveal,
	}
	modes    = []Mode{Shadow, Hard}
	verdicts = []Verdict{Allow, Deny, Abstain}
	admitted = []string{"admitted", "refused"}
	policies = []string{"credential_free", "required", "compatibility"}
	reasons  = []string{"completed", "no_effect", "failed", "timeout", "cancelled", "revoked", "lost", "refused", "receipt_flood"}
	kinds    = []string{
		"net.connect", "http.request", "dns.query", "git.fetch", "git.push", "model.call",
		"operation.call", "telemetry.emit", "session.spawn",
	}
	effects     = []string{"forwarded", "not_forwarded", "unknown"}
	mediations  = []string{"sole", "partial", "unknown"}
	vias        = []string{"config", "cli", "api", "ui"}
	results     = []string{"applied", "waiting", "rejected", "rolled_back", "paused"}
	deliveries  = []string{"mediated", "placeholder", "absent", "raw"}
	credResults = []string{"issued", "revoked", "pending"}
	purposes    = []string{string(SealKey), string(CheckpointKey), string(RootKey)}
)

func (r *Receipt) fields(c *codec) {
	object(c, "act", &r.Act)
	object(c, "beat", &r.Beat)
	object(c, "change", &r.Change)
	object(c, "close", &r.Close)
	object(c, "cred", &r.Cred)
	object(c, "dec", &r.Dec)
	object(c, "disc", &r.Disc)
	c.count("epoch", &r.Epoch, required)
	c.hash("in", &r.In, optional)
	object(c, "key", &r.Key)
	c.token("log", &r.Log, required)
	object(c, "loss", &r.Loss)
	object(c, "man", &r.Man)
	c.count("mono", &r.Mono, required)
	object(c, "obs", &r.Obs)
	object(c, "open", &r.Open)
	object(c, "out", &r.Out)
	c.hash("prev", &r.Prev, required)
	mapping(c, "red", &r.Red, countValue)
	c.count("seq", &r.Seq, required)
	c.token("session", &r.Session, required)
	object(c, "state", &r.State)
	c.time("t", &r.T, required)
	enum(c, "type", &r.Type, required, types)
	number(c, "v", &r.V, required, Version)
	mapping(c, "x", &r.X, textValue)
}

func (o *Open) fields(c *codec) {
	c.token("bundle", &o.Bundle, optional)
	c.token("code", &o.Code, optional)
	c.hash("contract", &o.Contract, optional)
	c.list("deliveries", &o.Deliveries)
	c.flag("dev", &o.Dev, optional)
	c.hash("digest", &o.Digest, optional)
	c.text("event", &o.Event, optional)
	c.hash("event_leaf", &o.EventLeaf, optional)
	mapping(c, "facts", &o.Facts, textValue)
	c.token("floor", &o.Floor, optional)
	c.text("floor_at", &o.FloorAt, optional)
	c.hash("keyset", &o.Keyset, required)
	enum(c, "mode", &o.Mode, optional, modes)
	mapping(c, "modules", &o.Modules, hashValue)
	c.list("not_observed", &o.NotSeen)
	c.token("parent", &o.Parent, optional)
	c.list("points", &o.Points)
	enum(c, "policy", &o.Policy, optional, policies)
	c.token("provider", &o.Provider, optional)
	mapping(c, "sets", &o.Sets, hashValue)
	enum(c, "state", &o.State, required, admitted)
	c.text("text", &o.Text, optional)
	c.flag("unlimited", &o.Unlimited, optional)
}

func (s *State) fields(c *codec) {
	c.hash("evidence", &s.Evidence, optional)
	c.token("from", &s.From, optional)
	number(c, "level", &s.Level, required, 3)
	c.token("reason", &s.Reason, optional)
	c.token("to", &s.To, required)
}

func (l *Close) fields(c *codec) {
	c.count("count", &l.Count, required)
	if c.reading {
		if c.s.TryKey("exit") {
			l.Exit = new(int64)
			*l.Exit = int64(c.s.Uint())
		}
	} else if l.Exit != nil {
		c.key("exit")
		c.b = strconv.AppendInt(c.b, *l.Exit, 10)
	}
	if l.Exit != nil && (*l.Exit < 0 || *l.Exit > 255) {
		c.fail("exit", "%d is outside 0..255", *l.Exit)
	}
	mapping(c, "out", &l.Out, hashValue)
	enum(c, "reason", &l.Reason, required, reasons)
	number(c, "spent", &l.Spent, optional, maxAmount)
	c.count("unknown", &l.Unknown, optional)
	mapping(c, "verdicts", &l.Verdicts, countValue)
}

// maxAmount bounds amounts of money: 2^53-1 nanodollars, about nine million.
const maxAmount = 1<<53 - 1

func (a *Act) fields(c *codec) {
	mapping(c, "args", &a.Args, hashValue)
	c.flag("authority", &a.Authority, optional)
	c.flag("blind", &a.Blind, optional)
	c.token("connection", &a.Connection, optional)
	c.token("host", &a.Host, optional)
	c.token("id", &a.ID, required)
	enum(c, "kind", &a.Kind, required, kinds)
	c.token("method", &a.Method, optional)
	c.token("name", &a.Name, optional)
	number(c, "port", &a.Port, optional, 65535)
	c.token("repository", &a.Repository, optional)
	c.token("scheme", &a.Scheme, optional)
	mapping(c, "units", &a.Units, countValue)
}

func (d *Dec) fields(c *codec) {
	c.token("by", &d.By, optional)
	c.count("count", &d.Count, optional)
	c.flag("dev", &d.Dev, optional)
	c.count("dur_us", &d.Dur, optional)
	c.token("fault", &d.Fault, optional)
	c.count("fuel", &d.Fuel, optional)
	c.count("gen", &d.Gen, optional)
	number(c, "held", &d.Held, optional, maxAmount)
	enum(c, "mode", &d.Mode, required, modes)
	c.hash("module", &d.Module, optional)
	c.flag("passed", &d.Passed, required)
	c.hash("policy", &d.Policy, optional)
	c.token("reason", &d.Reason, optional)
	c.token("rule", &d.Rule, optional)
	enum(c, "verdict", &d.Verdict, required, verdicts)
}

func (o *Out) fields(c *codec) {
	c.token("address", &o.Address, optional)
	c.token("code", &o.Code, optional)
	c.count("down", &o.Down, optional)
	enum(c, "effect", &o.Effect, required, effects)
	c.hash("ref", &o.Ref, required)
	number(c, "spent", &o.Spent, optional, maxAmount)
	number(c, "status", &o.Status, optional, 999)
	c.count("up", &o.Up, optional)
}

func (o *Obs) fields(c *codec) {
	c.hash("build", &o.Build, optional)
	c.hash("contract", &o.Contract, optional)
	c.token("kind", &o.Kind, required)
	number(c, "level", &o.Level, required, 3)
	enum(c, "mediation", &o.Mediation, required, mediations)
	c.token("point", &o.Point, required)
}

func (h *Change) fields(c *codec) {
	c.count("approvers", &h.Approvers, optional)
	c.token("bundle", &h.Bundle, required)
	c.text("by", &h.By, optional)
	c.hash("digest", &h.Digest, optional)
	c.token("enforcer", &h.Enforcer, optional)
	enum(c, "from", &h.From, optional, modes)
	c.hash("old", &h.Old, optional)
	enum(c, "result", &h.Result, required, results)
	c.flag("single", &h.Single, optional)
	enum(c, "to", &h.To, optional, modes)
	enum(c, "via", &h.Via, required, vias)
}

func (k *Credential) fields(c *codec) {
	enum(c, "delivery", &k.Delivery, required, deliveries)
	c.time("expires", &k.Expires, optional)
	c.token("host", &k.Host, optional)
	c.token("name", &k.Name, required)
	enum(c, "result", &k.Result, required, credResults)
	mapping(c, "scope", &k.Scope, textValue)
}

func (k *KeyEvent) fields(c *codec) {
	c.count("from", &k.From, required)
	c.token("id", &k.ID, required)
	c.hash("public", &k.Public, required)
	enum(c, "purpose", &k.Purpose, required, purposes)
	c.count("until", &k.Until, optional)
}

func (l *Loss) fields(c *codec) {
	c.token("cause", &l.Cause, required)
	c.count("count", &l.Count, required)
	c.count("first", &l.First, required)
	c.hash("head", &l.Head, optional)
}

func (m *ManifestDoc) fields(c *codec) {
	c.count("closed", &m.Closed, required)
	c.hash("heads", &m.Heads, optional)
	c.count("losses", &m.Losses, required)
	c.count("receipts", &m.Receipts, required)
	c.count("sessions", &m.Sessions, required)
	c.count("size", &m.Size, required)
	c.count("tree", &m.Tree, optional)
}

func (h *Heartbeat) fields(c *codec) {
	c.hash("head", &h.Head, optional)
	c.count("open", &h.Open, required)
	c.count("size", &h.Size, required)
}

func (d *Disclosure) fields(c *codec) {
	c.text("by", &d.By, required)
	c.list("classes", &d.Classes)
	c.hash("digest", &d.Digest, optional)
	c.text("what", &d.What, required)
}

// body is a bit for each body a receipt may have.
type body uint16

const (
	hasOpen body = 1 << iota
	hasState
	hasClose
	hasAct
	hasDec
	hasOut
	hasChange
	hasCred
	hasKey
	hasLoss
	hasMan
	hasBeat
	hasDisc
)

// bodiesOf returns the bodies that a receipt of type t has, no more, no less.
func bodiesOf(t Type) body {
	switch t {
	case TypeSessionOpen:
		return hasOpen
	case TypeSessionState:
		return hasState
	case TypeSessionClose:
		return hasClose
	case TypeDecision:
		return hasAct | hasDec
	case TypeOutcome, TypeProgress:
		return hasOut
	case TypePolicyChange, TypeModeChange, TypeBundleApply, TypeApproval:
		return hasChange
	case TypeCredentialIssue, TypeCredentialRevoke:
		return hasCred
	case TypeKeyAdd, TypeKeyRetire, TypeKeyRevoke:
		return hasKey
	case TypeLoss:
		return hasLoss
	case TypeManifest:
		return hasMan
	case TypeHeartbeat:
		return hasBeat
	case TypeExport, TypeReveal:
		return hasDisc
	}
	return 0
}

func (r *Receipt) bodies() body {
	return when(r.Open != nil, hasOpen) | when(r.State != nil, hasState) | when(r.Close != nil, hasClose) |
		when(r.Act != nil, hasAct) | when(r.Dec != nil, hasDec) | when(r.Out != nil, hasOut) |
		when(r.Change != nil, hasChange) | when(r.Cred != nil, hasCred) | when(r.Key != nil, hasKey) |
		when(r.Loss != nil, hasLoss) | when(r.Man != nil, hasMan) | when(r.Beat != nil, hasBeat) |
		when(r.Disc != nil, hasDisc)
}

func when(set bool, b body) body {
	if set {
		return b
	}
	return 0
}

// bad is the error of a rule that r breaks.
func (r *Receipt) bad(format string, a ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrSchema, r.Type, fmt.Sprintf(format, a...))
}

// check enforces the rules between fields.
func (r *Receipt) check() error {
	if r.V != Version {
		return fmt.Errorf("%w: version %d", ErrUnsupported, r.V)
	}
	if r.bodies() != bodiesOf(r.Type) {
		return r.bad("not the bodies of its type")
	}
	if err := CheckName(r.Log); err != nil {
		return r.bad("log: %v", err)
	}
	if r.Epoch != 1 {
		return r.bad("epoch %d: v1 knows only 1", r.Epoch)
	}
	if r.Session != ControlSession && (r.Type == TypeSessionOpen) != (r.Seq == 0) {
		return r.bad("a chain begins with session.open and has one")
	}
	if o := r.Obs; o != nil && o.Level == 3 && o.Contract.IsZero() { // RC-30
		return r.bad("level 3 without the contract it rests on")
	}
	if !r.In.IsZero() && r.Type != TypeDecision {
		return r.bad("in belongs to a decision")
	}
	for k := range r.X {
		if strings.HasPrefix(k, "!") { // RC-23
			return fmt.Errorf("%w: critical extension %.40q", ErrUnsupported, k)
		}
		if i := strings.IndexByte(k, '.'); i <= 0 {
			return r.bad("extension %.40q has no prefix", k)
		}
	}
	switch r.Type {
	case TypeSessionOpen:
		if (r.Open.State == "refused") != (r.Open.Code != "") {
			return r.bad("a refusal has a code and nothing else has")
		}
		if r.Obs == nil {
			return r.bad("no observation")
		}
	case TypeDecision:
		if r.Obs == nil {
			return r.bad("no observation")
		}
		d := r.Dec
		if d.Verdict == Allow && !d.Passed || d.Verdict != Allow && d.Passed && d.Mode == Hard {
			return r.bad("verdict %s, mode %s, passed %t", d.Verdict, d.Mode, d.Passed)
		}
	case TypeManifest:
		if (r.Man.Tree == 0) != r.Man.Heads.IsZero() {
			return r.bad("heads without their number")
		}
	}
	return nil
}
