package main

import (
	"context"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/receipts"
)

// begin writes the receipt of one of the node's own calls to the control chain
// before anything is resolved, and returns what writes its outcome. Neither
// names more than the place and the method: the control chain has no key for
// commitments.
func (n *node) begin(purpose, connection string, to authority.Authority, dev bool) func(context.Context, string) (func(enforcers.Outcome), error) {
	obs := receipts.Obs{Point: "node", Kind: "node", Level: 2, Mediation: "sole"}
	return func(ctx context.Context, method string) (func(enforcers.Outcome), error) {
		chain := n.notary.Control()
		leaf, err := chain.Append(ctx, receipts.Receipt{
			Type: receipts.TypeDecision, Obs: &obs,
			Act: &receipts.Act{ID: newUUID(), Kind: string(enforcers.HTTPRequest), Scheme: to.Scheme(), Host: to.Host(), Port: to.Port(), Method: method,
				Connection: connection, Name: purpose, Authority: true},
			Dec: &receipts.Dec{Verdict: receipts.Allow, Mode: receipts.Hard, Passed: true, Rule: "node." + purpose, Reason: "node_call", By: "node", Dev: dev},
		})
		if err != nil {
			return nil, err
		}
		return func(o enforcers.Outcome) { chain.Recorder(obs).Outcome(leaf, o) }, nil
	}
}

// issued writes the receipt of a token that the node minted for itself.
func (n *node) issued(connection string, to authority.Authority) func(context.Context, map[string]string, time.Time) error {
	return func(ctx context.Context, scope map[string]string, expires time.Time) error {
		_, err := n.notary.Control().Append(ctx, receipts.Receipt{Type: receipts.TypeCredentialIssue, Cred: &receipts.Credential{
			Name: connection, Delivery: "mediated", Host: to.Host(), Scope: scope, Expires: expires.UTC(), Result: "issued",
		}})
		return err
	}
}

// revoked writes the receipt of a token that the node gave back, or could not:
// then it ends by itself within the hour.
func (n *node) revoked(connection string, to authority.Authority) func(context.Context, map[string]string, time.Time, error) error {
	return func(ctx context.Context, scope map[string]string, expires time.Time, failed error) error {
		result := "revoked"
		if failed != nil {
			result = "pending"
		}
		_, err := n.notary.Control().Append(ctx, receipts.Receipt{Type: receipts.TypeCredentialRevoke, Cred: &receipts.Credential{
			Name: connection, Delivery: "mediated", Host: to.Host(), Scope: scope, Expires: expires.UTC(), Result: result,
		}})
		return err
	}
}
