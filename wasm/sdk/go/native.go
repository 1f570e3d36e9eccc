//go:build !wasip1

package gatehouse

// Register does nothing outside WebAssembly, where an enforcer is a value to
// be tested like any other.
func Register(Enforcer) struct{} { return struct{}{} }

// Ask puts one decide message to e, as the host would, and returns its answer.
func Ask(e Enforcer, message []byte) []byte { return decide(e, message) }

// Set hands a configure message to e, as the host would, and returns the status.
func Set(e Enforcer, message []byte) int32 { return configure(e, message) }
