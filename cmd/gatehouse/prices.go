package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/enforcers/spend"
	"gatehouse/internal/problem"
)

func (c *cli) pricesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "prices", Short: "Show the price table, compare it with another, sign one of your own", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.pricesShow(), c.pricesDiff(), c.pricesSign())
	return cmd
}

func (c *cli) pricesShow() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show the price table in force: dollars a million tokens", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := c.table(cmd)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.err, "price table %s, sha256 %x\n", t.Version, t.Digest)
			return rows(c, t.Models(), []string{"provider", "model", "input", "output", "cache-read", "write-5m", "write-1h", "above", "checked"}, func(p spend.Price) []string {
				above := ""
				for _, s := range p.Above {
					above += fmt.Sprintf("%d: %s/%s ", s.InputTokens, s.Input, s.Output)
				}
				return []string{p.Provider, strings.Join(p.Match, " "), p.Input.String(), p.Output.String(), p.CacheRead.String(), p.CacheWrite5m.String(), p.CacheWrite1h.String(), strings.TrimSpace(above), p.Checked}
			})
		},
	}
}

// priceChange is one difference. Nothing is changed by itself: a person looks
// at the provider's own page, and edits the table.
type priceChange struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	What     string `json:"what"`
	Ours     string `json:"ours"`
	Theirs   string `json:"theirs"`
	Source   string `json:"source"`
}

func (c *cli) pricesDiff() *cobra.Command {
	return &cobra.Command{
		Use: "diff FILE", Short: "Compare the price table with genai-prices' data, and propose changes", Args: cobra.ExactArgs(1),
		Long: "Compare the price table in force with the data of genai-prices (scripts/prices brings it from the npm package).\nNothing is changed: each difference is a proposal for a person, who looks at the source. Exit 3 when there is one.",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := c.table(cmd)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(args[0])
			if err != nil {
				return problem.Wrap(err, problem.Usage, "couldn't read "+args[0], "bring the data with scripts/prices")
			}
			changes, err := comparePrices(t, b)
			if err != nil {
				return err
			}
			if err := rows(c, changes, []string{"provider", "model", "what", "ours", "theirs", "source"}, func(p priceChange) []string {
				return []string{p.Provider, p.Model, p.What, p.Ours, p.Theirs, p.Source}
			}); err != nil {
				return err
			}
			if len(changes) > 0 {
				return &exitError{code: exitNegative}
			}
			return nil
		},
	}
}

// theirProviders are our price lists' names at genai-prices, which counts
// Vertex's among Google's.
var theirProviders = map[string]string{"anthropic": "anthropic", "openai": "openai", "google": "google", "vertex": "google"}

// theirRates are our rates' names there.
var theirRates = []struct {
	name string
	of   func(spend.Rates) spend.Rate
}{
	{"input_mtok", func(r spend.Rates) spend.Rate { return r.Input }},
	{"output_mtok", func(r spend.Rates) spend.Rate { return r.Output }},
	{"cache_read_mtok", func(r spend.Rates) spend.Rate { return r.CacheRead }},
	{"cache_write_mtok", func(r spend.Rates) spend.Rate { return r.CacheWrite5m }},
	{"cache_write_1h_mtok", func(r spend.Rates) spend.Rate { return r.CacheWrite1h }},
}

// theirModel is one model of genai-prices.
type theirModel struct {
	ID     string          `json:"id"`
	Prices json.RawMessage `json:"prices"` // rates, or a list of dated ones, the newest last
}

// theirRate is a number, or a base with dearer tiers for long input.
type theirRate struct {
	Base  json.Number `json:"base"`
	Tiers []struct {
		Start json.Number `json:"start"`
		Price json.Number `json:"price"`
	} `json:"tiers"`
}

// comparePrices holds every entry of our table whose first name is a model
// there against it.
func comparePrices(t *spend.Table, data []byte) ([]priceChange, error) {
	bad := func(err error) error {
		return problem.Wrap(err, problem.Usage, "this is not genai-prices' data", "bring it with scripts/prices")
	}
	var providers []struct {
		ID     string       `json:"id"`
		Models []theirModel `json:"models"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&providers); err != nil {
		return nil, bad(err)
	}
	by := map[string]theirModel{}
	for _, p := range providers {
		for _, m := range p.Models {
			by[p.ID+" "+m.ID] = m
		}
	}
	var out []priceChange
	for _, p := range t.Models() {
		theirs, ok := by[theirProviders[p.Provider]+" "+p.Match[0]]
		if !ok {
			out = append(out, priceChange{p.Provider, p.Match[0], "model", "listed", "unknown", p.Source})
			continue
		}
		rates, err := newest(theirs.Prices)
		if err != nil {
			return nil, bad(err)
		}
		for _, r := range theirRates {
			raw, ok := rates[r.name]
			if !ok {
				continue // they do not price it; ours may be the dearer guess
			}
			found, err := diffRate(p, r.of, raw)
			if err != nil {
				return nil, bad(err)
			}
			for _, f := range found {
				f.Provider, f.Model, f.Source = p.Provider, p.Match[0], p.Source
				f.What = r.name + f.What
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// newest returns the rates in force now.
func newest(raw json.RawMessage) (map[string]json.RawMessage, error) {
	var dated []struct {
		Prices map[string]json.RawMessage `json:"prices"`
	}
	if json.Unmarshal(raw, &dated) == nil && len(dated) > 0 {
		return dated[len(dated)-1].Prices, nil
	}
	var rates map[string]json.RawMessage
	return rates, json.Unmarshal(raw, &rates)
}

// diffRate compares one rate with its steps.
func diffRate(p spend.Price, of func(spend.Rates) spend.Rate, raw json.RawMessage) ([]priceChange, error) {
	var one theirRate
	if err := json.Unmarshal(raw, &one); err != nil {
		if err := json.Unmarshal(raw, &one.Base); err != nil {
			return nil, err
		}
	}
	var out []priceChange
	compare := func(what string, ours spend.Rate, theirs json.Number) error {
		rate, err := rateOf(theirs)
		if err == nil && rate != ours {
			out = append(out, priceChange{What: what, Ours: ours.String(), Theirs: rate.String()})
		}
		return err
	}
	if err := compare("", of(p.Rates), one.Base); err != nil {
		return nil, err
	}
	for _, tier := range one.Tiers {
		start, err := rateOf(tier.Start)
		if err != nil {
			return nil, err
		}
		from := int64(start) / 1e6
		ours := spend.Rate(0)
		if i := slices.IndexFunc(p.Above, func(s spend.Step) bool { return s.InputTokens == from }); i >= 0 {
			ours = of(p.Above[i].Rates)
		}
		if err := compare(fmt.Sprintf(" above %d", from), ours, tier.Price); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// rateOf reads a JSON number exactly. What has more than six decimals is
// rounded up: a rate is never too low.
func rateOf(n json.Number) (spend.Rate, error) {
	r, ok := new(big.Rat).SetString(n.String())
	if !ok || r.Sign() < 0 {
		return 0, fmt.Errorf("%q is no price", n)
	}
	r.Mul(r, big.NewRat(1e6, 1))
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if !q.IsInt64() {
		return 0, fmt.Errorf("%q is out of range", n)
	}
	return spend.Rate(q.Int64()), nil
}
