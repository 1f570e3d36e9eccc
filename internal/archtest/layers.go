package archtest

// layer is one line of the import rule. A package imports only packages of
// lower lines, or its own parent folder: never its child, never a sibling of
// its own line, unless an edge below says so.
type layer struct {
	name     string
	packages []string // module-relative; "cmd/*" matches every folder below cmd
}

// layers, lowest first (DESIGN.md section 3).
var layers = []layer{
	{"leaf", []string{
		"internal/problem", "internal/canon", "internal/secret", "internal/authority", "internal/netguard",
		"internal/journal", "internal/journal/faultfs", "internal/blob", "internal/diag", "internal/config", "internal/strictyaml", "internal/outside", "internal/leak", "internal/clientconf",
	}},
	{"nouns", []string{"internal/event", "gatekeeper/bundle", "receipts", "receipts/verifyjs"}},
	{"decide", []string{"enforcers"}},
	{"engines", []string{"wasm/*", "internal/notary", "internal/bus", "internal/secretstore", "internal/secretstore/storetest"}},
	{"out", []string{"enforcers/upstream", "enforcers/spend"}},
	{"in", []string{"enforcers/door", "ingest/*", "gatekeeper/sandbox/*"}},
	{"mediate", []string{"enforcers/agent", "enforcers/agent/mcp", "enforcers/git", "enforcers/model", "enforcers/operations", "enforcers/operations/*", "enforcers/telemetry"}},
	{"keep", []string{"gatekeeper"}},
	{"look", []string{"internal/view", "internal/review"}},
	{"serve", []string{"internal/api", "ui/*", "internal/auth"}},
	{"wire", []string{"cmd/*", "receipts/verifyjs/build"}},
}

// edges are the allowed exceptions: importer -> imported, each with its reason.
// A folder followed by "/*" stands for itself and all folders below it.
var edges = map[string]map[string]string{
	"internal/*":          {"internal/problem": "one error vocabulary for every leaf"},
	"internal/config":     {"internal/secret": "references resolve to secrets", "internal/strictyaml": "one strict decoder"},
	"wasm":                {"wasm/meter": "the host meters modules", "wasm/policies": "the built-in module is embedded there"},
	"wasm/policies/build": {"wasm/meter": "the built-in module's jumps are straightened"},
	"wasm/*":              {"wasm": "conformance and hostile suites drive the host", "wasm/policies": "conformance runs the native twin"},
	"internal/api":        {"internal/auth": "every request has somebody behind it"},
	"internal/review":     {"internal/view": "review groups what view lists"},
	"cmd/gatehouse":       {"cmd/gatehouse/demo": "the demo's agent and world have a room of their own"},
	"gatekeeper": {
		"gatekeeper/bundle":  "admission reads bundles",
		"gatekeeper/sandbox": "the provider contract",
	},
	"gatekeeper/sandbox/remote/remoted": {"gatekeeper/sandbox/remote/shim": "the server starts a shim per door"},
	"gatekeeper/bundle":                 {"internal/event": "match and floor read events"},
}

// soleUsers says which packages alone may import a module or standard package
// (by prefix) in non-test code.
var soleUsers = map[string][]string{
	"github.com/nats-io/":                    {"internal/bus"},
	"github.com/tetratelabs/wazero":          {"wasm/*"},
	"github.com/google/go-containerregistry": {"gatekeeper/sandbox/image/pull"},
	// The demo's agent runs programs inside the sandbox; policies/build runs the Go toolchain.
	"os/exec": {"gatekeeper/sandbox/*", "wasm/policies/build", "cmd/gatehouse/demo"},
}
