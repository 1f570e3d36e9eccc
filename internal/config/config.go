package config

import (
	"net/netip"
	"time"
)

// Config is the whole of gatehouse.yaml. Every key is listed here; unknown
// keys are errors. Only the file is a source: the environment enters through
// ${env:NAME} inside values.
type Config struct {
	// Listen holds the three listeners.
	Listen Listen `yaml:"listen"`
	// PublicURL is where vendors reach the hooks listener, for example
	// https://hooks.example.com. It is printed by connect and never trusted.
	PublicURL string `yaml:"public_url,omitempty" validate:"omitempty,url"`
	// TLS, when set, makes the hooks and operator listeners speak TLS.
	TLS *TLS `yaml:"tls,omitempty"`
	// State is the folder of journal, blobs, keys, embedded NATS store and
	// caches. Relative paths are relative to the file. Default ./state.
	State string `yaml:"state,omitempty"`
	// Secrets is the encrypted store that ${secret:NAME} reads.
	Secrets Secrets `yaml:"secrets,omitempty"`
	// Node names this node in subjects: [a-z0-9-], 1..32. Default "node-1".
	Node string `yaml:"node,omitempty" validate:"omitempty,max=32,nodename"`
	// NATS is empty for the embedded server.
	NATS NATS `yaml:"nats,omitempty"`
	// Nodes are the others that share these NATS servers: their events are taken
	// as this node's own are. An event sealed by any other log is refused.
	Nodes []PeerNode `yaml:"nodes,omitempty" validate:"dive"`
	// Endpoints are the webhook URLs: POST /hooks/<name>.
	Endpoints []Endpoint `yaml:"endpoints,omitempty" validate:"unique=Name,dive"`
	// Repositories names repositories by id; bundles' templates look names up here.
	Repositories []Repository `yaml:"repositories,omitempty" validate:"unique=ID,dive"`
	// Connections are the named upstreams with a credential.
	Connections []Connection `yaml:"connections,omitempty" validate:"unique=Name,dive"`
	// Operations are what agents may have done over connections of kind http and
	// webhook, each by a name that bundles list.
	Operations []Operation `yaml:"operations,omitempty" validate:"unique=Name,max=256,dive"`
	// Spend bounds what model calls of all sessions of this node may cost.
	Spend Spend `yaml:"spend,omitempty"`
	// Bundles are file patterns, relative to the file.
	Bundles []string `yaml:"bundles,omitempty"`
	// Sets is the folder of egress set files. Default ./sets.
	Sets string `yaml:"sets,omitempty"`
	// Providers run sandboxes; a bundle names one.
	Providers Providers `yaml:"providers,omitempty"`
	// Promotion rules how a bundle becomes hard.
	Promotion Promotion `yaml:"promotion,omitempty"`
	// OIDC is where people log in. Without it only one-time links open the pages.
	OIDC *OIDC `yaml:"oidc,omitempty"`
	// Sandbox rules every local sandbox.
	Sandbox Sandbox `yaml:"sandbox,omitempty"`
	// InternalNetworks are the prefixes in which a rule's addresses must lie.
	InternalNetworks []netip.Prefix `yaml:"internal_networks,omitempty"`
	// TrustedProxies are the peers whose Forwarded headers are read, for logs
	// and rate limits only; no decision trusts a peer address.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies,omitempty"`
	// Retain is how long sealed journal segments are kept: "90d". At least 7d.
	Retain Duration `yaml:"retain,omitempty"`
	// Checkpoints are folders beside the state folder's own into which the node
	// writes its newest checkpoint and the log's tiles. One that another machine
	// keeps makes a rolled back state folder show. An https URL gets the
	// checkpoint once a minute, as the body of a POST.
	Checkpoints []string `yaml:"checkpoints,omitempty" validate:"dive,required"`
	// Notify lists where the first refusal after a promotion goes.
	Notify []Notify `yaml:"notify,omitempty" validate:"dive"`
	// Observability is where the node reports about itself and its sessions.
	Observability Observability `yaml:"observability,omitempty"`
	// Dev holds substitutions for tests and the demo; read only with --dev.
	Dev Dev `yaml:"dev,omitempty"`

	path string // of the file, for relative paths
}

// Secrets is the node's encrypted secret store.
type Secrets struct {
	File     string `yaml:"file,omitempty"`     // default secrets/secrets.age in the state folder
	Identity Secret `yaml:"identity,omitempty"` // ${env:NAME} or ${file:PATH}; default: the file "identity" beside it
}

