package conform_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/wasm/conform"
)

var update = flag.Bool("update", false, "write the vector files from the tables in this test")

// row is one vector as the tables below write it: the action as the gate's own
// type, so that the files show what the gate really encodes.
type row struct {
	name                  string
	action                enforcers.Action
	verdict, rule, reason string
}

// at is the one moment of all vectors.
var at = time.Date(2026, 11, 29, 12, 0, 0, 123456789, time.UTC)

func to(t *testing.T, scheme, host string, port uint16) authority.Authority {
	t.Helper()
	a, err := authority.New(scheme, host, port)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func http(t *testing.T, method, host, path string) enforcers.Action {
	t.Helper()
	return enforcers.Action{Kind: enforcers.HTTPRequest, HTTP: &enforcers.HTTP{
		To: to(t, "https", host, 443), Method: method, Path: path, Body: enforcers.Body{Mode: "none"},
		Headers: map[string][]string{"accept": {"*/*"}, "x-note": {`quote " backslash \ slash / ü 😀`, ""}},
	}}
}

func connect(t *testing.T, scheme, host string, port uint16, blind bool) enforcers.Action {
	t.Helper()
	a := to(t, scheme, host, port)
	return enforcers.Action{Kind: enforcers.NetConnect, Connect: &enforcers.Connect{To: a, Blind: blind, Literal: a.IsIP()}}
}

func query(name string) enforcers.Action {
	return enforcers.Action{Kind: enforcers.DNSQuery, DNS: &enforcers.DNS{Name: name, Type: "AAAA"}}
}

func operation(name, args string) enforcers.Action {
	return enforcers.Action{Kind: enforcers.OperationCall, Connection: "github-main", Operation: &enforcers.Operation{Name: name, Args: []byte(args)}}
}

func fetch(repository string) enforcers.Action {
	return enforcers.Action{Kind: enforcers.GitFetch, Connection: "github-main", Fetch: &enforcers.Fetch{Repository: repository, Path: "acme/shop", Protocol: 2}}
}

func push(repository, ref string, forced bool, changed ...string) enforcers.Action {
	return enforcers.Action{Kind: enforcers.GitPush, Connection: "github-main", Push: &enforcers.Push{
		Repository: repository, Path: "acme/shop", Changed: changed,
		Commands: []enforcers.RefUpdate{{Ref: ref, Old: strings.Repeat("0", 40), New: strings.Repeat("a", 40), Forced: forced}},
	}}
}

func call(model string, tokens, held int64) enforcers.Action {
	return enforcers.Action{Kind: enforcers.ModelCall, Connection: "anthropic-main", Model: &enforcers.Model{Provider: "anthropic", Model: model, MaxTokens: tokens, Held: held}}
}

func spawn(bundle string, depth, count int) enforcers.Action {
	return enforcers.Action{Kind: enforcers.SessionSpawn, Spawn: &enforcers.Spawn{Bundle: bundle, Depth: depth, Count: count}}
}

func body(t *testing.T, mode, s string) enforcers.Action {
	t.Helper()
	return with(http(t, "POST", "api.good.test", "/v1/x"), func(a *enforcers.Action) {
		a.HTTP.Body = enforcers.Body{Mode: mode, Length: int64(len(s)), Bytes: []byte(s)}
	})
}

func with(a enforcers.Action, f func(a *enforcers.Action)) enforcers.Action {
	f(&a)
	return a
}

const matrix = `{"bundle":"matrix","digest":"00","egress":[
{"host":"api.good.test","id":"egress[0]","methods":["GET","POST"],"paths":["/v1/**"],"ports":[443],"schemes":["https"]},
{"host":"*.pkg.test","id":"egress[1]","methods":["GET","HEAD"],"paths":["/**"],"ports":[443],"schemes":["https"]},
{"host":"**.deep.test","id":"egress[2]","methods":["GET"],"paths":["/**"],"ports":[443,8443],"schemes":["https"]},
{"connection":"acme-packages","encoded_slash":true,"host":"packages.test","id":"egress[3]","methods":["GET"],"paths":["/acme/**"],"ports":[443],"schemes":["https"],"upgrade":"websocket"},
{"blind":"tcp","host":"db.test","id":"egress[4]","methods":[],"paths":[],"ports":[5432],"schemes":["tcp"]},
{"host":"api.model.test","id":"models[0]","methods":[],"paths":[],"ports":[443],"schemes":["https"]},
{"host":"93.184.216.34","id":"egress[5]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}],
"git":{"push":{"delete":false,"deny_paths":[".github/workflows/**"],"force":false,"refs":["refs/heads/gatehouse/pr-1/*"]},"repository":"1296269","siblings":[{"access":"read","repository":"77"}]},
"models":[{"allow":["claude-sonnet-*"],"connection":"anthropic-main","max_output_tokens":16384}],"operations":["scm.comment"],"spend":{"limit":5000000000,"per_day":0},"telemetry":["langfuse-main"]}`

const spendPolicy = `{"children":{"bundles":["lint-fix"],"depth":1,"max":3},"digest":"00","models":[{"allow":["claude-sonnet-*"],"connection":"anthropic-main","max_output_tokens":16384}],"spend":{"limit":5000000000,"per_day":0}}`

func sets(t *testing.T) map[string]struct {
	params, policy string
	rows           []row
} {
	const none = "egress.default_deny"
	type set = struct {
		params, policy string
		rows           []row
	}
	return map[string]set{
		"egress": {`{"enforcer":"egress"}`, matrix, []row{
			{"request_listed", http(t, "GET", "api.good.test", "/v1/x"), "allow", "egress[0]", "listed"},
			{"request_other_path", http(t, "GET", "api.good.test", "/v2/x"), "deny", none, "path_not_listed"},
			{"request_other_method", http(t, "DELETE", "api.good.test", "/v1/x"), "deny", none, "method_not_listed"},
			{"request_unlisted", http(t, "GET", "evil.test", "/v1/x"), "deny", none, "host_not_listed"},
			{"request_wildcard", http(t, "HEAD", "a.pkg.test", "/"), "allow", "egress[1]", "listed"},
			{"request_wildcard_two_labels", http(t, "HEAD", "a.b.pkg.test", "/"), "deny", none, "host_not_listed"},
			{"request_any_depth", http(t, "GET", "a.b.deep.test", "/"), "allow", "egress[2]", "listed"},
			{"request_ip_listed", http(t, "GET", "93.184.216.34", "/"), "allow", "egress[5]", "listed"},
			{"request_ip", http(t, "GET", "93.184.216.35", "/"), "deny", none, "ip_literal"},
			{"request_connection", with(http(t, "GET", "packages.test", "/acme/%2fx"), func(a *enforcers.Action) { a.Connection = "acme-packages" }), "allow", "egress[3]", "listed"},
			{"request_other_connection", with(http(t, "GET", "packages.test", "/acme/x"), func(a *enforcers.Action) { a.Connection = "other" }), "deny", none, "connection_not_listed"},
			{"request_encoded_slash", http(t, "GET", "a.pkg.test", "/a%2Fb"), "deny", none, "encoded_slash"},
			{"request_upgrade", with(http(t, "GET", "packages.test", "/acme/x"), func(a *enforcers.Action) { a.HTTP.Upgrade = "websocket" }), "allow", "egress[3]", "listed"},
			{"request_upgrade_unlisted", with(http(t, "GET", "a.pkg.test", "/"), func(a *enforcers.Action) { a.HTTP.Upgrade = "websocket" }), "deny", none, "upgrade_not_listed"},
			{"request_body", with(http(t, "POST", "api.good.test", "/v1/x"), func(a *enforcers.Action) {
				a.HTTP.Body = enforcers.Body{Mode: "whole", Length: 5, Bytes: []byte("\x00\"\\ü")}
			}), "allow", "egress[0]", "listed"},
			{"request_unicode_query", with(http(t, "GET", "api.good.test", "/v1/x"), func(a *enforcers.Action) { a.HTTP.Query = `q="ü\u2028😀"` }), "allow", "egress[0]", "listed"},
			{"request_plain_text", with(http(t, "GET", "api.good.test", "/v1/x"), func(a *enforcers.Action) { a.HTTP.To = to(t, "http", "api.good.test", 443) }), "deny", none, "scheme_not_listed"},
			{"connect_listed", connect(t, "tcp", "api.good.test", 443, false), "allow", "egress[0]", "listed"},
			{"connect_other_port", connect(t, "tcp", "api.good.test", 22, false), "deny", none, "port_not_listed"},
			{"connect_literal", connect(t, "tcp", "2606:2800:220:1::1", 443, false), "deny", none, "ip_literal"},
			{"connect_blind", connect(t, "tcp", "db.test", 5432, true), "allow", "egress[4]", "listed"},
			{"connect_blind_unlisted", connect(t, "tcp", "api.good.test", 443, true), "deny", none, "blind_not_listed"},
			{"connect_inspected_where_blind", connect(t, "tcp", "db.test", 5432, false), "deny", none, "blind_only"},
			{"connect_of_a_model_host", connect(t, "https", "api.model.test", 443, false), "allow", "models[0]", "listed"},
			{"query_listed", query("a.pkg.test"), "allow", "egress[1]", "listed"},
			{"query_unlisted", query("secret.evil.test"), "deny", none, "name_not_listed"},
			{"telemetry_listed", enforcers.Action{Kind: enforcers.TelemetryEmit, Connection: "langfuse-main", Telemetry: &enforcers.Telemetry{To: to(t, "https", "t.test", 443), Path: "/api", Size: 1<<53 - 1}}, "allow", "telemetry[0]", "listed"},
			{"telemetry_unlisted", enforcers.Action{Kind: enforcers.TelemetryEmit, Connection: "x", Telemetry: &enforcers.Telemetry{To: to(t, "https", "t.test", 443), Path: "/api"}}, "deny", none, "connection_not_listed"},
			{"operation_listed", operation("scm.comment", `{"body":"a \"b\" ]}","n":[1,{"x":-9007199254740991}]}`), "allow", "operations[0]", "listed"},
			{"operation_unlisted", operation("scm.merge", `{}`), "deny", none, "operation_not_listed"},
			{"abstain_fetch", fetch("1296269"), "abstain", "egress", "not_mine"},
			{"abstain_push", push("1296269", "refs/heads/x", false), "abstain", "egress", "not_mine"},
			{"abstain_model", call("m", 1, 1), "abstain", "egress", "not_mine"},
			{"abstain_spawn", spawn("b", 1, 1), "abstain", "egress", "not_mine"},
		}},
		"git": {`{"enforcer":"git"}`, matrix, []row{
			{"fetch_own", fetch("1296269"), "allow", "git.repository", "listed"},
			{"fetch_sibling", fetch("77"), "allow", "git.siblings[0]", "listed"},
			{"fetch_unlisted", fetch("78"), "deny", "git.default_deny", "repository_not_listed"},
			{"fetch_without_repository", fetch(""), "deny", "git.default_deny", "repository_not_listed"},
			{"push_own", push("1296269", "refs/heads/gatehouse/pr-1/fix", false, "main.go", "ü/\"quoted\""), "allow", "git.push", "listed"},
			{"push_sibling", push("77", "refs/heads/gatehouse/pr-1/fix", false), "deny", "git.default_deny", "access_read_only"},
			{"push_main", push("1296269", "refs/heads/main", false), "deny", "git.default_deny", "ref_not_listed"},
			{"push_forced", push("1296269", "refs/heads/gatehouse/pr-1/fix", true), "deny", "git.default_deny", "force_not_allowed"},
			{"push_workflow", push("1296269", "refs/heads/gatehouse/pr-1/fix", false, ".github/workflows/a\\\"b.yml"), "deny", "git.push.deny_paths[0]", "path_denied"},
			{"abstain_request", http(t, "GET", "api.good.test", "/v1/x"), "abstain", "git", "not_mine"},
		}},
		"spend": {`{"enforcer":"spend"}`, spendPolicy, []row{
			{"call_listed", call("claude-sonnet-4", 16384, 5_000_000_000), "allow", "models[0]", "listed"},
			{"call_other_model", call("claude-opus-4", 1, 1), "deny", "spend.default_deny", "model_not_listed"},
			{"call_many_tokens", call("claude-sonnet-4", 16385, 1), "deny", "spend.default_deny", "max_tokens_exceeded"},
			{"call_no_bound", call("claude-sonnet-4", 0, 1), "deny", "spend.default_deny", "max_tokens_exceeded"},
			{"call_too_dear", call("claude-sonnet-4", 1, 5_000_000_001), "deny", "spend.default_deny", "budget_exceeded"},
			{"call_largest_number", call("claude-sonnet-4", 1<<53-1, 1<<53-1), "deny", "spend.default_deny", "max_tokens_exceeded"},
			{"call_other_connection", with(call("claude-sonnet-4", 1, 1), func(a *enforcers.Action) { a.Connection = "x" }), "deny", "spend.default_deny", "connection_not_listed"},
			{"spawn_listed", spawn("lint-fix", 1, 3), "allow", "children.bundles[0]", "listed"},
			{"spawn_unlisted", spawn("x", 1, 1), "deny", "spend.default_deny", "bundle_not_listed"},
			{"spawn_too_deep", spawn("lint-fix", 2, 1), "deny", "spend.default_deny", "depth_exceeded"},
			{"spawn_too_many", spawn("lint-fix", 1, 4), "deny", "spend.default_deny", "children_exceeded"},
			{"abstain_query", query("a.test"), "abstain", "spend", "not_mine"},
		}},
		"dlp": {`{"max_body":2048,"patterns":[{"name":"aws_key","regexp":"AKIA[0-9A-Z]{16}"},{"name":"pem","regexp":"-----BEGIN [A-Z ]*PRIVATE KEY-----"}]}`, `{}`, []row{
			{"no_body", http(t, "GET", "api.good.test", "/"), "abstain", "dlp", "no_body"},
			{"clean", body(t, "whole", "hello, bücher \x00\xff"), "abstain", "dlp", "nothing_found"},
			{"key", body(t, "whole", "id=AKIAABCDEFGHIJKLMNOP;"), "deny", "dlp.aws_key", "pattern_found"},
			{"key_too_short", body(t, "whole", "id=AKIAABCDEFGHIJKLMNO;"), "abstain", "dlp", "nothing_found"},
			{"pem_at_the_end", body(t, "whole", strings.Repeat("x", 2_000)+"-----BEGIN RSA PRIVATE KEY-----"), "deny", "dlp.pem", "pattern_found"},
			{"longest", body(t, "whole", strings.Repeat("AKI-", 512)), "abstain", "dlp", "nothing_found"},
			{"too_long", body(t, "whole", strings.Repeat("x", 2_049)), "deny", "dlp", "body_not_inspectable"},
			{"prefix_only", body(t, "prefix", "hello"), "deny", "dlp", "body_not_inspectable"},
			{"head_only", body(t, "head", ""), "deny", "dlp", "body_not_inspectable"},
		}},
		// What every SDK's example guest implements: deny the hosts listed in
		// params and whatever lies below them, abstain from the rest.
		"denylist": {`{"hosts":["evil.test","bücher.test","tab\\\"quote.test"]}`, `{}`, []row{
			{"request_denied", http(t, "GET", "evil.test", "/"), "deny", "denylist", "host_denied"},
			{"request_below", http(t, "GET", "a.b.evil.test", "/"), "deny", "denylist", "host_denied"},
			{"request_look_alike", http(t, "GET", "notevil.test", "/"), "abstain", "denylist", "not_listed"},
			{"request_prefix", http(t, "GET", "evil.test.example.test", "/"), "abstain", "denylist", "not_listed"},
			{"request_decoy", with(http(t, "GET", "good.test", "/"), func(a *enforcers.Action) {
				a.HTTP.Query = `"host":"evil.test"`
				a.HTTP.Headers["host"] = []string{"evil.test", `","to":{"host":"evil.test"}`}
				a.HTTP.Body = enforcers.Body{Mode: "whole", Length: 9, Bytes: []byte("evil.test")}
			}), "abstain", "denylist", "not_listed"},
			{"connect_denied", connect(t, "tcp", "evil.test", 443, false), "deny", "denylist", "host_denied"},
			{"connect_literal", connect(t, "tcp", "2606:2800:220:1::1", 443, false), "abstain", "denylist", "not_listed"},
			{"query_denied", query("x.evil.test"), "deny", "denylist", "host_denied"},
			{"query_quoted", query(`tab\"quote.test`), "deny", "denylist", "host_denied"},
			{"query_unicode", query("a.bücher.test"), "deny", "denylist", "host_denied"},
			{"query_empty", query(""), "abstain", "denylist", "not_listed"},
			{"operation_abstains", operation("evil.test", `{"host":"evil.test"}`), "abstain", "denylist", "not_listed"},
			{"fetch_abstains", fetch("1"), "abstain", "denylist", "not_listed"},
			{"push_abstains", push("1", "refs/heads/evil.test", false, "evil.test"), "abstain", "denylist", "not_listed"},
			{"model_abstains", call("evil.test", 1<<53-1, 0), "abstain", "denylist", "not_listed"},
			{"spawn_abstains", spawn("evil.test", 0, 0), "abstain", "denylist", "not_listed"},
		}},
	}
}

// TestVectorFiles holds the files to the tables above and so to what the gate
// encodes; -update writes them.
func TestVectorFiles(t *testing.T) {
	for name, s := range sets(t) {
		t.Run(name, func(t *testing.T) {
			set := conform.Set{Name: name, Params: json.RawMessage(s.params), Policies: map[string]json.RawMessage{"matrix": json.RawMessage(s.policy)}}
			fuel := uint64(100_000)
			switch name {
			case "denylist":
				fuel = 1_000_000 // guests in four languages, some of which allocate
			case "dlp":
				fuel = 20_000_000 // the ceiling
			}
			for i, r := range s.rows {
				a := r.action
				a.ID, a.Session, a.Seq, a.At = "01JD-"+r.name, "01JD", uint64(i), at
				b, err := a.Canonical()
				if err != nil {
					t.Fatalf("%s: %v", r.name, err)
				}
				set.Vectors = append(set.Vectors, conform.Vector{Name: r.name, Policy: "matrix", Action: b, Verdict: r.verdict, Rule: r.rule, Reason: r.reason, MaxFuel: fuel})
			}
			file := "vectors/" + name + ".json"
			want := render(t, set)
			if *update {
				if err := os.WriteFile(file, want, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s differs from what the gate encodes (-update writes it):\n%s", file, diff)
			}
		})
	}
}

func render(t *testing.T, s conform.Set) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
