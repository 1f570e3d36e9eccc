package gatekeeper

import (
	"path/filepath"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
)

// preset is how one known agent is started. All run without asking, since nobody
// is there to answer, and with their own sandbox off: this one holds.
type preset struct {
	argv    func(task string) []string
	version []string          // prints the version and needs nothing
	env     map[string]string // fixed; says nothing of the session
	files   map[string]string // below /gatehouse
}

// codexScript hands codex the base URL of the models' mediator, which it reads
// from its settings alone. The task is an argument: no shell reads it.
const codexScript = `set -- --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check -c check_for_update_on_startup=false -- "$1"
if [ -n "$OPENAI_BASE_URL" ]; then
  set -- -c model_provider=gatehouse -c "model_providers.gatehouse={name=\"gatehouse\",base_url=\"$OPENAI_BASE_URL\",env_key=\"OPENAI_API_KEY\",wire_api=\"responses\"}" "$@"
fi
exec codex exec "$@"`

// openCodeSettings are read after every other setting of opencode. Its clients
// want the version in the base URL.
const openCodeSettings = `{"permission":{"*":"allow"},"autoupdate":false,"share":"disabled",` +
	`"provider":{"anthropic":{"options":{"baseURL":"{env:ANTHROPIC_BASE_URL}/v1"}},"openai":{"options":{"baseURL":"{env:OPENAI_BASE_URL}"}}}}`

// presets are the known agents. docs/agents.md has them with their versions.
var presets = map[string]preset{
	"claude-code": {
		argv: func(task string) []string {
			return []string{"claude", "-p", "--dangerously-skip-permissions", "--", task}
		},
		version: []string{"claude", "--version"},
		env:     map[string]string{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"},
	},
	"codex": {
		argv:    func(task string) []string { return []string{"/bin/sh", "-c", codexScript, "codex", task} },
		version: []string{"codex", "--version"},
	},
	"gemini": {
		argv: func(task string) []string {
			return []string{"gemini", "--approval-mode=yolo", "--prompt", task}
		},
		version: []string{"gemini", "--version"},
		env: map[string]string{
			"GEMINI_SANDBOX": "false", "GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_TELEMETRY_ENABLED": "false",
			"GEMINI_CLI_SYSTEM_SETTINGS_PATH": sandbox.Delivered + "/gemini.json",
		},
		files: map[string]string{"gemini.json": `{"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false}}` + "\n"},
	},
	"opencode": {
		argv:    func(task string) []string { return []string{"opencode", "run", "--", task} },
		version: []string{"opencode", "--version"},
		env: map[string]string{
			"OPENCODE_CONFIG_CONTENT": openCodeSettings, "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
			"OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
		},
	},
}

// argv returns the agent's command line. The task is one argument, so nothing
// in it is ever read by a shell.
func argv(a bundle.Agent, task string) []string {
	if p, ok := presets[a.Name]; ok {
		return p.argv(task)
	}
	return a.Argv
}

// equip adds what the bundle's agent needs to find its way. What the session
// and its door give wins.
func equip(spec *sandbox.Spec, a bundle.Agent) {
	p := presets[a.Name]
	files := map[string][]byte{}
	for name, text := range p.files {
		files[name] = []byte(text)
	}
	spec.Env, spec.Files = under(spec.Env, p.env), under(spec.Files, files)
}

// Trial returns a sandbox in which a bundle's agent says its version: whether
// its program, and whatever that needs, is there.
func Trial(b *bundle.Bundle) sandbox.Spec {
	spec := sandbox.Spec{Mounts: mountsOf(b), Rootfs: rootfsOf(b), Quota: int64(b.Session.Workspace.Quota), Timeout: time.Minute, Unlimited: true}
	if p, ok := presets[b.Session.Agent.Name]; ok {
		spec.Argv = p.version
	} else {
		// What a command does without its task is not known; that it is there is.
		spec.Argv = []string{"/bin/sh", "-c", `command -v -- "$1"`, "trial", b.Session.Agent.Argv[0]}
	}
	equip(&spec, b.Session.Agent)
	return spec
}

func rootfsOf(b *bundle.Bundle) string {
	if b.Session.Rootfs.Value != "" {
		return b.Session.Rootfs.Value
	}
	return b.Session.Rootfs.Kind
}

// rootfsImage is the kind of a root file system that comes from an image.
const rootfsImage = "oci"

// cachesOf are the node's caches that a bundle names, as mounts: what a session
// could write, the next one would read (SB-46).
func cachesOf(b *bundle.Bundle, folders map[string]string) []sandbox.Mount {
	var mounts []sandbox.Mount
	for _, c := range b.Session.Caches {
		mounts = append(mounts, sandbox.Mount{Source: folders[c.Name], Path: c.Path})
	}
	return mounts
}

func mountsOf(b *bundle.Bundle) []sandbox.Mount {
	var mounts []sandbox.Mount
	for _, m := range b.Session.Mounts {
		mounts = append(mounts, sandbox.Mount{Source: filepath.Clean(m.Source), Path: m.Path})
	}
	return mounts
}