// Listen holds the addresses of the three listeners, host:port each.
type Listen struct {
	Hooks    string `yaml:"hooks,omitempty" validate:"omitempty,hostport"`    // the only one meant to be public
	Operator string `yaml:"operator,omitempty" validate:"omitempty,hostport"` // /ui, /v1: loopback, or TLS
	Private  string `yaml:"private,omitempty" validate:"omitempty,hostport"`  // metrics, debug, ready reasons
}

// TLS names a certificate and its key.
type TLS struct {
	Cert string `yaml:"cert" validate:"required"` // PEM file
	Key  string `yaml:"key" validate:"required"`  // PEM file, 0600
}

// NATS is an external cluster.
type NATS struct {
	URL   string `yaml:"url,omitempty"`   // nats://a,nats://b
	Creds string `yaml:"creds,omitempty"` // file
	// Backlog is how many records may wait for the streams, embedded ones too,
	// before deliveries are refused with 503; 0 is 100,000.
	Backlog int `yaml:"backlog,omitempty" validate:"gte=0"`
}

// PeerNode is another node by its keys.
type PeerNode struct {
	Keyset string `yaml:"keyset" validate:"required"`                  // file; gatehouse key export prints it there
	Root   string `yaml:"root" validate:"required,len=64,hexadecimal"` // fingerprint of its root key
}

// Endpoint is one configured webhook URL, or a cron schedule.
type Endpoint struct {
	Name     string            `yaml:"name" validate:"required,max=64,token"`
	Source   string            `yaml:"source" validate:"required,oneof=github sentry linear standard-webhooks webhook cron"`
	Secrets  []Secret          `yaml:"secrets,omitempty" validate:"max=2"` // two active at most, for rotation
	Commands *Commands         `yaml:"commands,omitempty"`
	Schedule string            `yaml:"schedule,omitempty"` // cron
	Zone     string            `yaml:"zone,omitempty"`     // IANA name; default UTC
	Missed   string            `yaml:"missed,omitempty" validate:"omitempty,oneof=skip last all"`
	Facts    map[string]string `yaml:"facts,omitempty"` // cron: operator-chosen facts
	// Connection names the scm connection under which the node asks GitHub for
	// deliveries that never came and for what an author may do. Source github.
	Connection string `yaml:"connection,omitempty"`
	// Hook is the webhook that delivers here; absent, it is the App's own.
	Hook *Hook `yaml:"hook,omitempty"`
	// Trust lifts what is automatic; anything not listed is outsider.
	Trust *Trust `yaml:"trust,omitempty"`
	// How a sender of source webhook proves itself: one of the two.
	HMAC  *HMAC  `yaml:"hmac,omitempty"`
	Token *Token `yaml:"token,omitempty"`
	// What the bodies of source webhook and standard-webhooks say of themselves.
	ID      *Delivery `yaml:"id,omitempty"`
	Kind    *Kind     `yaml:"kind,omitempty"`
	Declare []Declare `yaml:"declare,omitempty" validate:"dive"`
	Entity  string    `yaml:"entity,omitempty"` // name of the declared fact a delivery is about
}

// Hook names a webhook of GitHub: by the repository it is set on, which must be
// listed in repositories, or by the organization.
type Hook struct {
	ID           int64  `yaml:"id" validate:"gt=0"`
	Repository   string `yaml:"repository,omitempty" validate:"omitempty,numeric"`
	Organization string `yaml:"organization,omitempty" validate:"omitempty,max=39"`
}

// Trust lists identities that are no persons, and the level of what they write.
type Trust struct {
	Bots     map[string]string `yaml:"bots,omitempty" validate:"dive,oneof=member contributor outsider"`     // github: user id of a bot
	Apps     map[string]string `yaml:"apps,omitempty" validate:"dive,oneof=member contributor outsider"`     // github: app id
	Services map[string]string `yaml:"services,omitempty" validate:"dive,oneof=member contributor outsider"` // linear: name of an integration
	Clients  map[string]string `yaml:"clients,omitempty" validate:"dive,oneof=member contributor outsider"`  // linear: id of an OAuth client
}

// HMAC says where a sender puts its MAC and what it covers.
type HMAC struct {
	Header   string `yaml:"header" validate:"required"`
	Prefix   string `yaml:"prefix,omitempty"` // before the MAC, such as "sha256="
	Hash     string `yaml:"hash,omitempty" validate:"omitempty,oneof=sha256 sha384 sha512"`
	Encoding string `yaml:"encoding,omitempty" validate:"omitempty,oneof=hex base64"`
	Signed   string `yaml:"signed,omitempty"` // {id}, {ts} and {body} in the sender's own text; default {body}
	Time     string `yaml:"time,omitempty"`   // header of the signed unix time
	ID       string `yaml:"id,omitempty"`     // header of the signed delivery id
}

