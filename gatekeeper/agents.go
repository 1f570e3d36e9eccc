package gatekeeper

import "gatehouse/gatekeeper/bundle"

// argv returns the agent's command line. The task is one argument, so nothing
// in it is ever read by a shell. Known agents run without asking, since nobody
// is there to answer, and with their own sandbox off: this one holds.
func argv(a bundle.Agent, task string) []string {
	switch a.Name {
	case "claude-code":
		return []string{"claude", "-p", task, "--dangerously-skip-permissions"}
	case "codex":
		return []string{"codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", task}
	case "gemini":
		return []string{"gemini", "--yolo", "-p", task}
	case "opencode":
		return []string{"opencode", "run", task}
	}
	return a.Argv
}
