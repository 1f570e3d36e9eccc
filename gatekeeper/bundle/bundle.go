package bundle

import (
	"net/netip"

	"gatehouse/internal/event"
)

// Version is the only apiVersion this package reads.
const Version = "gatehouse/v1"

// Mode says whether a deny stops an action.
type Mode string

// Modes, stricter last.
const (
	Shadow Mode = "shadow"
	Hard   Mode = "hard"
)

// Bundle is one capability bundle: the least a session needs, and nothing that
// is not written here. Parse fills every default, so that a value's meaning
// stands in the digest and never changes under it.
type Bundle struct {
	// APIVersion is gatehouse/v1.
	APIVersion string `yaml:"apiVersion" validate:"required,eq=gatehouse/v1"`
	// Kind is Bundle.
	Kind string `yaml:"kind" validate:"required,eq=Bundle"`
	// Name is how receipts, children and people name the bundle: a-z, 0-9 and -, at most 63.
	Name string `yaml:"name" validate:"required,max=63,label"`
	// Mode is the first mode of a name that the node does not know yet: shadow (default) or hard. Afterwards the control chain decides, so the digest leaves it out.
	Mode Mode `yaml:"mode,omitempty" validate:"omitempty,oneof=shadow hard" digest:"-"`
	// Priority decides between matching bundles of which none is covered by all others; the highest wins. 0 (default) to 1000.
	Priority int `yaml:"priority,omitempty" validate:"gte=0,lte=1000"`
	// Accepts is the lowest origin that delivered text may have: platform, operator, member, reviewed, contributor, outsider or derived.
	Accepts event.Origin `yaml:"accepts" validate:"required,oneof=platform operator member reviewed contributor outsider derived"`
	// ShadowOutsiders lets the bundle admit text below member while it is in shadow mode, until it expires.
	ShadowOutsiders *Exception `yaml:"shadow_outsiders,omitempty"`
	// Triggers lists the events that may start a session. A bundle without it starts only as a child.
	Triggers []Trigger `yaml:"match,omitempty" validate:"dive"`
	// PerEntity is how many sessions one issue, pull request or branch may start in a time, over all bundles: 3/24h by default.
	PerEntity Rate `yaml:"per_entity,omitempty"`
	// Self lets events that Gatehouse itself caused start sessions, up to a number for each entity in the time of per_entity. Without it they are refused as self_caused.
	Self *Self `yaml:"self,omitempty"`
	// Session says what runs, where, and what it is told.
	Session Session `yaml:"session"`
	// Credentials is what may reach the sandbox: credential_free (default), required, or compatibility with a reason and an expiry.
	Credentials Credentials `yaml:"credentials,omitempty"`
	// Egress lists the hosts that the session may reach. What is not listed is refused.
	Egress []Egress `yaml:"egress,omitempty" validate:"dive"`
	// Sets is the content of the egress sets that egress names. Leave it out: the node fills it in from its own files when the bundle is applied or proposed, and the version holds it from then on.
	Sets map[string]SetContent `yaml:"sets,omitempty" validate:"dive,keys,token,endkeys,required"`
	// Git is what the session may fetch and push.
	Git *Git `yaml:"git,omitempty"`
	// Models lists the model connections that the session may call.
	Models []Model `yaml:"models,omitempty" validate:"dive"`
	// Operations lists named operations that Gatehouse runs outside for the session.
	Operations []string `yaml:"operations,omitempty" validate:"unique,dive,operation"`
	// Telemetry lists telemetry connections that the session may write to.
	Telemetry []string `yaml:"telemetry,omitempty" validate:"unique,dive,token"`
	// Spend caps what the session and its children may cost. Without it no model call is paid.
	Spend *Spend `yaml:"spend,omitempty"`
	// Enforcers adds modules that may refuse what the bundle allows; none can allow more.
	Enforcers map[string]Enforcer `yaml:"enforcers,omitempty" validate:"dive,keys,label,endkeys"`

	lines map[string]int // JSON pointer into the file -> line, for findings
}

