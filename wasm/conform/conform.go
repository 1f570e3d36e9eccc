package conform

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"gatehouse/enforcers"
	"gatehouse/wasm"
)

// Vectors are the golden vectors of the built-in enforcers and of the example
// guests, one file each.
//
//go:embed vectors/*.json
var Vectors embed.FS

// Set is one file of vectors.
type Set struct {
	Name     string                     `json:"name"`     // for people
	Params   json.RawMessage            `json:"params"`   // the enforcer's params
	Policies map[string]json.RawMessage `json:"policies"` // compiled policies by name
	Vectors  []Vector                   `json:"vectors"`
}

// Vector is one action with the verdict it must get.
type Vector struct {
	Name    string          `json:"name"`
	Policy  string          `json:"policy"`            // name in Set.Policies
	Action  json.RawMessage `json:"action"`            // canonical, apart from white space
	Verdict string          `json:"verdict,omitempty"` // allow | deny | abstain
	Rule    string          `json:"rule,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Fault   string          `json:"fault,omitempty"`    // the fault code instead of a verdict
	MaxFuel uint64          `json:"max_fuel,omitempty"` // 0 = not checked
}

// Maker configures the enforcer under test.
type Maker func(ctx context.Context, policy, params []byte) (enforcers.Enforcer, error)

// Result is what became of one vector.
type Result struct {
	Vector Vector
	Got    enforcers.Verdict
	Fault  string
	Err    error // why the vector failed; nil when it passed
}

// Parse reads a set strictly: an unknown key or a vector without a name or
// policy is an error.
func Parse(b []byte) (*Set, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var s Set
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("read vectors: %w", err)
	}
	names := map[string]bool{}
	for i, v := range s.Vectors {
		if v.Name == "" || names[v.Name] {
			return nil, fmt.Errorf("vector %d has no name of its own", i)
		}
		names[v.Name] = true
		if s.Policies[v.Policy] == nil {
			return nil, fmt.Errorf("vector %q names no policy of the set", v.Name)
		}
		if (v.Fault == "") == (v.Verdict == "") {
			return nil, fmt.Errorf("vector %q must have either a verdict or a fault", v.Name)
		}
	}
	return &s, nil
}

// Load reads one file of Vectors.
func Load(name string) (*Set, error) {
	b, err := fs.ReadFile(Vectors, "vectors/"+name+".json")
	if err != nil {
		return nil, err
	}
	return Parse(b)
}

// Run puts every vector to an enforcer made with make, one enforcer per policy,
// in the order of the file.
func Run(ctx context.Context, s *Set, make Maker) ([]Result, error) {
	made := map[string]enforcers.Enforcer{}
	var results []Result
	for _, v := range s.Vectors {
		e := made[v.Policy]
		if e == nil {
			var err error
			if e, err = make(ctx, compact(s.Policies[v.Policy]), compact(s.Params)); err != nil {
				return nil, fmt.Errorf("configure with policy %q: %w", v.Policy, err)
			}
			made[v.Policy] = e
		}
		results = append(results, check(ctx, e, v))
	}
	return results, nil
}

// check asks e about one vector.
func check(ctx context.Context, e enforcers.Enforcer, v Vector) Result {
	r := Result{Vector: v}
	got, err := e.Decide(ctx, compact(v.Action))
	r.Got = got
	var f *enforcers.Fault
	if errors.As(err, &f) {
		r.Fault = f.Code
	}
	switch {
	case err != nil && f == nil:
		r.Err = err
	case r.Fault != v.Fault:
		r.Err = fmt.Errorf("fault %q, want %q", r.Fault, v.Fault)
	case v.Fault == "" && (string(got.Effect) != v.Verdict || got.Rule != v.Rule || got.Reason != v.Reason):
		r.Err = fmt.Errorf("%s by %s because %s, want %s by %s because %s", got.Effect, got.Rule, got.Reason, v.Verdict, v.Rule, v.Reason)
	case v.MaxFuel != 0 && got.Fuel > v.MaxFuel:
		r.Err = fmt.Errorf("%d fuel, want at most %d", got.Fuel, v.MaxFuel)
	}
	return r
}

// Section is the custom section in which a module carries vectors of its own.
const Section = "gatehouse.vectors"

// SelfTest runs the vectors that a module carries; a module without any
// passes. It is a wasm.SelfTest.
func SelfTest(ctx context.Context, module []byte, m *wasm.Module) error {
	b := wasm.Section(module, Section)
	if b == nil {
		return nil
	}
	s, err := Parse(b)
	if err != nil {
		return err
	}
	make, done := Of(m)
	defer done()
	results, err := Run(ctx, s, make)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Err != nil {
			return fmt.Errorf("vector %q: %w", r.Vector.Name, r.Err)
		}
	}
	return nil
}

// Of returns a Maker of enforcers from a module, and what closes them.
func Of(m *wasm.Module) (make Maker, done func()) {
	var made []*wasm.Enforcer
	make = func(ctx context.Context, policy, params []byte) (enforcers.Enforcer, error) {
		e, err := m.Enforcer(ctx, wasm.Configure(policy, params))
		if err != nil {
			return nil, err
		}
		made = append(made, e)
		return e, nil
	}
	return make, func() {
		for _, e := range made {
			e.Close()
		}
	}
}

// compact takes the white space for people out of canonical JSON.
func compact(b []byte) []byte {
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return slices.Clone(b) // let the enforcer see what is there
	}
	return out.Bytes()
}
