package wasm

import (
	"errors"
	"os"
	"testing"

	"gatehouse/enforcers"
)

// TestReplay is WA-08: from the stored action, policy and module digest comes
// the same verdict for the same fuel, on another host.
func TestReplay(t *testing.T) {
	t.Run("WA-08_replay", func(t *testing.T) {
		e := builtinEnforcer(t, "egress", testPolicy)
		action := query(t, "evil.test")
		v, err := e.Decide(t.Context(), action)
		if err != nil {
			t.Fatal(err)
		}
		want := Recorded{Module: e.Digest(), Verdict: v}
		configure := Configure([]byte(testPolicy), BuiltinParams("egress"))

		h, err := NewHost(t.Context(), Options{CacheDir: os.Getenv(CacheVariable)})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close(t.Context())
		m, err := h.Builtin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, same, err := Replay(t.Context(), m, configure, action, want); err != nil || !same {
			t.Errorf("WA-08 %+v, %v; want %+v", got, err, want)
		}
		for name, change := range map[string]func(r *Recorded){
			"verdict": func(r *Recorded) { r.Verdict.Effect = enforcers.Allow },
			"rule":    func(r *Recorded) { r.Verdict.Rule = "egress[0]" },
			"fuel":    func(r *Recorded) { r.Verdict.Fuel++ },
			"fault":   func(r *Recorded) { r.Fault = Trap },
		} {
			t.Run(name, func(t *testing.T) {
				other := want
				change(&other)
				if _, same, err := Replay(t.Context(), m, configure, action, other); err != nil || same {
					t.Errorf("WA-08 a changed record replays: %v", err)
				}
			})
		}
		if _, same, err := Replay(t.Context(), m, configure, query(t, "api.good.test"), want); err != nil || same {
			t.Errorf("WA-08 another action replays: %v", err)
		}
		other := want
		other.Module[0]++
		if _, _, err := Replay(t.Context(), m, configure, action, other); !errors.Is(err, ErrOtherModule) {
			t.Errorf("WA-08 another module: %v", err)
		}
		// A fault is replayable too.
		torn := []byte(`{"at":`)
		v, err = e.Decide(t.Context(), torn)
		faulted := Recorded{Module: e.Digest(), Fault: codeOf(err), Verdict: enforcers.Verdict{Effect: enforcers.Deny, Rule: "gate", Reason: codeOf(err), Fuel: v.Fuel}}
		if got, same, err := Replay(t.Context(), m, configure, torn, faulted); err != nil || !same || got.Fault != GuestError {
			t.Errorf("WA-08 a fault: %+v, %v; want %+v", got, err, faulted)
		}
	})
}
