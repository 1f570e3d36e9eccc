//go:build !wasip1

package policies

import (
	"context"
	"crypto/sha256"
	"sync"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

// Names lists the built-in enforcers.
func Names() []string { return []string{"egress", "git", "spend"} }

// native is the twin of a built-in enforcer: the same source without
// WebAssembly around it.
type native struct {
	mu     sync.Mutex // a Judge is not safe for concurrent use
	judge  *Judge
	digest [32]byte
	kinds  []enforcers.Kind
}

// Native returns the native twin of the named built-in enforcer, configured
// with a configure message whose params name the same enforcer. It serves
// tests, replay comparisons and benchmarks; a node never falls back to it.
func Native(name string, configure []byte) (enforcers.Enforcer, error) {
	j, status := Configure(configure)
	if status != OK || j.Name() != name {
		return nil, problem.New(problem.ConfigInvalid, "enforcer "+name+" refused its policy", "Check the compiled policy with `gatehouse bundle lint`.")
	}
	n := &native{judge: j, digest: sha256.Sum256([]byte("native " + name))}
	switch name {
	case "egress":
		n.kinds = []enforcers.Kind{enforcers.DNSQuery, enforcers.HTTPRequest, enforcers.NetConnect, enforcers.OperationCall, enforcers.TelemetryEmit}
	case "git":
		n.kinds = []enforcers.Kind{enforcers.GitFetch, enforcers.GitPush}
	case "spend":
		n.kinds = []enforcers.Kind{enforcers.ModelCall, enforcers.SessionSpawn}
	}
	return n, nil
}

// Name returns the enforcer's name.
func (n *native) Name() string { return n.judge.Name() }

// Digest returns a digest that no module has.
func (n *native) Digest() [32]byte { return n.digest }

// Kinds returns the kinds the enforcer judges.
func (n *native) Kinds() []enforcers.Kind { return n.kinds }

// Decide judges a canonical action.
func (n *native) Decide(_ context.Context, action []byte) (enforcers.Verdict, error) {
	message := make([]byte, 0, len(action)+32)
	message = append(message, actionPrefix...)
	message = append(message, action...)
	message = append(message, '}')
	n.mu.Lock()
	a := n.judge.Decide(message)
	n.mu.Unlock()
	if a == nil {
		return enforcers.Verdict{}, &enforcers.Fault{Code: "guest_error"}
	}
	return enforcers.Verdict{Effect: enforcers.Effect(a.Effect), Rule: a.Rule, Reason: a.Reason}, nil
}
