package github

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/go-github/v66/github"
)

// Times of the reconciler. GitHub can redeliver for three days; a delivery that
// is younger than settle may still be on its way.
const (
	redeliverable = 3 * 24 * time.Hour
	settle        = 5 * time.Minute
	reconcileGap  = 10 * time.Minute
	maxRequests   = 100 // redeliveries a round
	maxPages      = 200 // of a round; 100 deliveries each
)

// Deliveries is what GitHub remembers of one hook. List is newest first.
type Deliveries interface {
	List(ctx context.Context, o *github.ListCursorOptions) ([]*github.HookDelivery, *github.Response, error)
	Redeliver(ctx context.Context, id int64) error
}

// AppHook is the webhook of a GitHub App; the client signs as the App.
type AppHook struct{ Client *github.Client }

// List lists the deliveries of the App's hook.
func (h AppHook) List(ctx context.Context, o *github.ListCursorOptions) ([]*github.HookDelivery, *github.Response, error) {
	return h.Client.Apps.ListHookDeliveries(ctx, o)
}

// Redeliver asks GitHub to send one again.
func (h AppHook) Redeliver(ctx context.Context, id int64) error {
	_, _, err := h.Client.Apps.RedeliverHookDelivery(ctx, id)
	return accepted(err)
}

// RepositoryHook is a webhook of one repository. Client is asked for before each
// call: what an App mints for one repository lives for an hour.
type RepositoryHook struct {
	Client      func(context.Context) (*github.Client, error)
	Owner, Name string
	ID          int64
}

// List lists the deliveries of the repository's hook.
func (h RepositoryHook) List(ctx context.Context, o *github.ListCursorOptions) ([]*github.HookDelivery, *github.Response, error) {
	client, err := h.Client(ctx)
	if err != nil {
		return nil, nil, err
	}
	return client.Repositories.ListHookDeliveries(ctx, h.Owner, h.Name, h.ID, o)
}

// Redeliver asks GitHub to send one again.
func (h RepositoryHook) Redeliver(ctx context.Context, id int64) error {
	client, err := h.Client(ctx)
	if err != nil {
		return err
	}
	_, _, err = client.Repositories.RedeliverHookDelivery(ctx, h.Owner, h.Name, h.ID, id)
	return accepted(err)
}

// OrganizationHook is a webhook of one organization, under a token of its owner.
type OrganizationHook struct {
	Client *github.Client
	Org    string
	ID     int64
}

// List lists the deliveries of the organization's hook.
func (h OrganizationHook) List(ctx context.Context, o *github.ListCursorOptions) ([]*github.HookDelivery, *github.Response, error) {
	return h.Client.Organizations.ListHookDeliveries(ctx, h.Org, h.ID, o)
}

// Redeliver asks GitHub to send one again.
func (h OrganizationHook) Redeliver(ctx context.Context, id int64) error {
	_, _, err := h.Client.Organizations.RedeliverHookDelivery(ctx, h.Org, h.ID, id)
	return accepted(err)
}

// accepted takes 202, which go-github reports as an error, for what it is.
func accepted(err error) error {
	var a *github.AcceptedError
	if errors.As(err, &a) {
		return nil
	}
	return err
}

// Reconciler makes GitHub's "at most once" an "at least once": it compares what
// GitHub sent in the last three days with what the journal has, and asks for
// what is missing. It reads the vendor's API and writes nothing; what comes back
// comes in through the endpoint like any other delivery.
type Reconciler struct {
	Hook Deliveries
	// Known reports whether a delivery id is in the journal.
	Known func(delivery string) bool
	Now   func() time.Time // time.Now by default
	Log   *slog.Logger     // discarded by default

	asked map[string]bool // redeliveries of this run: once each, whatever comes of it
}

// Run reconciles now and every ten minutes until ctx ends. What fails is tried
// again in the next round.
func (r *Reconciler) Run(ctx context.Context) error {
	for {
		n, err := r.Round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			r.log().LogAttrs(ctx, slog.LevelWarn, "github.reconcile", slog.Any("err", err))
		case n > 0:
			r.log().LogAttrs(ctx, slog.LevelInfo, "github.redelivery_requested", slog.Int("deliveries", n))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconcileGap):
		}
	}
}

func (r *Reconciler) log() *slog.Logger {
	if r.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return r.Log
}

// Round looks once, and returns how many redeliveries it requested.
func (r *Reconciler) Round(ctx context.Context) (int, error) {
	if r.asked == nil {
		r.asked = map[string]bool{}
	}
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	oldest, newest := now().Add(-redeliverable), now().Add(-settle)
	asked := 0
	o := &github.ListCursorOptions{PerPage: 100}
	for range maxPages {
		page, resp, err := r.Hook.List(ctx, o)
		if err != nil {
			return asked, fmt.Errorf("list deliveries: %w", err)
		}
		for _, d := range page {
			at, id := d.GetDeliveredAt().Time, d.GetGUID()
			if at.Before(oldest) {
				return asked, nil
			}
			// A redelivery has the id of the first, so one look-up covers both.
			if id == "" || at.After(newest) || r.asked[id] || r.Known(id) {
				continue
			}
			if asked == maxRequests {
				return asked, nil
			}
			if err := r.Hook.Redeliver(ctx, d.GetID()); err != nil {
				return asked, fmt.Errorf("request a redelivery: %w", err)
			}
			r.asked[id] = true
			asked++
		}
		if resp == nil || resp.Cursor == "" {
			return asked, nil
		}
		o.Cursor = resp.Cursor
	}
	return asked, nil
}
