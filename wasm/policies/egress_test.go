package policies

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gatehouse/enforcers"
)

// testPolicy is the setup of the bypass matrix: api.good.test (GET, POST
// /v1/**), *.pkg.test (GET), one git path, one of each special rule.
const testPolicy = `{"bundle":"t","digest":"d","egress":[` +
	`{"blind":"","connection":"","encoded_slash":false,"host":"api.good.test","id":"egress[0]","methods":["GET","POST"],"paths":["/v1/**"],"ports":[443],"schemes":["https"]},` +
	`{"host":"*.pkg.test","id":"egress[1]","methods":["GET","HEAD"],"paths":["/**"],"ports":[443],"schemes":["https"]},` +
	`{"host":"**.deep.test","id":"egress[2]","methods":["GET"],"paths":["/repos/acme/shop/issues/*/comments","/x/**","/z"],"ports":[443,8443],"schemes":["https"]},` +
	`{"connection":"acme","encoded_slash":true,"host":"packages.test","id":"egress[3]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"],"upgrade":"websocket"},` +
	`{"blind":"tcp","host":"db.test","id":"egress[4]","methods":[],"paths":[],"ports":[5432],"schemes":["tcp"]},` +
	`{"host":"api.model.test","id":"models[0]","methods":[],"paths":[],"ports":[443],"schemes":["https"]},` +
	`{"host":"93.184.216.34","id":"egress[5]","methods":["GET"],"paths":["/**"],"ports":[80],"schemes":["http"]},` +
	`{"host":"xn--bcher-kva.pkg.test","id":"egress[6]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}` +
	`],"git":{"push":{"delete":false,"deny_paths":[".github/workflows/**","deploy/key"],"force":false,"refs":["refs/heads/gatehouse/pr-1/*"]},"repository":"1296269","siblings":[{"access":"read","repository":"77"}]},` +
	`"models":[{"allow":["claude-sonnet-*"],"connection":"anthropic-main","max_output_tokens":16384}],"operations":["scm.comment"],"spend":{"limit":5000000000,"per_day":100000000000},` +
	`"children":{"bundles":["lint-fix"],"depth":1,"max":3},"telemetry":["langfuse-main"]}`

// configureWith returns a configure message, with the policy's keys sorted.
func configureWith(t testing.TB, enforcer, policy string) *Judge {
	t.Helper()
	j, status := Configure([]byte(`{"abi":1,"bundle":` + policy + `,"params":{"enforcer":"` + enforcer + `"}}`))
	if status != OK {
		t.Fatalf("configure %s: status %d", enforcer, status)
	}
	return j
}

// sorted puts the test policy's one late key in its place; written out of
// order above only to read well.
func sorted(p string) string {
	const children = `"children":{"bundles":["lint-fix"],"depth":1,"max":3},`
	return strings.Replace(strings.Replace(p, children, "", 1), `"digest":`, children+`"digest":`, 1)
}

// message wraps an action as the host does.
func message(t testing.TB, a enforcers.Action) []byte {
	t.Helper()
	a.ID, a.Session, a.Seq, a.At = "s-1", "s", 1, time.Unix(1_800_000_000, 0)
	b, err := a.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return []byte(`{"abi":1,"action":` + string(b) + `}`)
}

// to writes an authority as the action JSON does. It is spliced in because an
// Authority is made by the door alone, and these tests want hostile ones too.
func to(host, port, scheme string) string {
	ip := strings.Contains(host, ":") || host[len(host)-1] >= '0' && host[len(host)-1] <= '9'
	return fmt.Sprintf(`"to":{"host":"%s","ip":%t,"port":%s,"scheme":"%s"}`, host, ip, port, scheme)
}

func splice(t testing.TB, a enforcers.Action, to string) []byte {
	t.Helper()
	const zero = `"to":{"host":"","ip":false,"port":0,"scheme":""}`
	m := string(message(t, a))
	if !strings.Contains(m, zero) {
		t.Fatalf("no zero authority in %s", m)
	}
	return []byte(strings.Replace(m, zero, to, 1))
}

