package review

import (
	"context"
	"fmt"
	"sync"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/view"
)

// maxStale bounds the judgements that are remembered.
const maxStale = 20_000

// present judges the newest attempt of groups under the versions in force. A
// judgement is remembered for as long as the version is in force: it does not
// change.
type present struct {
	mu      sync.Mutex
	panels  map[string]*panel // by bundle name
	benches map[string]*bench // of those panels, to be closed
	keys    map[string]string // version of a bundle's panel
	judged  map[string]bool   // group -> allowed now
}

func newPresent() *present {
	return &present{panels: map[string]*panel{}, benches: map[string]*bench{}, keys: map[string]string{}, judged: map[string]bool{}}
}

// stale marks the groups that the version in force allows by now: somebody allowed
// them since. What cannot be judged is not called stale.
func (r *Review) stale(ctx context.Context, rows []view.Group) error {
	all, err := r.o.Bundles.Bundles(ctx)
	if err != nil {
		return err
	}
	byName := map[string]*bundle.Bundle{}
	for _, f := range all {
		byName[f.Bundle.Name] = f.Bundle
	}
	p := r.present
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range rows {
		g := &rows[i]
		b := byName[g.Bundle]
		switch g.Kind {
		case "http.request", "net.connect", "dns.query":
		default:
			continue
		}
		if b == nil || g.Reason == enforcers.CodeNeedsAuthority {
			continue
		}
		key := fmt.Sprintf("%x %s", b.Digest(), b.Mode)
		if p.keys[b.Name] != key {
			if err := r.take(ctx, p, b, key); ctx.Err() != nil {
				return err
			}
		}
		if p.panels[b.Name] == nil {
			continue // its enforcers cannot be made here; a hint is missing, and no page
		}
		id := g.ID + " " + key
		allowed, ok := p.judged[id]
		if !ok {
			allowed = r.allowed(ctx, p.panels[b.Name], g)
			if len(p.judged) >= maxStale {
				clear(p.judged)
			}
			p.judged[id] = allowed
		}
		g.Stale = allowed
	}
	return nil
}

// take puts a version's enforcers in place of the earlier one's.
func (r *Review) take(ctx context.Context, p *present, b *bundle.Bundle, key string) error {
	if old := p.benches[b.Name]; old != nil {
		old.close(ctx)
	}
	delete(p.benches, b.Name)
	p.panels[b.Name], p.keys[b.Name] = nil, key
	x, err := r.newBench(ctx, b)
	if err != nil {
		return err
	}
	next, err := x.panel(ctx, bundle.Subject{})
	if err != nil {
		x.close(ctx)
		return err
	}
	p.benches[b.Name], p.panels[b.Name] = x, next
	return nil
}

func (r *Review) allowed(ctx context.Context, p *panel, g *view.Group) bool {
	d, err := r.o.View.Group(g.ID, nil)
	if err != nil || len(d.Samples) == 0 {
		return false
	}
	action, err := r.o.Actions(ctx, d.Samples[0].Leaf)
	if err != nil {
		return false
	}
	v := p.judge(ctx, enforcers.Kind(g.Kind), action)
	return v.allow && v.unknown == ""
}

// Close gives up the enforcers that a review holds.
func (r *Review) Close(ctx context.Context) {
	r.present.mu.Lock()
	defer r.present.mu.Unlock()
	for _, x := range r.present.benches {
		x.close(ctx)
	}
	clear(r.present.benches)
	clear(r.present.panels)
	clear(r.present.keys)
}
