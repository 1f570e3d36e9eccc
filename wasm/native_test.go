package wasm

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/wasm/policies"
)

// TestBuiltinIsItsSource puts the vectors' actions, broken in every way that
// chance finds, to the built-in module and to the same source compiled natively:
// the same verdict or the same fault, whatever the compiler made of it.
func TestBuiltinIsItsSource(t *testing.T) {
	type pair struct{ module, native enforcers.Enforcer }
	var pairs []pair
	var actions [][]byte
	for _, name := range policies.Names() {
		policy, own := vectors(t, name)
		actions = append(actions, own...)
		native, err := policies.Native(name, Configure([]byte(policy), BuiltinParams(name)))
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, pair{builtinEnforcer(t, name, policy), native})
	}
	rounds := 10 // a fault costs the module an instance, some 4 ms
	if testing.Short() {
		rounds = 3
	}
	r := rand.New(rand.NewPCG(1, 2))
	verdicts := make(map[string]int)
	for _, action := range actions {
		for n := range rounds {
			action := bytes.Clone(action)
			for range min(n, 1+r.IntN(3)) {
				action = broken(r, action, actions[r.IntN(len(actions))])
			}
			for _, p := range pairs {
				want, wantErr := p.native.Decide(t.Context(), action)
				got, err := p.module.Decide(t.Context(), action)
				got.Fuel = 0
				if got != want || (err == nil) != (wantErr == nil) || err != nil && codeOf(err) != codeOf(wantErr) {
					t.Fatalf("%s: %+v, %v; natively %+v, %v: %q", p.module.Name(), got, err, want, wantErr, action)
				}
				verdicts[string(got.Effect)]++
			}
		}
	}
	for _, effect := range []string{"allow", "deny", "abstain", ""} {
		if verdicts[effect] < 20 {
			t.Errorf("%d times %q", verdicts[effect], effect)
		}
	}
}

// broken changes one thing in an action.
func broken(r *rand.Rand, action, other []byte) []byte {
	if len(action) == 0 {
		return action
	}
	i := r.IntN(len(action))
	j := i + r.IntN(min(len(action)-i, 40))
	const likely = `"\{}[],:0-truefls%.*/`
	switch r.IntN(5) {
	case 0:
		action[i] = likely[r.IntN(len(likely))]
		return action
	case 1:
		return append(action[:i], action[j:]...)
	case 2: // twice
		return append(bytes.Clone(action[:j]), action[i:]...)
	case 3: // a piece of another
		k := r.IntN(len(other))
		return append(append(bytes.Clone(action[:i]), other[k:k+r.IntN(min(len(other)-k, 60))]...), action[j:]...)
	}
	return append(bytes.Clone(action[:i]), append([]byte{likely[r.IntN(len(likely))]}, action[i:]...)...)
}
