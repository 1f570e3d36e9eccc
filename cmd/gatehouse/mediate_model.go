package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"

	"gatehouse/enforcers"
	"gatehouse/enforcers/model"
	"gatehouse/enforcers/spend"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/api"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/diag"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// models gives sessions their way to language models, and keeps the node's
// ledger of what they spend.
type models struct {
	ledger *spend.Ledger
	prices *spend.Table
	conns  map[string]model.Connection
	notary *notary.Notary
	seen   func(model.Event)
	log    *slog.Logger
}

// newModels reads the prices, folds the ledger from the journal, and registers
// the model connections' injectors.
func newModels(p parts) (*models, error) {
	m := &models{conns: map[string]model.Connection{}, notary: p.notary, seen: counted(p.metrics), log: p.log}
	var err error
	if m.prices, err = pricesOf(p.cfg, p.signers); err != nil {
		return nil, err
	}
	if m.ledger, err = ledgerOf(p.cfg, p.journal); err != nil {
		return nil, err
	}
	for _, c := range p.cfg.Connections {
		if c.Kind != "model" {
			continue
		}
		conn, err := modelConnection(c)
		if err != nil {
			return nil, err
		}
		calls, err := mintCallsOf(p, c)
		if err != nil {
			return nil, err
		}
		token, err := modelToken(calls, c)
		if err != nil {
			return nil, err
		}
		injector, err := model.Injector(conn, token)
		if problem.CodeOf(err) == model.CodeUnsupported {
			// M-17: the node does without; a bundle that counts on it is refused by its
			// credential policy (gatekeeper.Credentials).
			p.log.Warn("model connection not mediated", slog.String("connection", c.Name), slog.String("provider", c.Provider))
			continue
		}
		if err != nil {
			return nil, err
		}
		p.inject[c.Name] = injector
		m.conns[c.Name] = conn
	}
	return m, nil
}

// counted counts calls in the node's metrics.
func counted(m *diag.Metrics) func(model.Event) {
	if m == nil {
		return nil
	}
	return func(e model.Event) {
		m.ModelCalls.WithLabelValues(e.Connection, e.Code).Inc()
		m.ModelSpent.WithLabelValues(e.Connection).Add(float64(e.Spent))
		if e.First > 0 {
			m.ModelSeconds.WithLabelValues(e.Connection).Observe(e.First.Seconds())
		}
	}
}

// budgets is the node's ledger as the API shows it.
func (d *doors) budgets() api.Budgets {
	for _, m := range d.mediators {
		if m, ok := m.(*models); ok {
			return api.Budgets{Prices: m.prices.Version, Digest: hex.EncodeToString(m.prices.Digest[:]), Budgets: m.ledger.Budgets()}
		}
	}
	return api.Budgets{Budgets: []spend.Budget{}}
}

// ledgerOf folds what this node's sessions spent so far.
func ledgerOf(cfg *config.Config, j *journal.Journal) (*spend.Ledger, error) {
	var o spend.Options
	if cfg.Spend.PerDay != "" {
		var perDay bundle.Money
		if err := perDay.UnmarshalText([]byte(cfg.Spend.PerDay)); err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "spend.per_day: "+err.Error(), "")
		}
		o.PerDay = spend.Nano(perDay)
	}
	l := spend.New(o)
	held := false
	for group, err := range j.Groups(0) {
		if err != nil {
			return nil, fmt.Errorf("couldn't read the journal: %w", err)
		}
		for _, rec := range group {
			if rec.Kind != journal.KindReceipt {
				continue
			}
			// A decision that holds nothing changes no budget, and neither do outcomes
			// before the first that does: most receipts of most nodes.
			holds := bytes.Contains(rec.Data, []byte(`"held":`))
			held = held || holds
			if !holds && !receipts.MayBe(rec.Data, receipts.TypeSessionOpen, receipts.TypeSessionClose) &&
				(!held || !receipts.MayBe(rec.Data, receipts.TypeOutcome)) {
				continue
			}
			r, err := receipts.Decode(rec.Data)
			if err != nil {
				return nil, fmt.Errorf("journal position %d holds no receipt: %w", rec.Pos, err)
			}
			l.Fold(receipts.Leaf(rec.Data), r)
		}
	}
	l.Folded()
	return l, nil
}

// callsPerMinute is what one session may begin in a minute when its connection
// does not say: more than agents do, and less than a loop does.
const callsPerMinute = 300

// modelConnection reads a connection of kind model.
func modelConnection(c config.Connection) (model.Connection, error) {
	conn := model.Connection{Name: c.Name, Provider: c.Provider, Project: c.Project, Location: c.Location, Aliases: c.Aliases, Betas: c.Betas, Rate: cmp.Or(c.PerMinute, callsPerMinute)}
	if c.Host != "" {
		to, err := authority.New(authority.HTTPS, c.Host, 443)
		if err != nil {
			return conn, problem.Wrap(err, problem.ConfigInvalid, "connections."+c.Name+".host: want a host name", "")
		}
		conn.To = to
	}
	return conn, nil
}

// Mediate opens the session's budget and returns its routes.
func (m *models) Mediate(_ context.Context, s gatekeeper.DoorSpec, _ *enforcers.Gate) (mediation, error) {
	if err := m.account(s); err != nil {
		return mediation{}, err
	}
	closed := func(string) error { m.ledger.Close(s.Session); return nil }
	var conns []model.Connection
	var allowed []model.Allowed
	named := map[string]bool{}
	for _, b := range s.Bundle.Models {
		c, ok := m.conns[b.Connection]
		if !ok && s.Bundle.Credentials.Weaker != nil {
			continue // under compatibility a connection may go without a mediator
		}
		if !ok {
			m.ledger.Close(s.Session)
			return mediation{}, problem.New(problem.ConfigInvalid, "the bundle names the connection "+b.Connection+", which is no model connection of this node", "")
		}
		if !named[c.Name] {
			named[c.Name] = true
			conns = append(conns, c)
		}
		allowed = append(allowed, model.Allowed{Connection: c.Name, Models: b.Allow, MaxOutput: b.MaxOutputTokens})
	}
	if len(conns) == 0 {
		return mediation{Close: closed}, nil
	}
	mediator, err := model.New(model.Options{
		Session: s.Session, Connections: conns, Allowed: allowed, Ledger: m.ledger, Prices: m.prices, Seen: m.seen, Log: m.log,
	})
	if err != nil {
		m.ledger.Close(s.Session)
		return mediation{}, err
	}
	return mediation{Routes: mediator.Routes(), Inside: gatekeeper.Inside{Env: mediator.Env()}, Close: closed}, nil
}

// account opens the session's budget. A child is paid by its parent; who that
// is stands in its session.open, which is durable before its door opens.
func (m *models) account(s gatekeeper.DoorSpec) error {
	chain, err := m.notary.Resume(s.Session)
	if err != nil {
		return err
	}
	account := spend.Session{ID: s.Session, Parent: chain.Info().Open.Parent, Bundle: s.Bundle.Name}
	if s.Bundle.Spend != nil {
		account.Limit, account.PerDay = spend.Nano(s.Bundle.Spend.Limit), spend.Nano(s.Bundle.Spend.PerDay)
	}
	return m.ledger.Open(account)
}
