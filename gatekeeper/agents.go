package gatekeeper

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
)

// preset is how one known agent is started. All run without asking, since nobody
// is there to answer, and with their own sandbox off: this one holds.
type preset struct {
	argv    func(told) []string
	version []string                     // prints the version and needs nothing
	env     func(told) map[string]string // says nothing of the session; may be nil
	models  []string                     // how names of models begin that it can be told
	own     []string                     // hosts that it calls for itself; see OwnEndpoint
}

// told is what an agent is told when it starts.
type told struct {
	task  string
	model string // "" = its own default
	mcp   string // URL of Gatehouse's MCP server at the door, "" = it is not named
}

// mcpServer is where every session's door answers MCP. What it says there is
// judged like everything else, whether a preset names it or not.
const mcpServer = "http://gatehouse.internal/mcp"

// codexScript hands codex the base URL of the models' mediator and the model's
// name, which it reads from its settings alone. The task is an argument: no
// shell reads it. Searching the web is a tool that the provider runs, and is
// refused. Its second argument is the MCP server.
const codexScript = `mcp=$2
set -- --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check -c check_for_update_on_startup=false -c analytics.enabled=false -c features.plugins=false -c features.apps=false -c web_search=disabled -- "$1"
if [ -n "$GATEHOUSE_MODEL" ]; then set -- -m "$GATEHOUSE_MODEL" "$@"; fi
if [ -n "$OPENAI_BASE_URL" ]; then
  set -- -c model_provider=gatehouse -c "model_providers.gatehouse={name=\"gatehouse\",base_url=\"$OPENAI_BASE_URL\",env_key=\"OPENAI_API_KEY\",wire_api=\"responses\"}" "$@"
fi
if [ -n "$mcp" ]; then set -- -c "mcp_servers.gatehouse={url=\"$mcp\"}" "$@"; fi
exec codex exec "$@"`

// geminiScript writes the settings into the session's own home, which is empty:
// those of the system count only in a folder of root's, and there is none
// inside. How it authenticates must be chosen, since nobody is asked. Its second
// argument is the MCP server.
const geminiScript = `auth=gemini-api-key
if [ "$GOOGLE_GENAI_USE_VERTEXAI" = true ]; then auth=vertex-ai; fi
task=$1 mcp=$2; shift 2
if [ -n "$mcp" ]; then mcp=',"mcpServers":{"gatehouse":{"httpUrl":"'$mcp'","trust":true}}'; fi
mkdir -p "$HOME/.gemini" && printf '{"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false},"security":{"auth":{"selectedType":"%s"}}%s}' "$auth" "$mcp" >"$HOME/.gemini/settings.json"
exec gemini --approval-mode=yolo "$@" --prompt "$task"`

// openCodeSettings are read after every other setting of opencode. Its clients
// want the version in the base URL.
const openCodeSettings = `{"permission":{"*":"allow"},"autoupdate":false,"share":"disabled",` +
	`"provider":{"anthropic":{"options":{"baseURL":"{env:ANTHROPIC_BASE_URL}/v1"}},"openai":{"options":{"baseURL":"{env:OPENAI_BASE_URL}"}}}`

// openCodeConfig adds what the session decides. Titles of conversations are
// written by a small model, which the bundle need not list. Of a server that
// wants no key nobody has to be asked for one.
func openCodeConfig(t told) string {
	c := openCodeSettings
	if t.mcp != "" {
		c += `,"mcp":{"gatehouse":{"type":"remote","url":"` + t.mcp + `","oauth":false}}`
	}
	if t.model != "" {
		c += `,"small_model":"` + openCodeModel(t.model) + `"`
	}
	return c + "}"
}

// openCodeProviders are opencode's names of the providers, by how the names of
// their models begin.
var openCodeProviders = map[string]string{"claude-": "anthropic", "gpt-": "openai", "o3": "openai", "o4-": "openai", "gemini-": "google"}

func openCodeModel(model string) string {
	for prefix, provider := range openCodeProviders {
		if strings.HasPrefix(model, prefix) {
			return provider + "/" + model
		}
	}
	return ""
}

// with appends a flag and its value when there is one.
func with(argv []string, flag, value string) []string {
	if value == "" {
		return argv
	}
	return append(argv, flag, value)
}

