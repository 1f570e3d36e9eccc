package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper"
	"gatehouse/internal/config"
	"gatehouse/internal/diag"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
)

// mediator adds one protocol to the doors of sessions: it recognizes requests,
// builds their actions and carries out the permitted ones.
type mediator interface {
	// Mediate prepares its part of one session's door.
	Mediate(ctx context.Context, s gatekeeper.DoorSpec, g *enforcers.Gate) (mediation, error)
}

// mediation is one mediator's part of one session's door.
type mediation struct {
	Routes []door.Route              // asked in the mediators' order
	Inside gatekeeper.Inside         // variables and files that clients inside need
	Start  func(ctx context.Context) // right before the agent starts, nil for nothing
	Close  func(code string) error

	// Agent are further resources of the agent's endpoint, by the first part of
	// their path below agent.Root.
	Agent map[string]door.Handler
}

// parts are what mediators are made from.
type parts struct {
	cfg     *config.Config
	state   state // run has no keys and logs folder
	up      *upstream.Client
	inject  injectors // a mediator adds its own connections
	journal *journal.Journal
	notary  *notary.Notary
	signers string        // key folder of the node that operators sign with
	metrics *diag.Metrics // nil: nobody counts
	dev     bool
	log     *slog.Logger
}

// mediatorsOf makes the mediators in the order in which a door asks them: the
// most specific first.
func mediatorsOf(ctx context.Context, p parts) ([]mediator, error) {
	var all []mediator
	models, err := newModels(p)
	if err != nil {
		return nil, err
	}
	all = append(all, models)
	gits, err := newGits(p)
	if err != nil {
		return nil, err
	}
	all = append(all, gits)
	desks, err := newDesks(p, gits)
	if err != nil {
		return nil, err
	}
	all = append(all, desks)
	relays, err := newRelays(p)
	if err != nil {
		return nil, err
	}
	all = append(all, relays)
	return all, nil
}

// mediate asks every mediator for its part. What was prepared is closed when a
// later one fails.
func (d *doors) mediate(ctx context.Context, s gatekeeper.DoorSpec, g *enforcers.Gate) (_ []mediation, err error) {
	var all []mediation
	for _, m := range d.mediators {
		one, err := m.Mediate(ctx, s, g)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("couldn't mediate: %w", err), closeAll(all, "faulted"))
		}
		all = append(all, one)
	}
	own, err := d.agent(s, all)
	if err != nil {
		return nil, errors.Join(err, closeAll(all, "faulted"))
	}
	return append(all, own), nil
}

// closeAll closes mediations, the last one first.
func closeAll(all []mediation, code string) error {
	var errs []error
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Close != nil {
			errs = append(errs, all[i].Close(code))
		}
	}
	return errors.Join(errs...)
}
