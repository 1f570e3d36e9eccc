package enforcers

import (
	"time"

	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// Kind is the closed list of action kinds.
type Kind string

// The kinds: DESIGN.md section 8.
const (
	NetConnect    Kind = "net.connect"
	HTTPRequest   Kind = "http.request"
	DNSQuery      Kind = "dns.query"
	GitFetch      Kind = "git.fetch"
	GitPush       Kind = "git.push"
	ModelCall     Kind = "model.call"
	OperationCall Kind = "operation.call"
	TelemetryEmit Kind = "telemetry.emit"
	SessionSpawn  Kind = "session.spawn"
)

// Action is one thing a session tries. Exactly the body of Kind is set. Its
// canonical bytes (Canonical) are what enforcers see and what the receipt
// commits to; no credential is ever part of it.
type Action struct {
	ID         string    // "<session>-<n>", made by the door
	Session    string    //
	Seq        uint64    // n: rises by one for each action of the session
	Kind       Kind      //
	At         time.Time // when the door saw it
	Generation uint64    // policy generation it is judged under
	Connection string    // the named connection it would use, "" if none: authority
	HardSet    string    // reason code when the door or mediator found a hard-set violation, else ""
	Signed     *Signed   // what an http.request without a connection is sent with, nil if nothing: authority

	Connect   *Connect
	HTTP      *HTTP
	DNS       *DNS
	Fetch     *Fetch
	Push      *Push
	Model     *Model
	Operation *Operation
	Telemetry *Telemetry
	Spawn     *Spawn

	judged []byte // Canonical, while Gate.Decide runs
}

// Signed is the query of an address that works by itself: outside, the same as a
// credential. Upstream adds it last; the action is judged, and is kept, without.
type Signed struct {
	Query secret.Value
	By    string // the connection whose answer gave the address
}

// Body says how much of a request body the action carries.
type Body struct {
	Mode   string // none | head | prefix | whole
	Length int64  // declared length, -1 unknown
	Bytes  []byte // prefix or whole, decoded; never in a receipt
}

// Connect is net.connect: a tunnel to a name and port.
type Connect struct {
	To      authority.Authority
	Literal bool // the target is an IP literal
	Blind   bool // tcp: or tls: passthrough
}

// HTTP is http.request.
type HTTP struct {
	To      authority.Authority
	Method  string
	Path    string              // canonical path, judged and sent
	Query   string              // raw query
	Headers map[string][]string // lower-case names, credential-bearing ones removed
	Body    Body
	Upgrade string // "websocket" or ""
}

// DNS is dns.query.
type DNS struct {
	Name string // canonical, without the root dot
	Type string // A, AAAA, TXT ...
}

// Fetch is git.fetch.
type Fetch struct {
	To         authority.Authority
	Repository string // numeric id, "" when the host has no scm connection
	Path       string // "owner/name" canonical
	Protocol   int
}

// Push is git.push.
type Push struct {
	To         authority.Authority
	Repository string
	Path       string
	Commands   []RefUpdate
	Changed    []string // changed paths as found in quarantine
}

// RefUpdate is one receive-pack command.
type RefUpdate struct {
	Ref, Old, New string // object ids in lower hex, zeros for create or delete
	Forced        bool
}

// Model is model.call.
type Model struct {
	To        authority.Authority
	Provider  string
	Model     string
	MaxTokens int64
	Stream    bool
	Held      int64 // worst case in nanodollars, already held

	// For the receipt; enforcers judge what is sent.
	Asked  int64         // output tokens the client asked for, 0 = no bound; MaxTokens is what is sent
	Prices receipts.Hash // digest of the price table that Held rests on
}

// Operation is operation.call.
type Operation struct {
	Name string
	Args []byte // canonical JSON
}

// Telemetry is telemetry.emit.
type Telemetry struct {
	To   authority.Authority
	Path string
	Size int64
}

// Spawn is session.spawn.
type Spawn struct {
	Bundle string
	Depth  int
	Count  int
}

// Authority reports whether the action uses more than the sandbox has by
// itself: a credential, a token, a push, an operation, a model call, a child.
// Such an action never passes on a deny, in any mode.
func (a *Action) Authority() bool {
	switch a.Kind {
	case NetConnect, HTTPRequest, DNSQuery, GitFetch:
		return a.Connection != "" || a.Signed != nil
	default:
		return true
	}
}

// To returns where the action goes, or the zero Authority when it goes nowhere
// by itself (dns.query, operation.call, session.spawn).
func (a *Action) To() authority.Authority {
	switch {
	case a.Connect != nil:
		return a.Connect.To
	case a.HTTP != nil:
		return a.HTTP.To
	case a.Fetch != nil:
		return a.Fetch.To
	case a.Push != nil:
		return a.Push.To
	case a.Model != nil:
		return a.Model.To
	case a.Telemetry != nil:
		return a.Telemetry.To
	default:
		return authority.Authority{}
	}
}

// host returns the canonical host the action names, "" if none.
func (a *Action) host() string {
	if a.DNS != nil {
		return a.DNS.Name
	}
	return a.To().Host()
}

// complete reports whether exactly the body of Kind is set, and no credential
// beside another.
func (a *Action) complete() bool {
	if a.Signed != nil && (a.Kind != HTTPRequest || a.Connection != "") {
		return false
	}
	known := false
	for _, body := range [...]struct {
		kind Kind
		set  bool
	}{
		{NetConnect, a.Connect != nil}, {HTTPRequest, a.HTTP != nil}, {DNSQuery, a.DNS != nil},
		{GitFetch, a.Fetch != nil}, {GitPush, a.Push != nil}, {ModelCall, a.Model != nil},
		{OperationCall, a.Operation != nil}, {TelemetryEmit, a.Telemetry != nil}, {SessionSpawn, a.Spawn != nil},
	} {
		if body.set != (body.kind == a.Kind) {
			return false
		}
		known = known || body.kind == a.Kind
	}
	return known
}
