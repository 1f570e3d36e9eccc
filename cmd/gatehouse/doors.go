package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// doors opens a session's exit for the gatekeeper: enforcers configured from
// the session's policy, a gate over them, and a door over the gate.
type doors struct {
	host    *wasm.Host
	up      *upstream.Client
	actions *actions // nil keeps none
	modules *modules
	// mediators are asked in this order; what none takes is forwarded plainly.
	mediators []mediator
	// children starts and shows a session's children; nil = none can start.
	children func() children
	control  func(context.Context, receipts.Receipt) (receipts.Hash, error) // writes the node's control chain
	dev      bool
	log      *slog.Logger

	replacing sync.Mutex // one replace at a time
	mu        sync.Mutex // guards the fields below
	open      map[*openDoor]struct{}
	room      *door.Room               // of all its doors, made with the first
	inForce   map[string]receipts.Hash // "<bundle>/<enforcer>" -> module, as the control chain has it
}

// builtins are the enforcers that decide from the bundle: the only ones that
// may allow.
var builtins = []string{"egress", "git", "spend"}

// Open makes the session's exit. Everything it made is undone when it fails.
func (d *doors) Open(ctx context.Context, s gatekeeper.DoorSpec) (_ gatekeeper.Door, err error) {
	o := &openDoor{}
	defer func() {
		if err != nil {
			_ = o.release("faulted")
		}
	}()
	policy := enforcers.Policy{Digest: receipts.Hash(s.Digest)}
	if policy.Grants, err = enforcers.Grants(s.Policy); err != nil {
		return nil, err
	}
	module, err := d.builtin(ctx)
	if err != nil {
		return nil, err
	}
	mode := receipts.Mode(s.Bundle.Mode)
	if o.enforcers, err = configured(ctx, module, s.Policy); err != nil {
		return nil, err
	}
	for _, e := range o.enforcers {
		policy.Enforcers = append(policy.Enforcers, enforcers.Bound{Enforcer: e, Mode: mode, Builtin: true})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Bundle.Enforcers)) {
		added, err := d.add(ctx, s, name)
		if err != nil {
			return nil, err
		}
		o.added = append(o.added, added)
		policy.Enforcers = append(policy.Enforcers, enforcers.Bound{Enforcer: added.live, Mode: receipts.Mode(added.as.Mode)})
	}
	if err := keepJudgedBy(s.Dir, judgedByFile, s.Policy, s.Bundle); err != nil {
		return nil, err
	}
	recorder := s.Recorder
	if d.actions != nil {
		recorder = d.actions.keep(s.Recorder)
	}
	gate := enforcers.NewGate(enforcers.GateOptions{Session: s.Session, Mode: mode, Policy: policy, Recorder: recorder, Dev: d.dev})
	ca, err := door.NewCA(s.Session)
	if err != nil {
		return nil, err
	}
	if o.mediations, err = d.mediate(ctx, s, gate); err != nil {
		return nil, err
	}
	var routes []door.Route
	for _, m := range o.mediations {
		routes = append(routes, m.Routes...)
	}
	if o.listener, err = sandbox.ListenDoor(filepath.Join(s.Dir, "door.sock")); err != nil {
		return nil, err
	}
	// The door outlives the call that opens it: the gatekeeper closes it.
	o.Door, err = door.Open(context.WithoutCancel(ctx), o.listener, gate, door.Options{Up: d.up, CA: ca, Routes: routes, Room: d.roomOf(), Log: d.log})
	if err != nil {
		return nil, err
	}
	o.by, o.dir, o.gate, o.policy = d, s.Dir, gate, policy
	o.bundle, o.forget = s.Bundle.Name, d.remember(o)
	return o, nil
}

func (d *doors) roomOf() *door.Room {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.room == nil {
		d.room = door.NewRoom(0)
	}
	return d.room
}

// openDoor is one session's door with what it rests on.
type openDoor struct {
	*door.Door
	listener   net.Listener
	enforcers  []*wasm.Enforcer
	bundle     string
	added      []*added
	mediations []mediation
	forget     func()

	by     *doors
	dir    string // the session's
	gate   *enforcers.Gate
	policy enforcers.Policy // as opened

	renewing sync.Mutex
	newer    []*wasm.Enforcer // of the version in force now, nil while it is the one opened with
	retired  []*wasm.Enforcer // of the one before it
}

// Listener returns the socket that the provider hands to the sandbox.
func (o *openDoor) Listener() net.Listener { return o.listener }

// Inside returns what the door's clients need: the mediators' parts, and the
// placeholders of the bundle's rules over them.
func (o *openDoor) Inside() gatekeeper.Inside {
	in := gatekeeper.Inside{Env: map[string]string{}, Files: map[string][]byte{}}
	for _, m := range o.mediations {
		maps.Copy(in.Env, m.Inside.Env)
		maps.Copy(in.Files, m.Inside.Files)
		in.Mounts = append(in.Mounts, m.Inside.Mounts...)
	}
	maps.Copy(in.Env, o.Environment())
	return in
}

// Start has the mediators do what comes right before the agent.
func (o *openDoor) Start(ctx context.Context) {
	for _, m := range o.mediations {
		if m.Start != nil {
			m.Start(ctx)
		}
	}
}

// Close ends the exit, then what its mediators hold, and gives up the enforcers.
func (o *openDoor) Close(code string) error {
	o.Door.Close(code)
	return o.release(code)
}

func (o *openDoor) release(code string) error {
	err := closeAll(o.mediations, code)
	o.mediations = nil
	if o.forget != nil {
		o.forget()
	}
	for _, e := range slices.Concat(o.enforcers, o.newer, o.retired) {
		e.Close()
	}
	for _, a := range o.added {
		a.live.Close(context.Background())
	}
	if o.listener == nil {
		return err
	}
	if e := o.listener.Close(); !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}
	return err
}
