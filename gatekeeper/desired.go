package gatekeeper

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// desired is one bundle in force: its bytes, its modes and, if somebody wants a
// wider one, the version that waits. It is a value of the bundles bucket; the
// control chain holds the same in receipts.
type desired struct {
	Bytes   string                 `json:"bytes"`  // canonical
	Digest  string                 `json:"digest"` // lower hex
	Mode    bundle.Mode            `json:"mode"`
	Modes   map[string]bundle.Mode `json:"modes,omitempty"`   // by enforcer
	Waiting string                 `json:"waiting,omitempty"` // digest of a version that waits for approval
	Paused  bool                   `json:"paused,omitempty"`  // starts nothing
	Receipt string                 `json:"receipt"`           // leaf of the receipt that this state follows

	bundle   *bundle.Bundle // in its effective modes
	revision uint64         // of the bucket
}

func (d *desired) decode() error {
	b, err := bundle.Parse([]byte(d.Bytes))
	if err != nil {
		return err
	}
	if got := b.Digest(); hex.EncodeToString(got[:]) != d.Digest {
		return problem.New(problem.Conflict, "the stored bytes of bundle "+b.Name+" do not have the stored digest", "apply the bundle again")
	}
	d.bundle = b.WithModes(d.Mode, d.Modes)
	return nil
}

// registry is the bundles in force, as the bucket has them.
type registry struct {
	kv    KV
	blobs Blobs
	fold  *fold

	mu     sync.Mutex
	byName map[string]*desired
}

// refresh reads the bucket. An entry that cannot be read is left out: a bundle
// that is not understood starts nothing.
func (r *registry) refresh(ctx context.Context) (map[string]*desired, error) {
	next := map[string]*desired{}
	known := r.read()
	for e, err := range r.kv.All(ctx) {
		if err != nil {
			return nil, problem.Wrap(err, problem.Unavailable, "couldn't read the bundles in force", "")
		}
		if old := known[e.Key]; old != nil && old.revision == e.Revision {
			next[e.Key] = old
			continue
		}
		d := &desired{revision: e.Revision}
		if err := json.Unmarshal(e.Value, d); err != nil {
			return nil, fmt.Errorf("bundle %s in the bucket: %w", e.Key, err)
		}
		if err := d.decode(); err != nil {
			return nil, fmt.Errorf("bundle %s in the bucket: %w", e.Key, err)
		}
		next[e.Key] = d
	}
	r.mu.Lock()
	r.byName = next
	r.mu.Unlock()
	return next, nil
}

// read returns the bundles as they were last read.
func (r *registry) read() map[string]*desired {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byName
}

// inForce returns the bundles in force. Paused ones are among them and named
// beside: a paused bundle must not make way for a wider one.
func (r *registry) inForce(ctx context.Context) (out []*bundle.Bundle, paused map[string]bool, err error) {
	all, err := r.refresh(ctx)
	if err != nil {
		return nil, nil, err
	}
	paused = map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name].bundle)
		paused[name] = all[name].Paused
	}
	return out, paused, nil
}

// put writes a state if nobody wrote another one since it was read.
func (r *registry) put(ctx context.Context, name string, d *desired) error {
	raw, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if d.revision == 0 {
		d.revision, err = r.kv.Create(ctx, name, raw)
	} else {
		d.revision, err = r.kv.Update(ctx, name, raw, d.revision)
	}
	return err
}

// rebuild makes the bucket agree with this node's control chain where the
// bucket lost what the chain knows: a name that is missing, or a state that is
// an earlier one of ours. A state that follows another node's receipt is newer.
func (r *registry) rebuild(ctx context.Context) error {
	have, err := r.refresh(ctx)
	if err != nil {
		return err
	}
	byName := map[string][]change{}
	r.fold.mu.Lock()
	for _, c := range r.fold.changes {
		byName[c.Bundle] = append(byName[c.Bundle], c)
	}
	r.fold.mu.Unlock()
	for name, changes := range byName {
		last := changes[len(changes)-1].Leaf.String()
		if d := have[name]; d != nil && (d.Receipt == last || !slices.ContainsFunc(changes, func(c change) bool { return c.Leaf.String() == d.Receipt })) {
			continue
		}
		d, err := r.replay(changes)
		if err != nil {
			return fmt.Errorf("couldn't rebuild bundle %s from the control chain: %w", name, err)
		}
		if d == nil {
			continue
		}
		if old := have[name]; old != nil {
			d.revision = old.revision
		}
		if err := r.put(ctx, name, d); err != nil {
			return fmt.Errorf("couldn't rebuild bundle %s: %w", name, err)
		}
	}
	_, err = r.refresh(ctx)
	return err
}

// replay folds the receipts about one bundle, nil if it was never applied.
func (r *registry) replay(changes []change) (*desired, error) {
	var d *desired
	for _, c := range changes {
		switch {
		case c.Type == receipts.TypeBundleApply && inForceNow(c.Result):
			if d == nil {
				d = &desired{Modes: map[string]bundle.Mode{}}
			}
			d.Digest, d.Mode = hex.EncodeToString(c.Digest[:]), bundle.Mode(c.To)
		case d == nil:
			continue
		case c.Type == receipts.TypeBundleApply: // waits, as a proposal
		case c.X[xStep] == stepPause, c.X[xStep] == stepResume:
			d.Paused = c.X[xStep] == stepPause
		case c.Type == receipts.TypeModeChange && c.Enforcer != "":
			d.Modes[c.Enforcer] = bundle.Mode(c.To)
		case c.Type == receipts.TypeModeChange:
			d.Mode = bundle.Mode(c.To)
		}
		d.Receipt = c.Leaf.String()
	}
	if d == nil {
		return nil, nil //nolint:nilnil // never applied is no error
	}
	raw, err := r.version(d.Digest)
	if err != nil {
		return nil, err
	}
	d.Bytes, d.Waiting = string(raw), r.fold.waiting(changes[0].Bundle)
	return d, d.decode()
}

// version returns the canonical bytes of a version by its digest, which is
// also the key of its blob.
func (r *registry) version(digest string) ([]byte, error) {
	rc, err := r.blobs.Get(digest)
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", digest, err)
	}
	defer rc.Close()
	return io.ReadAll(rc)
}

// keep stores a version under its digest before any receipt names it.
func (r *registry) keep(b *bundle.Bundle) error {
	digest := b.Digest()
	got, _, err := r.blobs.Put(bytes.NewReader(b.Canonical()))
	if err != nil {
		return fmt.Errorf("couldn't keep bundle %s: %w", b.Name, err)
	}
	if got != hex.EncodeToString(digest[:]) {
		return fmt.Errorf("bundle %s was kept as %s, not as %x", b.Name, got, digest)
	}
	return nil
}

// namespaces are the refs that sessions push, under any bundle in force.
func namespaces(bs []*bundle.Bundle) []string {
	out := []string{sessionNamespace}
	for _, b := range bs {
		for _, ns := range b.Namespaces() {
			// "refs/heads/" alone would make every push Gatehouse's own.
			if strings.Count(strings.TrimSuffix(ns, "/"), "/") >= 2 {
				out = append(out, ns)
			}
		}
	}
	return out
}