// Token says which header carries a shared token: Authorization by default.
type Token struct {
	Header string `yaml:"header,omitempty"`
	Prefix string `yaml:"prefix,omitempty"`
}

// Delivery says where a delivery's id is, for dedupe.
type Delivery struct {
	Header string `yaml:"header,omitempty"`
	Path   string `yaml:"path,omitempty"` // JSON pointer into the body
	Body   bool   `yaml:"body,omitempty"` // equal bodies are the same delivery
}

// Kind says what a body calls the thing that happened.
type Kind struct {
	Path   string            `yaml:"path" validate:"required"`   // JSON pointer into the body
	Values map[string]string `yaml:"values" validate:"required"` // the sender's word: kind
}

// Declare is a path that the operator knows to hold a closed form.
type Declare struct {
	Name    string   `yaml:"name" validate:"required"` // of the fact
	Path    string   `yaml:"path" validate:"required"` // JSON pointer into the body
	Form    string   `yaml:"form" validate:"required,oneof=enum integer uuid hex rfc3339 regex"`
	Values  []string `yaml:"values,omitempty"`  // of an enum
	Pattern string   `yaml:"pattern,omitempty"` // anchored regular expression
}

// Commands is the closed list of words that may become facts.command.
type Commands struct {
	Mention string   `yaml:"mention" validate:"required"` // "@gatehouse"
	Words   []string `yaml:"words" validate:"required,min=1"`
}

// Repository gives a repository's id its name.
type Repository struct {
	ID   string `yaml:"id" validate:"required,numeric"`
	Name string `yaml:"name" validate:"required"` // owner/name
	// Connection is the scm connection it is reached by; it may be left out while there is only one.
	Connection string `yaml:"connection,omitempty" validate:"omitempty,token"`
}

// Connection is a named upstream with a credential that is added outside.
type Connection struct {
	Name       string `yaml:"name" validate:"required,max=64,token"`
	Kind       string `yaml:"kind" validate:"required,oneof=model scm http telemetry tracker webhook"`
	Provider   string `yaml:"provider,omitempty"`
	Host       string `yaml:"host,omitempty"`
	Scheme     string `yaml:"scheme,omitempty" validate:"omitempty,oneof=bearer basic header query"`
	Header     string `yaml:"header,omitempty"`
	Query      string `yaml:"query,omitempty"`
	Credential Secret `yaml:"credential,omitempty"`
	App        *App   `yaml:"app,omitempty"`
	API        string `yaml:"api,omitempty"`
	CA         string `yaml:"ca,omitempty"`

	// Of kind scm: hosts that keep its large files (Git LFS) besides its own.
	Stores []string `yaml:"stores,omitempty" validate:"max=16,dive,required,max=253"`

	// Of kind model. Project and Location are the only ones that Vertex calls may
	// name. Impersonate is the service account that the credential's own account
	// becomes. Aliases are names that clients may use in place of models'. Betas
	// are Anthropic beta features besides those that Gatehouse knows. PerMinute is
	// how many calls one session may begin in a minute, default 300.
	Project     string            `yaml:"project,omitempty" validate:"omitempty,max=64,token"`
	Location    string            `yaml:"location,omitempty" validate:"omitempty,max=32,token"`
	Impersonate string            `yaml:"impersonate,omitempty" validate:"omitempty,email"`
	Aliases     map[string]string `yaml:"aliases,omitempty" validate:"max=64,dive,keys,max=128,endkeys,required,max=128"`
	Betas       []string          `yaml:"betas,omitempty" validate:"max=64,dive,max=128,token"`
	PerMinute   int               `yaml:"calls_per_minute,omitempty" validate:"omitempty,min=1,max=100000"`
}

// Spend is the node's share of the organisation's money.
type Spend struct {
	PerDay string `yaml:"per_day,omitempty"` // in one UTC day: "500.00 USD"; default no bound besides the bundles'
	Prices string `yaml:"prices,omitempty"`  // price table in place of the one that this build carries
}

// App is a GitHub App.
type App struct {
	ID  int64  `yaml:"id" validate:"required"`
	Key Secret `yaml:"key"`
}