// Exception is a weaker setting that somebody wrote down, with its end.
type Exception struct {
	// Reason is why, for the people who review it.
	Reason string `yaml:"reason" validate:"required,max=500"`
	// Expires is when it stops: a date (to the end of that day, UTC) or an RFC 3339 time.
	Expires Day `yaml:"expires" validate:"required"`
}

// Self allows events that Gatehouse itself caused.
type Self struct {
	// Max is how many sessions they may start for one entity in the time of per_entity.
	Max int `yaml:"max" validate:"gte=1,lte=100"`
}

// Trigger is one kind of event that may start a session. Everything in it must hold.
type Trigger struct {
	// Source is github, sentry, linear, standard-webhooks, webhook or cron.
	Source string `yaml:"source" validate:"required,oneof=github sentry linear standard-webhooks webhook cron"`
	// Endpoint is the configured endpoint; without it, any endpoint of the source.
	Endpoint string `yaml:"endpoint,omitempty" validate:"omitempty,max=64,token"`
	// Kinds lists kind.action, kind.* for every action, or kind for a kind that has no action.
	Kinds []string `yaml:"kinds" validate:"required,min=1,unique,dive,kind"`
	// Where lists conditions on facts: a value, a list of values, or {prefix, glob, min, max, not}. A fact that the event does not have never matches.
	Where map[string]Condition `yaml:"where,omitempty" validate:"dive,keys,fact,endkeys,required"`
}

// Session says what runs and what it is told.
type Session struct {
	// Provider is the configured sandbox provider: local by default.
	Provider string `yaml:"provider,omitempty" validate:"omitempty,token"`
	// Agent is claude-code, codex, gemini, opencode, or {command: {argv: [...]}}.
	Agent Agent `yaml:"agent" validate:"required"`
	// Task is what the agent is asked to do. {{ name }} stands for a fact, entity, or repository.name; text cannot be named.
	Task string `yaml:"task" validate:"required,max=8192"`
	// Deliver lists the JSON pointers of the event's text that the session is shown; * stands for any index. Without it, a list for each kind of event (see below); an empty list delivers nothing.
	Deliver []string `yaml:"deliver,omitempty" validate:"unique,dive,pointer" digest:"empty"`
	// Payload also delivers the redacted original body. The floor is then the lowest origin of anything in it.
	Payload bool `yaml:"payload,omitempty"`
	// Rootfs is host (default: read-only system folders), {dir: PATH} or {oci: IMAGE@sha256:...}.
	Rootfs Rootfs `yaml:"rootfs,omitempty"`
	// Workspace is the session's working folder.
	Workspace Workspace `yaml:"workspace,omitempty"`
	// Mounts are further host folders inside the sandbox.
	Mounts []Mount `yaml:"mounts,omitempty" validate:"dive"`
	// Caches are the node's package caches inside the sandbox, always read-only.
	Caches []Cache `yaml:"caches,omitempty" validate:"unique=Path,dive"`
	// Timeout is how long the agent may run: 45m by default, at most 24h.
	Timeout Duration `yaml:"timeout,omitempty"`
	// Concurrency limits how many sessions run at a time for one key.
	Concurrency *Concurrency `yaml:"concurrency,omitempty"`
	// Children lets the session start sessions of other bundles that this one covers.
	Children *Children `yaml:"children,omitempty"`
	// OnStart lists operations that Gatehouse runs right before the agent starts.
	OnStart []string `yaml:"on_start,omitempty" validate:"unique,dive,operation"`
	// OnEnd lists operations that Gatehouse runs when the session has ended, however it ended.
	OnEnd []string `yaml:"on_end,omitempty" validate:"unique,dive,operation"`
	// NoMCP keeps the preset from telling its agent of Gatehouse's MCP server. The server is at the door all the same.
	NoMCP bool `yaml:"no_mcp,omitempty"`
}

// Workspace is the session's working folder.
type Workspace struct {
	// Checkout clones the session's repository into it, inside the sandbox and under the same rules.
	Checkout bool `yaml:"checkout,omitempty"`
	// Quota is the size of workspace and home together: 10GiB by default.
	Quota Size `yaml:"quota,omitempty"`
}

