package api

import (
	"context"

	"gatehouse/enforcers/spend"
)

// Budgets are the node's budgets as its ledger has them now: not a view, but
// what the next call is judged by.
type Budgets struct {
	Prices  string         `json:"prices" doc:"version of the price table in force"`
	Digest  string         `json:"digest" doc:"SHA-256 of the price table, as decisions name it"`
	Budgets []spend.Budget `json:"budgets" doc:"days first, then sessions; amounts are nanodollars"`
}

func (a *API) spendRoutes() {
	get(a, "get-spend", "/v1/spend", "What sessions and days have spent, and hold", func(context.Context, *none) (Budgets, error) {
		if a.o.Spend == nil {
			return Budgets{Budgets: []spend.Budget{}}, nil
		}
		return a.o.Spend(), nil
	})
}