// Providers are the configured sandbox providers.
type Providers struct {
	Local *struct{} `yaml:"local,omitempty"`
	// OCI runs sandboxes as containers of podman's, on this machine.
	OCI *OCI `yaml:"oci,omitempty"`
	// Remote is another machine that runs sandboxes: docs/sandbox.md.
	Remote *Remote `yaml:"remote,omitempty"`
	// OpenInspect starts sessions of an Open-Inspect deployment, which Gatehouse
	// neither mediates nor observes: only bundles with credentials: compatibility
	// may name it.
	OpenInspect *OpenInspect `yaml:"openinspect,omitempty"`
}

// OCI is podman on this machine.
type OCI struct {
	// Podman is the program: podman in the PATH by default.
	Podman string `yaml:"podman,omitempty"`
}

// Promotion rules how many people turn a bundle to hard.
type Promotion struct {
	Approvers int `yaml:"approvers,omitempty" validate:"gte=0,lte=5"` // default 2; 1 is recorded as single_approver
}

// OIDC is an OpenID provider. Its calls leave through the node's own checked
// exit, so every host that it names in its documents must be listed.
type OIDC struct {
	Issuer   string              `yaml:"issuer" validate:"required,url"`
	ClientID string              `yaml:"client_id" validate:"required,max=256"`
	Secret   Secret              `yaml:"secret,omitempty"`                                                                                      // none for a public client
	Hosts    []string            `yaml:"hosts,omitempty" validate:"max=8,dive,hostname_port"`                                                   // host:port of its token and key endpoints, where these are not the issuer's
	Scopes   []string            `yaml:"scopes,omitempty" validate:"max=8,dive,required"`                                                       // beside openid, email and profile
	Groups   string              `yaml:"groups,omitempty"`                                                                                      // claim that lists groups; default groups
	Person   string              `yaml:"person,omitempty" validate:"omitempty,oneof=email sub preferred_username"`                              // claim that receipts name people by; default email, which must be verified
	Roles    map[string][]string `yaml:"roles" validate:"required,min=1,dive,min=1,dive,oneof=viewer reviewer approver operator admin auditor"` // group -> roles
}

// Sandbox rules every local sandbox.
type Sandbox struct {
	UIDs      UIDRange `yaml:"uids,omitempty"`                                                  // "610000-610999"
	Unlimited string   `yaml:"unlimited,omitempty" validate:"omitempty,oneof=refused accepted"` // hard mode without a delegated cgroup
}

// Observability names telemetry connections that the node itself reports to.
type Observability struct {
	Traces string `yaml:"traces,omitempty"` // of provider otlp or langfuse: spans of events, sessions and actions, without content
	Errors string `yaml:"errors,omitempty"` // of provider sentry: the node's own problems, scrubbed
}

// Notify is one place that is told of a first refusal: a webhook, or a mailbox
// behind a mail server that speaks TLS from the first byte.
type Notify struct {
	Webhook  string `yaml:"webhook,omitempty"`
	SMTP     string `yaml:"smtp,omitempty" validate:"omitempty,hostname_port"` // host:port, usually port 465
	From     string `yaml:"from,omitempty" validate:"omitempty,email"`
	To       string `yaml:"to,omitempty" validate:"omitempty,email"`
	Username string `yaml:"username,omitempty"` // "" logs nobody in
	Password Secret `yaml:"password,omitempty"`
}

// Dev is for tests and the demo. Substitution happens at dial, after every
// address check, and every receipt of a session that runs under it says so.
type Dev struct {
	Upstreams map[string]string `yaml:"upstreams,omitempty"` // public ip:port -> loopback ip:port
	DNS       string            `yaml:"dns,omitempty"`       // resolver, ip:port
	CA        string            `yaml:"ca,omitempty"`        // PEM file of the fakes' authority
}

// Zero reports whether no substitution is configured.
func (d Dev) Zero() bool { return len(d.Upstreams) == 0 && d.DNS == "" && d.CA == "" }

// Default returns the configuration that an empty file means.
func Default() Config {
	return Config{
		Listen:    Listen{Hooks: "127.0.0.1:8080", Operator: "127.0.0.1:8081", Private: "127.0.0.1:9090"},
		State:     "state",
		Sets:      "sets",
		Node:      "node-1",
		Bundles:   []string{"bundles/*.yaml"},
		Providers: Providers{Local: &struct{}{}},
		Promotion: Promotion{Approvers: 2},
		Sandbox:   Sandbox{UIDs: UIDRange{First: 610000, Last: 610999}, Unlimited: "refused"},
		Retain:    Duration(90 * 24 * time.Hour),
	}
}