// Mount is a host folder inside the sandbox.
type Mount struct {
	// Source is the absolute path on the host.
	Source string `yaml:"source" validate:"required,abspath"`
	// Path is the absolute path inside.
	Path string `yaml:"path" validate:"required,abspath"`
	// Mode is read (default) or write.
	Mode string `yaml:"mode,omitempty" validate:"omitempty,oneof=read write"`
}

// Cache is a package cache of the node.
type Cache struct {
	// Name is the cache's name.
	Name string `yaml:"name" validate:"required,token"`
	// Path is the absolute path inside.
	Path string `yaml:"path" validate:"required,abspath"`
	// Mode is read; a cache that a session can write would be read by the next one.
	Mode string `yaml:"mode,omitempty" validate:"omitempty,oneof=read"`
}

// Concurrency limits sessions that share a key.
type Concurrency struct {
	// Key is the fact whose value is shared; sessions of this bundle with the same value count together.
	Key string `yaml:"key" validate:"required,fact"`
	// Max is how many run at a time: 1 by default.
	Max int `yaml:"max,omitempty" validate:"gte=0,lte=1000"`
	// Over is what happens to the next one: queue.
	Over string `yaml:"over,omitempty" validate:"omitempty,oneof=queue"`
}

// Children lets a session start other sessions.
type Children struct {
	// Bundles are the names that may be started; each must be covered by this bundle.
	Bundles []string `yaml:"bundles" validate:"required,min=1,unique,dive,label"`
	// Max is how many may be started over the session's life: 1 by default.
	Max int `yaml:"max,omitempty" validate:"gte=0,lte=1000"`
	// Depth is how many levels of children there may be: 1 by default.
	Depth int `yaml:"depth,omitempty" validate:"gte=0,lte=8"`
}

// Egress is one rule of what the session may reach. Exactly one of set, host
// and tcp is written.
type Egress struct {
	// Set names a local file of hosts (gatehouse set add); nothing else is written beside it.
	Set string `yaml:"set,omitempty" validate:"omitempty,token"`
	// Host is a name, an address, *.name for one label or **.name for any depth; the apex is always its own rule.
	Host string `yaml:"host,omitempty"`
	// TCP is a host whose traffic is not looked into; it carries no credential.
	TCP string `yaml:"tcp,omitempty"`
	// TLS is passthrough to leave the host's TLS alone; such a rule is blind and carries no credential.
	TLS string `yaml:"tls,omitempty" validate:"omitempty,oneof=passthrough"`
	// Ports are 443 by default.
	Ports []uint16 `yaml:"ports,omitempty" validate:"unique,dive,gte=1"`
	// Schemes are https by default.
	Schemes []string `yaml:"schemes,omitempty" validate:"unique,dive,oneof=http https"`
	// Methods are GET and HEAD by default.
	Methods []string `yaml:"methods,omitempty" validate:"unique,dive,method"`
	// Paths are exact paths, or a prefix ending in /**; a whole segment * is any one segment; /** by default.
	Paths []string `yaml:"paths,omitempty" validate:"unique,dive,urlpath"`
	// Connection adds that connection's credential, outside and last.
	Connection string `yaml:"connection,omitempty" validate:"omitempty,token"`
	// Env puts a placeholder for the connection's credential into this variable, for clients that refuse to start without one. It is worth nothing elsewhere.
	Env string `yaml:"env,omitempty" validate:"omitempty,envname"`
	// Uses limits how often the placeholder may be used; 0 is no limit.
	Uses int `yaml:"uses,omitempty" validate:"gte=0"`
	// Addresses are the prefixes in the node's internal_networks that the host may resolve to. Without it, public addresses only.
	Addresses []netip.Prefix `yaml:"addresses,omitempty"`
	// EncodedSlash admits %2F in paths, for registries of scoped packages.
	EncodedSlash bool `yaml:"encoded_slash,omitempty"`
	// Upgrade is websocket to admit that upgrade.
	Upgrade string `yaml:"upgrade,omitempty" validate:"omitempty,oneof=websocket"`
	// Names is how many different names a wildcard may be used for in one session: 32 by default.
	Names int `yaml:"names,omitempty" validate:"gte=0,lte=4096"`
	// Up is the most that one request may send: 1MiB by default.
	Up Size `yaml:"up,omitempty"`
	// Down is the most that one answer may bring: 256MiB by default.
	Down Size `yaml:"down,omitempty"`
	// Idle is how long a stream may be silent: 10m by default.
	Idle Duration `yaml:"idle,omitempty"`
}