func httpAction(t testing.TB, host, port, scheme, method, path, connection, upgrade string) []byte {
	t.Helper()
	return splice(t, enforcers.Action{Kind: enforcers.HTTPRequest, Connection: connection, HTTP: &enforcers.HTTP{
		Method: method, Path: path, Query: "q=1", Upgrade: upgrade, Body: enforcers.Body{Mode: "none"},
		Headers: map[string][]string{"accept": {"*/*"}, "x-quoted": {`a"b\`, "\t"}},
	}}, to(host, port, scheme))
}

func connectAction(t testing.TB, host, port, scheme string, blind, literal bool) []byte {
	t.Helper()
	return splice(t, enforcers.Action{Kind: enforcers.NetConnect, Connect: &enforcers.Connect{Blind: blind, Literal: literal}}, to(host, port, scheme))
}

func queryAction(t testing.TB, name string) []byte {
	t.Helper()
	return message(t, enforcers.Action{Kind: enforcers.DNSQuery, DNS: &enforcers.DNS{Name: name, Type: "A"}})
}

func operationAction(t testing.TB, name string) []byte {
	t.Helper()
	return message(t, enforcers.Action{Kind: enforcers.OperationCall, Operation: &enforcers.Operation{Name: name, Args: []byte(`{"n":[1,{"x":"]}"}]}`)}})
}

func TestEgress(t *testing.T) {
	get := func(host, path string) []byte { return httpAction(t, host, "443", "https", "GET", path, "", "") }
	cases := map[string]struct {
		action               []byte
		effect, rule, reason string
	}{
		"EG-01_not_listed":               {get("evil.test", "/"), deny, egressDefault, ReasonHostNotListed},
		"EG-02_suffix_look_alike":        {get("evilpkg.test", "/"), deny, egressDefault, ReasonHostNotListed},
		"EG-03_prefix_look_alike":        {get("api.good.test.evil.test", "/v1/x"), deny, egressDefault, ReasonHostNotListed},
		"EG-04_wildcard_apex":            {get("pkg.test", "/"), deny, egressDefault, ReasonHostNotListed},
		"EG-05_one_label":                {get("a.pkg.test", "/"), allow, "egress[1]", ReasonListed},
		"EG-05_one_label_is_not_two":     {get("a.b.pkg.test", "/"), deny, egressDefault, ReasonHostNotListed},
		"EG-05_any_depth":                {get("a.b.deep.test", "/z"), allow, "egress[2]", ReasonListed},
		"EG-05_any_depth_not_apex":       {get("deep.test", "/z"), deny, egressDefault, ReasonHostNotListed},
		"EG-08_empty_label":              {get("a..deep.test", "/z"), deny, egressDefault, ReasonHostNotListed},
		"EG-08_leading_dot":              {get(".pkg.test", "/"), deny, egressDefault, ReasonHostNotListed},
		"EG-10_nul_in_name":              {get(`evil.test\u0000.pkg.test`, "/"), deny, egressDefault, ReasonHostNotListed},
		"EG-15_a_label_not_by_wildcard":  {get("xn--evil-x.pkg.test", "/"), deny, egressDefault, ReasonHostNotListed},
		"EG-15_a_label_deep":             {get("a.xn--evil-x.deep.test", "/z"), deny, egressDefault, ReasonHostNotListed},
		"EG-15_a_label_listed_in_full":   {get("xn--bcher-kva.pkg.test", "/"), allow, "egress[6]", ReasonListed},
		"EG-18_other_port":               {httpAction(t, "api.good.test", "22", "https", "GET", "/v1/x", "", ""), deny, egressDefault, ReasonPortNotListed},
		"EG-20_ip_literal":               {httpAction(t, "93.184.216.35", "80", "http", "GET", "/", "", ""), deny, egressDefault, ReasonIPLiteral},
		"EG-20_ip_literal_v6":            {connectAction(t, "2606:2800::1", "443", "tcp", false, true), deny, egressDefault, ReasonIPLiteral},
		"EG-20_ip_rule":                  {httpAction(t, "93.184.216.34", "80", "http", "GET", "/", "", ""), allow, "egress[5]", ReasonListed},
		"EG-58_star":                     {get("a.deep.test", "/repos/acme/shop/issues/7/comments"), allow, "egress[2]", ReasonListed},
		"EG-58_star_is_one_segment":      {get("a.deep.test", "/repos/acme/shop/issues/7/8/comments"), deny, egressDefault, ReasonPathNotListed},
		"EG-58_star_is_a_segment":        {get("a.deep.test", "/repos/acme/shop/issues//comments"), deny, egressDefault, ReasonPathNotListed},
		"EG-58_star_hides_no_slash":      {get("a.deep.test", "/repos/acme/shop/issues/7%2f8/comments"), deny, egressDefault, ReasonEncodedSlash},
		"EG-54_trace":                    {httpAction(t, "api.good.test", "443", "https", "TRACE", "/v1/x", "", ""), deny, egressDefault, ReasonMethodNotListed},
		"EG-55_lower_method":             {httpAction(t, "api.good.test", "443", "https", "get", "/v1/x", "", ""), deny, egressDefault, ReasonMethodNotListed},
		"EG-57_encoded_slash":            {get("a.pkg.test", "/x%2Fy"), deny, egressDefault, ReasonEncodedSlash},
		"EG-57_encoded_backslash":        {get("a.pkg.test", "/x%5cy"), deny, egressDefault, ReasonEncodedSlash},
		"EG-57_rule_opts_in":             {httpAction(t, "packages.test", "443", "https", "GET", "/@a%2fb", "acme", ""), allow, "egress[3]", ReasonListed},
		"EG-58_prefix_boundary":          {get("api.good.test", "/v1evil"), deny, egressDefault, ReasonPathNotListed},
		"EG-58_folder_itself":            {get("api.good.test", "/v1"), deny, egressDefault, ReasonPathNotListed},
		"EG-62_upgrade_not_listed":       {httpAction(t, "a.pkg.test", "443", "https", "GET", "/", "", "websocket"), deny, egressDefault, ReasonUpgradeNotListed},
		"EG-62_upgrade_listed":           {httpAction(t, "packages.test", "443", "https", "GET", "/", "acme", "websocket"), allow, "egress[3]", ReasonListed},
		"EG-66_plain_http":               {httpAction(t, "api.good.test", "443", "http", "GET", "/v1/x", "", ""), deny, egressDefault, ReasonSchemeNotListed},
		"EG-94_dns_label":                {queryAction(t, "secret.evil.test"), deny, egressDefault, ReasonNameNotListed},
		"EG-94_listed_name":              {queryAction(t, "a.pkg.test"), allow, "egress[1]", ReasonListed},
		"EG-95_dns_ip_text":              {queryAction(t, "34.216.184.93.in-addr.arpa"), deny, egressDefault, ReasonNameNotListed},
		"path_exact":                     {get("q.deep.test", "/z"), allow, "egress[2]", ReasonListed},
		"path_exact_is_no_prefix":        {get("q.deep.test", "/z/"), deny, egressDefault, ReasonPathNotListed},
		"path_below":                     {get("q.deep.test", "/x/1/2"), allow, "egress[2]", ReasonListed},
		"connection_of_another_rule":     {httpAction(t, "a.pkg.test", "443", "https", "GET", "/", "acme", ""), deny, egressDefault, ReasonConnectionNotListed},
		"connection_rule_unauthorised":   {get("packages.test", "/x"), allow, "egress[3]", ReasonListed},
		"furthest_reason_wins":           {get("api.good.test", "/admin"), deny, egressDefault, ReasonPathNotListed},
		"connect_listed":                 {connectAction(t, "api.good.test", "443", "tcp", false, false), allow, "egress[0]", ReasonListed},
		"connect_scheme":                 {connectAction(t, "api.good.test", "443", "http", false, false), deny, egressDefault, ReasonSchemeNotListed},
		"connect_other_port":             {connectAction(t, "api.good.test", "8443", "tcp", false, false), deny, egressDefault, ReasonPortNotListed},
		"connect_blind_unlisted":         {connectAction(t, "api.good.test", "443", "tcp", true, false), deny, egressDefault, ReasonBlindNotListed},
		"connect_blind_listed":           {connectAction(t, "db.test", "5432", "tcp", true, false), allow, "egress[4]", ReasonListed},
		"connect_inspected_under_blind":  {connectAction(t, "db.test", "5432", "tcp", false, false), deny, egressDefault, ReasonBlindOnly},
		"connect_only_rule_opens_tunnel": {connectAction(t, "api.model.test", "443", "tcp", false, false), allow, "models[0]", ReasonListed},
		"connect_only_rule_no_request":   {get("api.model.test", "/v1/messages"), deny, egressDefault, ReasonMethodNotListed},
		"operation_listed":               {operationAction(t, "scm.comment"), allow, "operations[0]", ReasonListed},
		"operation_unlisted":             {operationAction(t, "scm.merge"), deny, egressDefault, ReasonOperationNotListed},
		"telemetry_listed":               {message(t, enforcers.Action{Kind: enforcers.TelemetryEmit, Connection: "langfuse-main", Telemetry: &enforcers.Telemetry{Path: "/x"}}), allow, "telemetry[0]", ReasonListed},
		"telemetry_other_connection":     {message(t, enforcers.Action{Kind: enforcers.TelemetryEmit, Connection: "other", Telemetry: &enforcers.Telemetry{Path: "/x"}}), deny, egressDefault, ReasonConnectionNotListed},
		"telemetry_no_connection":        {message(t, enforcers.Action{Kind: enforcers.TelemetryEmit, Telemetry: &enforcers.Telemetry{Path: "/x"}}), deny, egressDefault, ReasonConnectionNotListed},
		"foreign_kind":                   {message(t, enforcers.Action{Kind: enforcers.GitFetch, Fetch: &enforcers.Fetch{}}), abstain, "egress", ReasonNotMine},
	}
	j := configureWith(t, "egress", sorted(testPolicy))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			check(t, j, c.action, c.effect, c.rule, c.reason)
		})
	}
}

func TestEgressAllocatesNothing(t *testing.T) {
	j := configureWith(t, "egress", sorted(testPolicy))
	m := httpAction(t, "a.b.c.deep.test", "443", "https", "GET", "/x/1/2/y", "", "")
	if n := testing.AllocsPerRun(100, func() { j.Decide(m) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
