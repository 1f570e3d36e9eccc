package problem

// Codes of the sandbox.
const (
	SandboxFailed Code = "sandbox_failed"  // the sandbox did not start, or vanished, for a reason of its own
	AgentNotFound Code = "agent_not_found" // the agent's program does not exist inside
)
