package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

func (d *doors) builtin(ctx context.Context) (*wasm.Module, error) {
	module, err := d.host.Builtin(ctx)
	if err != nil {
		return nil, fmt.Errorf("couldn't load the built-in enforcers: %w", err)
	}
	return module, nil
}

// configured returns the built-in enforcers under one policy, or none.
func configured(ctx context.Context, module *wasm.Module, policy []byte) (all []*wasm.Enforcer, err error) {
	for _, name := range builtins {
		e, err := module.Enforcer(ctx, wasm.Configure(policy, wasm.BuiltinParams(name)))
		if err != nil {
			for _, e := range all {
				e.Close()
			}
			return nil, fmt.Errorf("couldn't configure enforcer %s: %w", name, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// Replace puts another version of the session's bundle in force and cuts what
// rests on the one before (EG-100). A narrower version takes its place. Any
// other joins it, and can only refuse: the session was admitted under the terms
// of its own version, and what is new belongs to sessions admitted under the new
// one.
func (o *openDoor) Replace(ctx context.Context, r gatekeeper.Replacement) error {
	o.renewing.Lock()
	defer o.renewing.Unlock()
	module, err := o.by.builtin(ctx)
	if err != nil {
		return err
	}
	version := fmt.Sprintf("%x", r.Digest[:versionBytes])
	if err := keepJudgedBy(o.dir, judgedByVersion(version), r.Policy, r.Bundle); err != nil {
		return err
	}
	next, err := configured(ctx, module, r.Policy)
	if err != nil {
		return err
	}
	policy := enforcers.Policy{Digest: o.policy.Digest, Grants: o.policy.Grants}
	if r.Narrower {
		policy.Digest = receipts.Hash(r.Digest)
		if policy.Grants, err = enforcers.Grants(r.Policy); err != nil {
			return err
		}
	} else {
		policy.Enforcers = append(policy.Enforcers, o.policy.Enforcers[:len(builtins)]...)
	}
	for i, e := range next {
		b := o.policy.Enforcers[i]
		if b.Enforcer = e; !r.Narrower {
			b.Enforcer, b.Builtin = later{e, version}, false
		}
		policy.Enforcers = append(policy.Enforcers, b)
	}
	policy.Enforcers = append(policy.Enforcers, o.policy.Enforcers[len(builtins):]...)
	o.gate.Swap(policy)
	// Judgements under way may still use the enforcers of a moment ago, none those
	// before them.
	for _, e := range o.retired {
		e.Close()
	}
	o.newer, o.retired = next, o.newer
	return nil
}

// versionBytes of a bundle's digest name a later version in rules and files.
const versionBytes = 6

// judgedByVersion is the name under which a later version's policy is kept.
func judgedByVersion(version string) string { return "judged-by." + version + ".json" }

var laterRule = regexp.MustCompile(`^([0-9a-f]{12})\.(.+)$`)

// judgedUnder returns the file of a session's folder that a built-in enforcer's
// decision was made under, and the decision's rule as that policy has it.
func judgedUnder(dir string, d *receipts.Dec) (path, rule string) {
	version, rule := fmt.Sprintf("%x", d.Policy[:versionBytes]), d.Rule
	if m := laterRule.FindStringSubmatch(d.Rule); m != nil {
		version, rule = m[1], m[2]
	}
	path = filepath.Join(dir, judgedByVersion(version))
	if _, err := os.Stat(path); err != nil {
		return filepath.Join(dir, judgedByFile), d.Rule
	}
	return path, rule
}

// later is an enforcer of a later version of the bundle than the session was
// admitted under: it refuses what that version does not allow, and allows
// nothing.
type later struct {
	*wasm.Enforcer
	version string // the beginning of its digest
}

// Decide answers with a deny or not at all. Its rule names the version.
func (l later) Decide(ctx context.Context, action []byte) (enforcers.Verdict, error) {
	v, err := l.Enforcer.Decide(ctx, action)
	if err != nil {
		return v, err
	}
	if v.Effect != enforcers.Deny {
		return enforcers.Verdict{Effect: enforcers.Abstain, Fuel: v.Fuel}, nil
	}
	v.Rule = l.version + "." + v.Rule
	return v, nil
}