// SetContent is an egress set as one version of a bundle holds it: what its
// approval was for, whatever becomes of the node's file.
type SetContent struct {
	// Hosts are names, *.name or **.name.
	Hosts []string `yaml:"hosts" validate:"required,min=1,max=256,unique"`
	// Ports are 443 by default.
	Ports []uint16 `yaml:"ports,omitempty" validate:"unique,dive,gte=1"`
	// Schemes are https by default.
	Schemes []string `yaml:"schemes,omitempty" validate:"unique,dive,oneof=http https"`
	// Methods are GET and HEAD by default.
	Methods []string `yaml:"methods,omitempty" validate:"unique,dive,method"`
	// Paths are exact paths, or a prefix ending in /**; a whole segment * is any one segment; /** by default.
	Paths []string `yaml:"paths,omitempty" validate:"unique,dive,urlpath"`
	// EncodedSlash admits %2F in paths.
	EncodedSlash bool `yaml:"encoded_slash,omitempty"`
	// Addresses are the prefixes in the node's internal_networks that the hosts may resolve to.
	Addresses []netip.Prefix `yaml:"addresses,omitempty"`

	rules []Egress // one for each host, normalized
}

// Git is what the session may fetch and push.
type Git struct {
	// Repository is session (the event's own), owner/name, or {by: FACT, map: {value: owner/name}}.
	Repository GitRepository `yaml:"repository" validate:"required"`
	// Siblings are further repositories, by explicit grant only.
	Siblings []Sibling `yaml:"siblings,omitempty" validate:"unique=Repository,dive"`
	// Push is what may be pushed to the session's repository. Without it, nothing.
	Push *Push `yaml:"push,omitempty"`
}

// Sibling is another repository that the session may use.
type Sibling struct {
	// Repository is owner/name, listed in the node's repositories.
	Repository string `yaml:"repository" validate:"required,repository"`
	// Access is read.
	Access string `yaml:"access" validate:"required,oneof=read"`
}

// Push limits what a push may change.
type Push struct {
	// Refs are full ref names; * is one whole segment, ** the rest, {entity} the issue, pull request or branch of the event.
	Refs []string `yaml:"refs" validate:"required,min=1,unique,dive,refpattern"`
	// Force admits updates that lose commits.
	Force bool `yaml:"force,omitempty"`
	// Delete admits deleting refs.
	Delete bool `yaml:"delete,omitempty"`
	// DenyPaths are paths that a push must not change: exact, or a prefix ending in /**. Without any: workflows, .gitmodules and CODEOWNERS.
	DenyPaths []string `yaml:"deny_paths,omitempty" validate:"unique,dive,denypath"`
}

// Model is one model connection.
type Model struct {
	// Connection is the model connection.
	Connection string `yaml:"connection" validate:"required,token"`
	// Allow lists model names; a trailing * stands for any ending.
	Allow []string `yaml:"allow" validate:"required,min=1,unique,dive,modelname"`
	// MaxOutputTokens is the most that one call may ask for.
	MaxOutputTokens int64 `yaml:"max_output_tokens" validate:"required,gte=1,lte=10000000"`
}

// Spend caps cost.
type Spend struct {
	// Limit is for the session and all its children: "5.00 USD".
	Limit Money `yaml:"limit" validate:"required"`
	// PerDay is for all sessions of the bundle in one UTC day.
	PerDay Money `yaml:"per_day,omitempty"`
}

// Enforcer is one added module.
type Enforcer struct {
	// Module is name@sha256:DIGEST.
	Module string `yaml:"module" validate:"required,module"`
	// Mode is shadow (default) or hard for this module alone.
	Mode Mode `yaml:"mode,omitempty" validate:"omitempty,oneof=shadow hard" digest:"-"`
	// Params are the module's settings: words, whole numbers, true or false, and lists and maps of these.
	Params map[string]Param `yaml:"params,omitempty" validate:"dive,keys,token,endkeys,required"`
}
