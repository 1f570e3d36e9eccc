package spend

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"
)

//go:embed prices.json
var embedded []byte

// Table is one version of what models cost. A model that is not in it cannot
// be called: its worst case is unknown.
type Table struct {
	Version string // of the table
	Digest  [32]byte
	prices  []Price
}

// Price is what one model costs.
type Price struct {
	Provider  string   `json:"provider"`        // whose price list: anthropic | openai | google
	Match     []string `json:"match"`           // model names, lower case; a trailing * stands for any ending
	Source    string   `json:"source"`          // the price list that says so
	Checked   string   `json:"checked"`         // when the entry was last looked at, YYYY-MM-DD
	Context   int64    `json:"context"`         // most tokens of input that the model takes
	MaxOutput int64    `json:"max_output"`      // most tokens that one call can answer with
	Image     int64    `json:"image,omitempty"` // most tokens that one image can take, 0 = as many as Context

	Rates
	Above []Step          `json:"above,omitempty"` // dearer rates for long input, shortest first
	Tiers map[string]Rate `json:"tiers,omitempty"` // price factor of a named service tier; one not named is refused
}

// Step is what holds once a call's input is longer than InputTokens.
type Step struct {
	InputTokens int64 `json:"input_tokens"`
	Rates
}

// Rates are prices of tokens. A cache rate that is not stated is that of plain
// input.
type Rates struct {
	Input        Rate `json:"input"`
	Output       Rate `json:"output"`
	CacheRead    Rate `json:"cache_read,omitempty"`
	CacheWrite5m Rate `json:"cache_write_5m,omitempty"`
	CacheWrite1h Rate `json:"cache_write_1h,omitempty"`
}

// Rate is picodollars a token. The table has it as dollars a million tokens, a
// decimal string, so that no float ever stands for money. In Tiers it is a
// factor in millionths, written the same way: "1.75".
type Rate int64

// UnmarshalText reads a decimal with at most six decimals.
func (r *Rate) UnmarshalText(b []byte) error {
	whole, frac, _ := strings.Cut(string(b), ".")
	if len(whole) == 0 || len(whole) > 6 || len(frac) > 6 {
		return fmt.Errorf("rate %q: want a decimal such as 0.30", b)
	}
	var n int64
	for _, c := range whole + frac + "000000"[len(frac):] {
		if c < '0' || c > '9' {
			return fmt.Errorf("rate %q: want a decimal such as 0.30", b)
		}
		n = n*10 + int64(c-'0')
	}
	*r = Rate(n)
	return nil
}

