package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"gatehouse/enforcers"
	"gatehouse/enforcers/git"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/journal"
	"gatehouse/receipts"
)

// pushSubject is where permitted pushes wait in the journal until their host has
// answered.
const pushSubject = "scm.push"

// purposeAsk names the node's call that asks a host what became of a push.
const purposeAsk = "scm.reconcile"

// askSession begins the name under which the node holds a token to ask with. It
// is no session's.
const askSession = "reconcile-"

// pushRecord is a push that is about to leave, or, when it is done, its end.
type pushRecord struct {
	git.Pushing
	Done bool `json:"done,omitempty"`
}

func (m *gits) pushing(ctx context.Context, p pushRecord) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return keepPrivate(m.journal, pushSubject)(ctx, b)
}

// pushed notes that nobody needs to ask about a push any more. Should that fail,
// the next start asks once too often.
func (m *gits) pushed(p git.Pushing) {
	if err := m.pushing(context.Background(), pushRecord{Pushing: p, Done: true}); err != nil {
		m.log.Warn("couldn't note the end of a push", slog.String("session", p.Session), slog.Any("err", err))
	}
}

// recall takes a record of the journal into account.
func (m *gits) recall(rec journal.Record, open map[string]git.Pushing) error {
	var p pushRecord
	if err := json.Unmarshal(rec.Data, &p); err != nil {
		return err
	}
	if p.Done {
		delete(open, p.Receipt)
	} else {
		open[p.Receipt] = p.Pushing
	}
	return nil
}

// ask finds out what became of a push that a crash left without an answer, by
// object ids. Nothing is pushed again. The finding is the outcome of the node's
// own call, whose action carries the id of the push's decision receipt.
func (m *gits) ask(ctx context.Context, p git.Pushing) error {
	for i, h := range m.hosts {
		r, ok := m.names[p.Repository]
		if !ok || h.Connection != p.Connection {
			continue
		}
		session := askSession + p.Session
		m.credentials[i].Open(session, r, nil)
		defer func() { _ = m.credentials[i].End(context.WithoutCancel(ctx), session) }()
		token, err := m.credentials[i].Token(ctx, session, r.ID, git.Read)
		if err != nil {
			return err
		}
		found := git.Unclear
		node, err := m.up.Node(upstream.NodeOptions{Purpose: purposeAsk, To: h.To, Begin: m.asking(p, h.To, &found)})
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+h.To.HostHeader()+"/"+r.Name+".git/info/refs?service=git-upload-pack", nil)
		if err != nil {
			return err
		}
		m.credentials[i].Authorize(req, token)
		resp, err := node.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			if found, err = git.Reconcile(resp.Body, p.Commands); err != nil {
				return err
			}
		}
		m.log.InfoContext(ctx, "a push that a crash cut off", slog.String("session", p.Session), slog.String("found", found))
		return m.pushing(ctx, pushRecord{Pushing: p, Done: true})
	}
	return nil // nobody has the repository any more
}

// asking writes the receipts of the node's question.
func (m *gits) asking(p git.Pushing, to authority.Authority, found *string) func(context.Context, string) (func(enforcers.Outcome), error) {
	obs := receipts.Obs{Point: "node", Kind: "node", Level: 2, Mediation: "sole"}
	return func(ctx context.Context, method string) (func(enforcers.Outcome), error) {
		chain := m.notary.Control()
		leaf, err := chain.Append(ctx, receipts.Receipt{
			Type: receipts.TypeDecision, Obs: &obs,
			Act: &receipts.Act{ID: p.Receipt, Kind: string(enforcers.HTTPRequest), Scheme: to.Scheme(), Host: to.Host(), Port: to.Port(), Method: method,
				Connection: p.Connection, Name: purposeAsk, Authority: true},
			Dec: &receipts.Dec{Verdict: receipts.Allow, Mode: receipts.Hard, Passed: true, Rule: "node." + purposeAsk, Reason: "node_call", By: "node", Dev: m.dev},
		})
		if err != nil {
			return nil, err
		}
		return func(o enforcers.Outcome) {
			if o.Code == "" {
				o.Code = *found
			}
			chain.Recorder(obs).Outcome(leaf, o)
		}, nil
	}
}
