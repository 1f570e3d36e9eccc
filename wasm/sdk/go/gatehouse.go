// Package gatehouse is the Go SDK for enforcers of ABI v1. An enforcer reads
// one action and returns a verdict; it may deny or abstain, and reaches
// nothing else: no file, no network, no clock, nothing of an earlier call.
//
// Build with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags='-s -w -buildid=' -o enforcer.wasm
package gatehouse

import "encoding/json"

// Enforcer is what a module implements and hands to Register.
type Enforcer interface {
	// Describe names the enforcer and the action kinds it wants to see.
	Describe() Description
	// Configure takes the compiled policy of the session's bundle and the
	// operator's params. An error refuses the session.
	Configure(bundle, params json.RawMessage) error
	// Decide judges one action. Nothing it stores survives the call.
	Decide(a *Action) Verdict
}

// Description is what gatehouse_describe answers.
type Description struct {
	Actions   []string `json:"actions"`
	Body      string   `json:"body,omitempty"`       // "prefix" or "whole" when bodies of http.request are needed
	BodyBytes int      `json:"body_bytes,omitempty"` // how much of them at most
	Name      string   `json:"name"`
	Rules     []string `json:"rules,omitempty"`
	Version   string   `json:"version"`
}

// Verdict is an answer. Rule matches [A-Za-z0-9._:/@\[\]-]{1,128}, Reason
// [a-z0-9._:-]{0,256}; the host takes anything else for a fault.
type Verdict struct {
	Effect string // "deny" or "abstain"; an allow of an added enforcer is a fault
	Rule   string
	Reason string
}

// Deny refuses the action.
func Deny(rule, reason string) Verdict { return Verdict{"deny", rule, reason} }

// Abstain leaves the action to the other enforcers.
func Abstain(rule, reason string) Verdict { return Verdict{"abstain", rule, reason} }

// Action is what a session tries. Exactly the body of Kind is set.
type Action struct {
	At         string `json:"at"`
	Connection string `json:"connection"`
	ID         string `json:"id"`
	Kind       string `json:"kind"`
	Seq        uint64 `json:"seq"`
	Session    string `json:"session"`

	Connect   *Connect   `json:"net_connect"`
	HTTP      *HTTP      `json:"http_request"`
	DNS       *DNS       `json:"dns_query"`
	Fetch     *Fetch     `json:"git_fetch"`
	Push      *Push      `json:"git_push"`
	Model     *Model     `json:"model_call"`
	Operation *Operation `json:"operation_call"`
	Telemetry *Telemetry `json:"telemetry_emit"`
	Spawn     *Spawn     `json:"session_spawn"`
}

// Authority is where an action goes.
type Authority struct {
	Host   string `json:"host"`
	IP     bool   `json:"ip"`
	Port   uint16 `json:"port"`
	Scheme string `json:"scheme"`
}

// Connect is net.connect.
type Connect struct {
	Blind   bool      `json:"blind"`
	Literal bool      `json:"literal"`
	To      Authority `json:"to"`
}

// HTTP is http.request. Header names are in lower case.
type HTTP struct {
	Body    Body                `json:"body"`
	Headers map[string][]string `json:"headers"`
	Method  string              `json:"method"`
	Path    string              `json:"path"`
	Query   string              `json:"query"`
	To      Authority           `json:"to"`
	Upgrade string              `json:"upgrade"`
}

// Body is as much of a request body as the action carries, decoded.
type Body struct {
	Bytes  []byte `json:"bytes"`
	Length int64  `json:"length"` // declared, -1 unknown
	Mode   string `json:"mode"`   // none | head | prefix | whole
}

// DNS is dns.query.
type DNS struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// Fetch is git.fetch.
type Fetch struct {
	Path       string    `json:"path"`
	Protocol   int       `json:"protocol"`
	Repository string    `json:"repository"`
	To         Authority `json:"to"`
}