// String returns dollars a million tokens.
func (r Rate) String() string {
	s := fmt.Sprintf("%d.%06d", int64(r)/1e6, int64(r)%1e6)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// MarshalText returns String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Prices returns the table that this build carries.
func Prices() (*Table, error) { return ParseTable(embedded) }

// ParseTable reads a table and refuses one that could undercharge: an unknown
// field, a missing rate, a long-context step that is cheaper than the one
// before.
func ParseTable(b []byte) (*Table, error) {
	var file struct {
		Version string  `json:"version"`
		Note    string  `json:"note"`
		Models  []Price `json:"models"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("price table: %w", err)
	}
	if file.Version == "" {
		return nil, errors.New("price table: no version")
	}
	seen := map[string]bool{}
	for i := range file.Models {
		p := &file.Models[i]
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("price table, models[%d]: %w", i, err)
		}
		for _, m := range p.Match {
			if seen[p.Provider+" "+m] {
				return nil, fmt.Errorf("price table, models[%d]: %s stands in it twice", i, m)
			}
			seen[p.Provider+" "+m] = true
		}
	}
	return &Table{Version: file.Version, Digest: sha256.Sum256(b), prices: file.Models}, nil
}

func (p *Price) check() error {
	if p.Provider == "" || len(p.Match) == 0 || p.Source == "" || p.Context <= 0 || p.MaxOutput <= 0 || p.Image < 0 {
		return errors.New("provider, match, source, context and max_output must be set")
	}
	if _, err := time.Parse(time.DateOnly, p.Checked); err != nil {
		return fmt.Errorf("checked: %w", err)
	}
	for _, m := range p.Match {
		if m == "" || m == "*" || m != strings.ToLower(m) || strings.Contains(strings.TrimSuffix(m, "*"), "*") {
			return fmt.Errorf("match %q: want a lower-case name, with at most a trailing star", m)
		}
	}
	last := p.Rates
	if last.Input <= 0 || last.Output <= 0 {
		return errors.New("input and output must be set")
	}
	from := int64(0)
	for _, s := range p.Above {
		if s.InputTokens <= from || s.Input < last.Input || s.Output < last.Output {
			return errors.New("above: steps must rise, in length and in price")
		}
		from, last = s.InputTokens, s.Rates
	}
	for name, f := range p.Tiers {
		if f <= 0 {
			return fmt.Errorf("tiers: %s must be more than 0", name)
		}
	}
	return nil
}

// Find returns the price of a model by its provider's price list. The longest
// match wins. False: the model is unknown.
func (t *Table) Find(provider, model string) (*Price, bool) {
	model = strings.ToLower(model)
	var best *Price
	length := -1
	for i := range t.prices {
		p := &t.prices[i]
		if p.Provider != provider {
			continue
		}
		for _, m := range p.Match {
			if prefix, ok := strings.CutSuffix(m, "*"); ok && strings.HasPrefix(model, prefix) && len(prefix) > length {
				best, length = p, len(prefix)
			}
			if m == model {
				return p, true
			}
		}
	}
	return best, best != nil
}

// Models returns the whole table. The caller must not change it.
func (t *Table) Models() []Price { return t.prices }

// Usage is what a call used, in classes that do not overlap: a provider that
// counts one inside another is read so that each token stands once.
type Usage struct {
	Input        int64 // neither read from a cache nor written to one
	CacheRead    int64
	CacheWrite5m int64
	CacheWrite1h int64
	Output       int64 // thinking included
}

// Factor is a price factor in millionths: One is the list price.
type Factor int64

// One is the list price.
const One Factor = 1e6

// ErrTooMuch is a cost that no budget can hold.
var ErrTooMuch = errors.New("the cost is out of range")

// Factor returns what a service tier multiplies the price by, false for one
// that the table does not name.
func (p *Price) Factor(tier string) (Factor, bool) {
	if tier == "" {
		return One, true
	}
	r, ok := p.Tiers[tier]
	return Factor(r), ok
}

// at returns the rates that hold for a length of input.
func (p *Price) at(input int64) Rates {
	r := p.Rates
	for _, s := range p.Above {
		if input > s.InputTokens {
			r = s.Rates
		}
	}
	for _, c := range []*Rate{&r.CacheRead, &r.CacheWrite5m, &r.CacheWrite1h} {
		if *c == 0 {
			*c = r.Input
		}
	}
	return r
}

// Cost returns what a call cost, rounded up once.
func (p *Price) Cost(u Usage, f Factor) (Nano, error) {
	for _, n := range []int64{u.Input, u.CacheRead, u.CacheWrite5m, u.CacheWrite1h, u.Output} {
		if n < 0 || n > 1e12 {
			return 0, ErrTooMuch
		}
	}
	r := p.at(u.Input + u.CacheRead + u.CacheWrite5m + u.CacheWrite1h)
	return amount(f, term{u.Input, r.Input}, term{u.CacheRead, r.CacheRead}, term{u.CacheWrite5m, r.CacheWrite5m},
		term{u.CacheWrite1h, r.CacheWrite1h}, term{u.Output, r.Output})
}

// Dearest returns what a call cost at most when some of its tokens have a rate
// that the table does not know: every token at the model's highest rate for a
// call of this length, rounded up once.
func (p *Price) Dearest(u Usage, f Factor) (Nano, error) {
	for _, n := range []int64{u.Input, u.CacheRead, u.CacheWrite5m, u.CacheWrite1h, u.Output} {
		if n < 0 || n > 1e12 {
			return 0, ErrTooMuch
		}
	}
	in := u.Input + u.CacheRead + u.CacheWrite5m + u.CacheWrite1h
	r := p.at(in)
	return amount(f, term{in + u.Output, max(r.Input, r.CacheRead, r.CacheWrite5m, r.CacheWrite1h, r.Output)})
}

// Ask is what a call may use at most.
type Ask struct {
	Input   int64  // bound of input tokens; the context window bounds it too
	Window  int64  // a context window that the call asks for, when it is larger than the model's own
	Caching bool   // the call may write to a cache
	Want    int64  // output tokens asked for, over all answers
	Least   int64  // fewer than these are worth nothing
	Each    int64  // answers: tokens come in multiples of this, 0 = 1
	Factor  Factor // 0 = One
}

// Fit returns the most output tokens, at most a.Want, that room pays for, and
// the worst case of a call that is bounded to them. False: less than a.Least.
func (p *Price) Fit(a Ask, room Nano) (tokens int64, worst Nano, ok bool) {
	in := min(a.Input, max(p.Context, a.Window))
	f, each := a.Factor, max(a.Each, 1)
	if f == 0 {
		f = One
	}
	r := p.at(in)
	dearest := max(r.Input, r.CacheRead)
	if a.Caching {
		dearest = max(dearest, r.CacheWrite5m, r.CacheWrite1h)
	}
	cost := func(out int64) (Nano, error) { return amount(f, term{in, dearest}, term{out, r.Output}) }
	if worst, err := cost(a.Want); err == nil && worst <= room {
		return a.Want, worst, a.Want >= a.Least
	}
	// The most that fits: cost rises with the tokens.
	low, high := int64(0), a.Want/each
	for low < high {
		mid := low + (high-low+1)/2
		if c, err := cost(mid * each); err == nil && c <= room {
			low = mid
		} else {
			high = mid - 1
		}
	}
	tokens = low * each
	worst, err := cost(tokens)
	return tokens, worst, err == nil && worst <= room && tokens >= max(a.Least, 1)
}

type term struct {
	tokens int64
	rate   Rate
}

// amount adds the terms in picodollars, applies the factor and rounds up once.
func amount(f Factor, terms ...term) (Nano, error) {
	var hi, lo uint64
	for _, t := range terms {
		h, l := bits.Mul64(uint64(t.tokens), uint64(t.rate))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi, carry = bits.Add64(hi, h, carry)
		if carry != 0 {
			return 0, ErrTooMuch
		}
	}
	if hi != 0 || f <= 0 {
		return 0, ErrTooMuch
	}
	const unit = 1000 * uint64(One) // picodollars in a nanodollar, millionths in one
	hi, lo = bits.Mul64(lo, uint64(f))
	if hi >= unit {
		return 0, ErrTooMuch
	}
	n, rest := bits.Div64(hi, lo, unit)
	if rest > 0 {
		n++
	}
	if n > uint64(most) {
		return 0, ErrTooMuch
	}
	return Nano(n), nil
}