// claudeServers is --mcp-config of claude code; servers that the repository
// itself names stay beside it.
func claudeServers(url string) string {
	if url == "" {
		return ""
	}
	return `{"mcpServers":{"gatehouse":{"type":"http","url":"` + url + `"}}}`
}

// presets are the known agents. docs/agents.md has them with their versions.
var presets = map[string]preset{
	"claude-code": {
		argv: func(t told) []string {
			argv := with([]string{"claude", "-p", "--dangerously-skip-permissions"}, "--mcp-config", claudeServers(t.mcp))
			return append(with(argv, "--model", t.model), "--", t.task)
		},
		version: []string{"claude", "--version"},
		env: func(t told) map[string]string {
			env := map[string]string{
				// Without the former it asks for beta features, and for fields of calls, that are not on the mediator's closed lists.
				"CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1",
			}
			if t.model != "" {
				env["ANTHROPIC_DEFAULT_HAIKU_MODEL"], env["CLAUDE_CODE_SUBAGENT_MODEL"] = t.model, t.model
			}
			return env
		},
		models: []string{"claude-"},
		own:    []string{"statsig.anthropic.com", "downloads.claude.ai"},
	},
	"codex": {
		argv:    func(t told) []string { return []string{"/bin/sh", "-c", codexScript, "codex", t.task, t.mcp} },
		version: []string{"codex", "--version"},
		env: func(t told) map[string]string {
			if t.model == "" {
				return nil
			}
			return map[string]string{"GATEHOUSE_MODEL": t.model}
		},
		models: []string{"gpt-", "o3", "o4-"},
		own:    []string{"ab.chatgpt.com"},
	},
	"gemini": {
		argv: func(t told) []string {
			return with([]string{"/bin/sh", "-c", geminiScript, "gemini", t.task, t.mcp}, "--model", t.model)
		},
		version: []string{"gemini", "--version"},
		env: func(told) map[string]string {
			return map[string]string{"GEMINI_SANDBOX": "false", "GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_TELEMETRY_ENABLED": "false"}
		},
		models: []string{"gemini-"},
	},
	"opencode": {
		argv: func(t told) []string {
			return append(with([]string{"opencode", "run"}, "--model", openCodeModel(t.model)), "--", t.task)
		},
		version: []string{"opencode", "--version"},
		env: func(t told) map[string]string {
			return map[string]string{
				"OPENCODE_CONFIG_CONTENT": openCodeConfig(t), "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
				"OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
			}
		},
		models: slices.Collect(maps.Keys(openCodeProviders)),
		own:    []string{"models.dev"},
	},
}

// OwnEndpoint reports whether a host is one that a known agent calls for itself:
// statistics, updates, plugins. Only hosts stand there whose every request its
// maker alone receives: none where a stranger may have an account, a bucket or a
// project, since what is marked there is looked at less (RV-01). It allows
// nothing.
func OwnEndpoint(agent, host string) bool { return slices.Contains(presets[agent].own, host) }

// modelOf is the first model that a bundle names in full and its agent can be
// told: an agent's own default is as often one that the bundle does not list.
func modelOf(b *bundle.Bundle) string {
	p := presets[b.Session.Agent.Name]
	for _, m := range b.Models {
		for _, name := range m.Allow {
			if !strings.HasSuffix(name, "*") && slices.ContainsFunc(p.models, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
				return name
			}
		}
	}
	return ""
}

// toldBy is what a bundle's agent is told beside its task.
func toldBy(b *bundle.Bundle, task string) told {
	t := told{task: task, model: modelOf(b), mcp: mcpServer}
	if b.Session.NoMCP {
		t.mcp = ""
	}
	return t
}

// argv returns the agent's command line. The task is one argument, so nothing
// in it is ever read by a shell.
func argv(b *bundle.Bundle, task string) []string {
	if p, ok := presets[b.Session.Agent.Name]; ok {
		return p.argv(toldBy(b, task))
	}
	return b.Session.Agent.Argv
}

// equip adds what the bundle's agent needs to find its way. What the session
// and its door give wins.
func equip(spec *sandbox.Spec, b *bundle.Bundle) {
	if p := presets[b.Session.Agent.Name]; p.env != nil {
		spec.Env = under(spec.Env, p.env(toldBy(b, "")))
	}
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
	equip(&spec, b)
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
