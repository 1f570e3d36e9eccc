package policies

import (
	"testing"

	"gatehouse/enforcers"
)

func TestSpend(t *testing.T) {
	call := func(connection, model string, tokens, held int64) []byte {
		return message(t, enforcers.Action{Kind: enforcers.ModelCall, Connection: connection, Model: &enforcers.Model{Provider: "anthropic", Model: model, MaxTokens: tokens, Held: held}})
	}
	spawn := func(bundle string, depth, count int) []byte {
		return message(t, enforcers.Action{Kind: enforcers.SessionSpawn, Spawn: &enforcers.Spawn{Bundle: bundle, Depth: depth, Count: count}})
	}
	cases := map[string]struct {
		action               []byte
		effect, rule, reason string
	}{
		"model_listed":                {call("anthropic-main", "claude-sonnet-4", 1000, 1), allow, "models[0]", ReasonListed},
		"EG-87_model_unlisted":        {call("anthropic-main", "claude-opus-4", 1000, 1), deny, spendDefault, ReasonModelNotListed},
		"ME-08_model_case":            {call("anthropic-main", "Claude-sonnet-4", 1000, 1), deny, spendDefault, ReasonModelNotListed},
		"EG-87_model_behind_a_slash":  {call("anthropic-main", "claude-sonnet-4/../opus", 1000, 1), deny, spendDefault, ReasonModelNotListed},
		"model_on_another_connection": {call("other", "claude-sonnet-4", 1000, 1), deny, spendDefault, ReasonConnectionNotListed},
		"model_without_connection":    {call("", "claude-sonnet-4", 1000, 1), deny, spendDefault, ReasonConnectionNotListed},
		"EG-91_max_tokens_huge":       {call("anthropic-main", "claude-sonnet-4", 16385, 1), deny, spendDefault, ReasonMaxTokensExceeded},
		"EG-91_max_tokens_absent":     {call("anthropic-main", "claude-sonnet-4", 0, 1), deny, spendDefault, ReasonMaxTokensExceeded},
		"EG-88_over_the_limit":        {call("anthropic-main", "claude-sonnet-4", 1000, 5_000_000_001), deny, spendDefault, ReasonBudgetExceeded},
		"at_the_limit":                {call("anthropic-main", "claude-sonnet-4", 16384, 5_000_000_000), allow, "models[0]", ReasonListed},
		"spawn_listed":                {spawn("lint-fix", 1, 3), allow, "children.bundles[0]", ReasonListed},
		"spawn_other_bundle":          {spawn("lint", 1, 1), deny, spendDefault, ReasonBundleNotListed},
		"EG-92_spawn_too_many":        {spawn("lint-fix", 1, 4), deny, spendDefault, ReasonChildrenExceeded},
		"spawn_too_deep":              {spawn("lint-fix", 2, 1), deny, spendDefault, ReasonDepthExceeded},
		"foreign_kind":                {queryAction(t, "x.test"), abstain, "spend", ReasonNotMine},
	}
	j := configureWith(t, "spend", sorted(testPolicy))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { check(t, j, c.action, c.effect, c.rule, c.reason) })
	}
	t.Run("empty_policy", func(t *testing.T) {
		j := configureWith(t, "spend", `{}`)
		check(t, j, call("anthropic-main", "claude-sonnet-4", 1000, 1), deny, spendDefault, ReasonConnectionNotListed)
		check(t, j, spawn("lint-fix", 1, 1), deny, spendDefault, ReasonSpawnNotListed)
	})
}
