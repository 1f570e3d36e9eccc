package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// added is one enforcer of a bundle that is not built in: it may refuse what
// the bundle allows, in its own mode, and allow nothing.
type added struct {
	name   string
	as     bundle.Enforcer // with the module in force
	limits wasm.Limits
	live   *wasm.Live
}

// add loads an added enforcer for a session. A module that is missing, breaks a
// rule, or fails its own vectors is no smaller session: the session does not
// start.
func (d *doors) add(ctx context.Context, s gatekeeper.DoorSpec, name string) (*added, error) {
	as := s.Bundle.Enforcers[name]
	if slices.Contains(builtins, name) {
		return nil, problem.New(problem.ConfigInvalid, "an added enforcer cannot be called "+name, "that is a built-in one; rename it in the bundle")
	}
	params, err := as.Settings()
	if err != nil {
		return nil, err
	}
	code, settings, err := d.modules.open(as.Module)
	if err != nil {
		d.activated(ctx, s.Bundle, name, as.Module, asConfigured, err)
		return nil, err
	}
	live := wasm.NewLive(d.host, name, wasm.Configure(s.Policy, params), settings.limits(), d.modules.selfTest)
	if _, err = live.Activate(ctx, code); err != nil {
		d.activated(ctx, s.Bundle, name, as.Module, asConfigured, err)
		return nil, fmt.Errorf("couldn't activate enforcer %s: %w", name, err)
	}
	if err := d.activated(ctx, s.Bundle, name, as.Module, asConfigured, nil); err != nil {
		live.Close(ctx)
		return nil, err
	}
	return &added{name, as, settings.limits(), live}, nil
}

// asConfigured is who puts a module in force when a session opens.
var asConfigured = api.Actor{Name: "config", Via: "config"}

// activated writes policy.change to the control chain when a module comes into
// force for a bundle's enforcer, or could not.
func (d *doors) activated(ctx context.Context, b *bundle.Bundle, name, module string, by api.Actor, failed error) error {
	var digest receipts.Hash
	_, text, _ := strings.Cut(module, "@sha256:")
	if raw, err := hex.DecodeString(text); err != nil || copy(digest[:], raw) != len(digest) {
		return problem.New(problem.ConfigInvalid, module+" names no digest", "")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := b.Name + "/" + name
	if failed == nil && d.inForce[key] == digest {
		return nil
	}
	change := receipts.Change{Bundle: b.Name, Enforcer: name, Digest: digest, Old: d.inForce[key], By: by.Name, Via: by.Via, Result: gatekeeper.ResultApplied}
	if failed != nil {
		change.Result = gatekeeper.ResultRejected
		d.log.WarnContext(ctx, "enforcer not activated", slog.String("bundle", b.Name), slog.String("enforcer", name), slog.String("module", module), slog.Any("err", failed))
	}
	if _, err := d.control(ctx, receipts.Receipt{Type: receipts.TypePolicyChange, Change: &change}); err != nil {
		return fmt.Errorf("couldn't write the control chain: %w", err)
	}
	if failed == nil {
		if d.inForce == nil {
			d.inForce = map[string]receipts.Hash{}
		}
		d.inForce[key] = digest
	}
	return nil
}

func (d *doors) remember(o *openDoor) (forget func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[*openDoor]struct{}{}
	}
	d.open[o] = struct{}{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, o)
	}
}

// replace gives running sessions of a bundle the modules of its newest version,
// while they run and without cutting anything (WA-07). Only the module of an
// enforcer that has the same settings is replaced; everything else of a session
// stays what it was opened with. A module that fails leaves the old one.
func (d *doors) replace(ctx context.Context, b *bundle.Bundle, by api.Actor) error {
	d.replacing.Lock()
	defer d.replacing.Unlock()
	d.mu.Lock()
	var open []*openDoor
	for o := range d.open {
		if o.bundle == b.Name {
			open = append(open, o)
		}
	}
	d.mu.Unlock()
	for _, o := range open {
		for _, a := range o.added {
			next, ok := b.Enforcers[a.name]
			if !ok || next.Module == a.as.Module || !reflect.DeepEqual(next.Params, a.as.Params) {
				continue
			}
			code, settings, err := d.modules.open(next.Module)
			switch {
			case err != nil:
			case settings.limits() != a.limits:
				err = problem.New(problem.Conflict, "its limits are others; new sessions get it", "")
			default:
				_, err = a.live.Activate(ctx, code)
			}
			if err == nil {
				a.as.Module = next.Module
			}
			if err := d.activated(ctx, b, a.name, next.Module, by, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgedBy is what a session's enforcers were configured with, kept beside its
// transcript so that a judgement can be repeated (receipts replay).
type judgedBy struct {
	Policy json.RawMessage            `json:"policy"`
	Params map[string]json.RawMessage `json:"params"` // of added enforcers, by name
}

// judgedByFile is its name in the session's folder.
const judgedByFile = "judged-by.json"

// keepJudgedBy writes name into a session's folder: a compiled policy with the
// settings of the bundle's added enforcers.
func keepJudgedBy(dir, name string, policy []byte, b *bundle.Bundle) error {
	j := judgedBy{Policy: policy, Params: map[string]json.RawMessage{}}
	for name, e := range b.Enforcers {
		params, err := e.Settings()
		if err != nil {
			return err
		}
		j.Params[name] = params
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // the exact bytes are what is judged by
	if err := enc.Encode(j); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o600); err != nil {
		return fmt.Errorf("couldn't keep the session's policy: %w", err)
	}
	return nil
}

// configure returns the message that an enforcer was configured with.
func (j *judgedBy) configure(name string) ([]byte, error) {
	params := j.Params[name]
	if slices.Contains(builtins, name) {
		params = wasm.BuiltinParams(name)
	}
	if params == nil {
		return nil, problem.New(problem.NotFound, "the session had no enforcer called "+name, "")
	}
	return wasm.Configure(j.Policy, params), nil
}
