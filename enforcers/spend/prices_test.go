package spend_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gatehouse/enforcers/spend"
)

func table(t testing.TB) *spend.Table {
	t.Helper()
	p, err := spend.Prices()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func price(t testing.TB, provider, model string) *spend.Price {
	t.Helper()
	p, ok := table(t).Find(provider, model)
	if !ok {
		t.Fatalf("%s %s is not in the table", provider, model)
	}
	return p
}

func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		provider, model string
		output          string // dollars a million tokens, "" = unknown
	}{
		"exact":             {"anthropic", "claude-sonnet-4-5", "15"},
		"dated":             {"anthropic", "claude-sonnet-4-5-20250929", "15"},
		"case":              {"anthropic", "Claude-Sonnet-4-5", "15"},
		"longer_name_wins":  {"anthropic", "claude-opus-5-5", "20"},
		"unknown":           {"anthropic", "claude-sonnet-99", ""},
		"another_list":      {"openai", "claude-sonnet-4-5", ""},
		"suffix_is_no_date": {"openai", "gpt-4o-audio-preview", ""},
		"vertex":            {"vertex", "claude-opus-4-6@20260205", "25"},
	} {
		t.Run(name, func(t *testing.T) {
			p, ok := table(t).Find(c.provider, c.model)
			if got := ""; ok {
				got = p.Output.String()
				if got != c.output {
					t.Errorf("output %s, want %q", got, c.output)
				}
			} else if c.output != "" {
				t.Error("unknown")
			}
		})
	}
}