// Push is git.push.
type Push struct {
	Changed    []string    `json:"changed"`
	Commands   []RefUpdate `json:"commands"`
	Path       string      `json:"path"`
	Repository string      `json:"repository"`
	To         Authority   `json:"to"`
}

// RefUpdate is one command of a push.
type RefUpdate struct {
	Forced bool   `json:"forced"`
	New    string `json:"new"`
	Old    string `json:"old"`
	Ref    string `json:"ref"`
}

// Model is model.call; Held is in nanodollars.
type Model struct {
	Held      int64     `json:"held"`
	MaxTokens int64     `json:"max_tokens"`
	Model     string    `json:"model"`
	Provider  string    `json:"provider"`
	Stream    bool      `json:"stream"`
	To        Authority `json:"to"`
}

// Operation is operation.call.
type Operation struct {
	Args json.RawMessage `json:"args"`
	Name string          `json:"name"`
}

// Telemetry is telemetry.emit.
type Telemetry struct {
	Path string    `json:"path"`
	Size int64     `json:"size"`
	To   Authority `json:"to"`
}

// Spawn is session.spawn.
type Spawn struct {
	Bundle string `json:"bundle"`
	Count  int    `json:"count"`
	Depth  int    `json:"depth"`
}

// Host returns the name or address the action concerns, "" if none.
func (a *Action) Host() string {
	switch {
	case a.Connect != nil:
		return a.Connect.To.Host
	case a.HTTP != nil:
		return a.HTTP.To.Host
	case a.DNS != nil:
		return a.DNS.Name
	case a.Fetch != nil:
		return a.Fetch.To.Host
	case a.Push != nil:
		return a.Push.To.Host
	case a.Model != nil:
		return a.Model.To.Host
	case a.Telemetry != nil:
		return a.Telemetry.To.Host
	}
	return ""
}

// Configure statuses of ABI v1.
const (
	statusOK          = 0
	statusBadBundle   = 1
	statusUnsupported = 2
)

// configure hands a configure message to e.
func configure(e Enforcer, b []byte) int32 {
	var m struct {
		ABI    int             `json:"abi"`
		Bundle json.RawMessage `json:"bundle"`
		Params json.RawMessage `json:"params"`
	}
	switch {
	case json.Unmarshal(b, &m) != nil:
		return statusBadBundle
	case m.ABI != 1:
		return statusUnsupported
	case e.Configure(m.Bundle, m.Params) != nil:
		return statusBadBundle
	}
	warmUp()
	return statusOK
}

// everyBody touches every type that an action can hold.
const everyBody = `{"dns_query":{},"git_fetch":{"to":{}},"git_push":{"changed":[""],"commands":[{}],"to":{}},` +
	`"http_request":{"body":{"bytes":"AA=="},"headers":{"a":["b"]},"to":{}},"model_call":{"to":{}},"net_connect":{"to":{}},` +
	`"operation_call":{"args":{}},"session_spawn":{},"telemetry_emit":{"to":{}}}`

// warmUp fills encoding/json's caches of types. The host puts memory back to
// what it was after configuring, so what is not cached by then would be built
// anew, and paid for, in every call.
func warmUp() {
	var m message
	_ = json.Unmarshal([]byte(`{"abi":1,"action":`+everyBody+`}`), &m)
}

type message struct {
	ABI    int    `json:"abi"`
	Action Action `json:"action"`
}

// decide puts a decide message to e and returns the answer, nil when the
// message cannot be read.
func decide(e Enforcer, b []byte) []byte {
	var m message
	if json.Unmarshal(b, &m) != nil || m.ABI != 1 {
		return nil
	}
	v := e.Decide(&m.Action)
	b = make([]byte, 0, 64+len(v.Rule)+len(v.Reason))
	b = append(b, `{"reason":"`...)
	b = append(b, v.Reason...)
	b = append(b, `","rule":"`...)
	b = append(b, v.Rule...)
	b = append(b, `","verdict":"`...)
	b = append(b, v.Effect...)
	return append(b, `"}`...)
}