func TestCost(t *testing.T) {
	sonnet := price(t, "anthropic", "claude-sonnet-4-5")
	for name, c := range map[string]struct {
		u    spend.Usage
		f    spend.Factor
		want spend.Nano
	}{
		"nothing":                  {spend.Usage{}, spend.One, 0},
		"one_token_in":             {spend.Usage{Input: 1}, spend.One, 3000},
		"ME-19_each_class_once":    {spend.Usage{Input: 1, CacheRead: 1, CacheWrite5m: 1, CacheWrite1h: 1, Output: 1}, spend.One, 3000 + 300 + 3750 + 6000 + 15000},
		"ME-19_at_the_step":        {spend.Usage{Input: 200_000}, spend.One, 600_000_000},
		"ME-19_long_context":       {spend.Usage{Input: 200_001, Output: 1}, spend.One, 200_001*6000 + 22_500},
		"ME-19_cached_counts_long": {spend.Usage{Input: 1, CacheRead: 200_000}, spend.One, 6000 + 200_000*600},
		"ME-19_factor_rounds_up":   {spend.Usage{CacheRead: 1}, spend.One + 1, 301},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := sonnet.Cost(c.u, c.f); got != c.want || err != nil {
				t.Errorf("%d %v, want %d", got, err, c.want)
			}
		})
	}
	// A price below one nanodollar is still rounded up, once a call.
	nano := price(t, "openai", "gpt-5-nano")
	if got, err := nano.Cost(spend.Usage{CacheRead: 1}, spend.One); got != 5 || err != nil {
		t.Errorf("5,000 picodollars are %d", got)
	}
	for name, u := range map[string]spend.Usage{"negative": {Input: -1}, "absurd": {Output: 1e13}} {
		if _, err := sonnet.Cost(u, spend.One); !errors.Is(err, spend.ErrTooMuch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDearest: a token of no known rate costs the highest rate of its model,
// for a call of its length.
func TestDearest(t *testing.T) {
	sonnet := price(t, "anthropic", "claude-sonnet-4-5")
	for name, c := range map[string]struct {
		u    spend.Usage
		f    spend.Factor
		want spend.Nano
	}{
		"nothing":                {spend.Usage{}, spend.One, 0},
		"EG-90_each_class":       {spend.Usage{Input: 1, CacheRead: 1, CacheWrite5m: 1, CacheWrite1h: 1, Output: 1}, spend.One, 5 * 15000},
		"EG-90_at_the_step":      {spend.Usage{Input: 200_000, Output: 1}, spend.One, 200_001 * 15000},
		"EG-90_long_context":     {spend.Usage{Input: 200_000, CacheRead: 1}, spend.One, 200_001 * 22500},
		"EG-90_factor_rounds_up": {spend.Usage{CacheRead: 1}, spend.One + 1, 15001},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := sonnet.Dearest(c.u, c.f); got != c.want || err != nil {
				t.Errorf("%d %v, want %d", got, err, c.want)
			}
		})
	}
	for name, u := range map[string]spend.Usage{"negative": {Input: -1}, "absurd": {Output: 1e13}} {
		if _, err := sonnet.Dearest(u, spend.One); !errors.Is(err, spend.ErrTooMuch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFit holds that what fits is paid for whatever the call then uses within
// its bounds, and that a token more would not have fitted.
func TestFit(t *testing.T) {
	all := table(t).Models()
	rapid.Check(t, func(t *rapid.T) {
		p := all[rapid.IntRange(0, len(all)-1).Draw(t, "model")]
		a := spend.Ask{
			Input: rapid.Int64Range(1, 2_000_000).Draw(t, "input"), Caching: rapid.Bool().Draw(t, "caching"),
			Want: rapid.Int64Range(1, 1_000_000).Draw(t, "want"), Each: rapid.Int64Range(1, 8).Draw(t, "each"), Least: 1,
		}
		a.Want *= a.Each
		room := spend.Nano(rapid.Int64Range(0, 20_000_000_000).Draw(t, "room"))
		tokens, worst, ok := p.Fit(a, room)
		if !ok {
			return
		}
		if worst > room || tokens > a.Want || tokens < 1 || tokens%a.Each != 0 {
			t.Fatalf("%d tokens for %s in %s", tokens, worst, room)
		}
		in := min(a.Input, p.Context)
		read := rapid.Int64Range(0, in).Draw(t, "read")
		u := spend.Usage{Input: in - read, CacheRead: read, Output: rapid.Int64Range(0, tokens).Draw(t, "output")}
		if a.Caching {
			u.CacheWrite1h, u.Input = u.Input, 0
		}
		if cost, err := p.Cost(u, spend.One); err != nil || cost > worst {
			t.Fatalf("%+v costs %s, bound %s (%v)", u, cost, worst, err)
		}
		if more, next, ok := p.Fit(spend.Ask{Input: a.Input, Caching: a.Caching, Want: tokens + a.Each, Least: tokens + a.Each, Each: a.Each}, room); ok && tokens < a.Want {
			t.Fatalf("%d tokens for %s fit too", more, next)
		}
	})
}

func TestParseTable(t *testing.T) {
	const good = `{"version":"1","note":"","models":[{"provider":"p","match":["m"],"source":"s","checked":"2026-11-30","context":10,"max_output":10,"input":"1","output":"2","above":[{"input_tokens":5,"input":"2","output":"2"}]}]}`
	if _, err := spend.ParseTable([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"unknown_field":  {`"note"`, `"nota"`},
		"float":          {`"input":"1"`, `"input":1.5`},
		"seven_decimals": {`"input":"1"`, `"input":"1.0000001"`},
		"exponent":       {`"input":"1"`, `"input":"1e3"`},
		"free":           {`"input":"1"`, `"input":"0"`},
		"no_source":      {`"source":"s"`, `"source":""`},
		"everything":     {`["m"]`, `["*"]`},
		"twice":          {`["m"]`, `["m","m"]`},
		"upper_case":     {`["m"]`, `["M"]`},
		"cheaper_step":   {`"input_tokens":5,"input":"2"`, `"input_tokens":5,"input":"0.5"`},
		"no_version":     {`"version":"1"`, `"version":""`},
		"date":           {"2026-11-30", "yesterday"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, change[0], change[1], 1)
			if bad == good {
				t.Fatal("the case changes nothing")
			}
			if _, err := spend.ParseTable([]byte(bad)); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestNano(t *testing.T) {
	for n, want := range map[spend.Nano]string{0: "0.00 USD", 5e9: "5.00 USD", 1: "0.000000001 USD", 1_234_000_000: "1.234 USD", -5e8: "-0.50 USD"} {
		if n.String() != want {
			t.Errorf("%d is %s, want %s", n, n, want)
		}
	}
}
