package bundle_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/event"
)

const full = `apiVersion: gatehouse/v1
kind: Bundle
name: full
mode: hard
priority: 5
accepts: member
shadow_outsiders: {reason: trying, expires: 2030-01-01}
per_entity: 3/24h
self: {max: 1}
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, run_attempt: {min: 1, max: 3}, head_sha: {prefix: ab, glob: "ab*", not: [abc]}}}
session:
  provider: local
  agent: {command: {argv: [run]}}
  task: go
  deliver: [/workflow_run/name]
  rootfs: {dir: /srv/root}
  workspace: {quota: 1GiB}
  mounts: [{source: /srv/a, path: /a}]
  caches: [{name: npm, path: /npm}]
  timeout: 10m
  concurrency: {key: repository.id, max: 2}
  children: {bundles: [child], max: 2, depth: 1}
  on_start: [scm.comment]
  on_end: [scm.comment]
credentials: {compatibility: {reason: old client, expires: 2030-01-01}}
egress:
  - {host: "*.a.test", methods: [GET], paths: [/v1/**], addresses: [10.1.0.0/16], names: 8, up: 1MiB, down: 1MiB, idle: 1m}
  - {host: c.test, connection: con, env: TOKEN, uses: 3}
  - {set: npm}
  - {tcp: db.test, ports: [5432]}
  - {host: pinned.test, tls: passthrough}
sets: {npm: {hosts: [npm.test]}}
git: {repository: {by: project.id, map: {"450": acme/app}}, siblings: [{repository: acme/docs, access: read}], push: {refs: ["refs/heads/gatehouse/{entity}/*"], deny_paths: [".github/**"]}}
models: [{connection: m, allow: ["claude-sonnet-*"], max_output_tokens: 100}]
operations: [scm.comment]
telemetry: [lf]
spend: {limit: 5.00 USD, per_day: 50.00 USD}
enforcers: {dlp: {module: "dlp@sha256:` + zeros64 + `", mode: hard, params: {level: "3"}}}
`

const zeros64 = "0000000000000000000000000000000000000000000000000000000000000000"

// notAuthority are the fields that Covers leaves out on purpose.
var notAuthority = map[string]string{
	"name":           "bundles of any name are compared",
	"session.agent":  "runs inside under the same limits",
	"session.task":   "tells the agent what to do, gives it nothing to do it with",
	"session.no_mcp": "the server is at the door all the same",
}

// widened makes each field of full larger in one way; full must not cover the
// result. A field that is missing here fails the test, so that nobody adds one
// without deciding what covering it means.
var widened = map[string]func(b *bundle.Bundle){
	"apiVersion":                 func(b *bundle.Bundle) { b.APIVersion = "gatehouse/v2" },
	"kind":                       func(b *bundle.Bundle) { b.Kind = "Other" },
	"mode":                       func(b *bundle.Bundle) { b.Mode = bundle.Shadow },
	"priority":                   func(b *bundle.Bundle) { b.Priority = 6 },
	"accepts":                    func(b *bundle.Bundle) { b.Accepts = event.Outsider },
	"shadow_outsiders.reason":    nil,
	"shadow_outsiders.expires":   func(b *bundle.Bundle) { b.ShadowOutsiders.Expires.Time = b.ShadowOutsiders.Expires.Add(time.Second) },
	"match[].source":             func(b *bundle.Bundle) { b.Triggers[0].Source = "linear" },
	"match[].endpoint":           func(b *bundle.Bundle) { b.Triggers[0].Endpoint = "" },
	"match[].kinds":              func(b *bundle.Bundle) { b.Triggers[0].Kinds = []string{"workflow_run.*"} },
	"match[].where":              func(b *bundle.Bundle) { delete(b.Triggers[0].Where, "conclusion") },
	"per_entity":                 func(b *bundle.Bundle) { b.PerEntity.N++ },
	"self.max":                   func(b *bundle.Bundle) { b.Self.Max++ },
	"session.provider":           func(b *bundle.Bundle) { b.Session.Provider = "oci" },
	"session.deliver":            func(b *bundle.Bundle) { b.Session.Deliver = append(b.Session.Deliver, "/x") },
	"session.payload":            func(b *bundle.Bundle) { b.Session.Payload = true },
	"session.rootfs":             func(b *bundle.Bundle) { b.Session.Rootfs.Value = "/" },
	"session.workspace.checkout": func(b *bundle.Bundle) { b.Session.Workspace.Checkout = true },
	"session.workspace.quota":    func(b *bundle.Bundle) { b.Session.Workspace.Quota++ },
	"session.mounts[].source":    func(b *bundle.Bundle) { b.Session.Mounts[0].Source = "/srv" },
	"session.mounts[].path":      func(b *bundle.Bundle) { b.Session.Mounts[0].Path = "/b" },
	"session.mounts[].mode":      func(b *bundle.Bundle) { b.Session.Mounts[0].Mode = "write" },
	"session.caches[].name":      func(b *bundle.Bundle) { b.Session.Caches[0].Name = "pypi" },
	"session.caches[].path":      func(b *bundle.Bundle) { b.Session.Caches[0].Path = "/b" },
	"session.caches[].mode":      func(b *bundle.Bundle) { b.Session.Caches[0].Mode = "write" },
	"session.timeout":            func(b *bundle.Bundle) { b.Session.Timeout++ },
	"session.concurrency.key":    func(b *bundle.Bundle) { b.Session.Concurrency.Key = "run_id" },
	"session.concurrency.max":    func(b *bundle.Bundle) { b.Session.Concurrency.Max++ },
	"session.concurrency.over":   func(b *bundle.Bundle) { b.Session.Concurrency.Over = "refuse" },
	"session.children.bundles":   func(b *bundle.Bundle) { b.Session.Children.Bundles = []string{"child", "other"} },
	"session.children.max":       func(b *bundle.Bundle) { b.Session.Children.Max++ },
	"session.children.depth":     func(b *bundle.Bundle) { b.Session.Children.Depth++ },
	"session.on_start":           func(b *bundle.Bundle) { b.Session.OnStart = []string{"scm.comment", "scm.pr.create"} },
	"session.on_end":             func(b *bundle.Bundle) { b.Session.OnEnd = []string{"scm.comment", "scm.pr.create"} },
	"credentials": func(b *bundle.Bundle) {
		b.Credentials.Weaker.Expires.Time = b.Credentials.Weaker.Expires.Add(time.Second)
	},
	"egress[].set":               func(b *bundle.Bundle) { b.Egress[2].Set = "pypi" },
	"sets":                       func(b *bundle.Bundle) { b.Sets = withSets(b.Sets["npm"].Hosts[0], "more.test") },
	"egress[].host":              func(b *bundle.Bundle) { b.Egress[0].Host = "**.a.test" },
	"egress[].tcp":               func(b *bundle.Bundle) { b.Egress[3].TCP = "*.db.test" },
	"egress[].tls":               func(b *bundle.Bundle) { b.Egress[4].TLS = "" },
	"egress[].ports":             func(b *bundle.Bundle) { b.Egress[0].Ports = []uint16{80, 443} },
	"egress[].schemes":           func(b *bundle.Bundle) { b.Egress[0].Schemes = []string{"http", "https"} },
	"egress[].methods":           func(b *bundle.Bundle) { b.Egress[0].Methods = []string{"GET", "POST"} },
	"egress[].paths":             func(b *bundle.Bundle) { b.Egress[0].Paths = []string{"/**"} },
	"egress[].connection":        func(b *bundle.Bundle) { b.Egress[0].Connection = "con" },
	"egress[].env":               func(b *bundle.Bundle) { b.Egress[1].Env = "OTHER" },
	"egress[].uses":              func(b *bundle.Bundle) { b.Egress[1].Uses = 0 },
	"egress[].addresses":         func(b *bundle.Bundle) { b.Egress[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} },
	"egress[].encoded_slash":     func(b *bundle.Bundle) { b.Egress[0].EncodedSlash = true },
	"egress[].upgrade":           func(b *bundle.Bundle) { b.Egress[0].Upgrade = "websocket" },
	"egress[].names":             func(b *bundle.Bundle) { b.Egress[0].Names++ },
	"egress[].up":                func(b *bundle.Bundle) { b.Egress[0].Up++ },
	"egress[].down":              func(b *bundle.Bundle) { b.Egress[0].Down++ },
	"egress[].idle":              func(b *bundle.Bundle) { b.Egress[0].Idle++ },
	"git.repository":             func(b *bundle.Bundle) { b.Git.Repository.Map["451"] = "acme/secret" },
	"git.siblings[].repository":  func(b *bundle.Bundle) { b.Git.Siblings[0].Repository = "acme/secret" },
	"git.siblings[].access":      func(b *bundle.Bundle) { b.Git.Siblings[0].Access = "write" },
	"git.push.refs":              func(b *bundle.Bundle) { b.Git.Push.Refs = []string{"refs/heads/**"} },
	"git.push.force":             func(b *bundle.Bundle) { b.Git.Push.Force = true },
	"git.push.delete":            func(b *bundle.Bundle) { b.Git.Push.Delete = true },
	"git.push.deny_paths":        func(b *bundle.Bundle) { b.Git.Push.DenyPaths = []string{".github/workflows/**"} },
	"models[].connection":        func(b *bundle.Bundle) { b.Models[0].Connection = "n" },
	"models[].allow":             func(b *bundle.Bundle) { b.Models[0].Allow = []string{"claude-*"} },
	"models[].max_output_tokens": func(b *bundle.Bundle) { b.Models[0].MaxOutputTokens++ },
	"operations":                 func(b *bundle.Bundle) { b.Operations = append(b.Operations, "scm.pr.create") },
	"telemetry":                  func(b *bundle.Bundle) { b.Telemetry = append(b.Telemetry, "other") },
	"spend.limit":                func(b *bundle.Bundle) { b.Spend.Limit++ },
	"spend.per_day":              func(b *bundle.Bundle) { b.Spend.PerDay = 0 },
	"enforcers{}.module": func(b *bundle.Bundle) {
		setEnforcer(b, func(e *bundle.Enforcer) { e.Module = strings.Replace(e.Module, "0", "1", 1) })
	},
	"enforcers{}.mode":   func(b *bundle.Bundle) { setEnforcer(b, func(e *bundle.Enforcer) { e.Mode = bundle.Shadow }) },
	"enforcers{}.params": func(b *bundle.Bundle) { setEnforcer(b, func(e *bundle.Enforcer) { e.Params = nil }) },
}

// withSets is the content of a set npm with those hosts.
func withSets(hosts ...string) map[string]bundle.SetContent {
	b, err := bundle.Parse([]byte(minimal + "egress: [{set: npm}]\nsets: {npm: {hosts: [" + strings.Join(hosts, ", ") + "]}}\n"))
	if err != nil {
		panic(err) // the hosts are written in this file
	}
	return b.Sets
}

func setEnforcer(b *bundle.Bundle, fn func(*bundle.Enforcer)) {
	e := b.Enforcers["dlp"]
	fn(&e)
	b.Enforcers["dlp"] = e
}

// fieldsOf lists every field of a bundle by its yaml path.
func fieldsOf(t reflect.Type, at string, out *[]string) {
	switch {
	case t.Kind() == reflect.Pointer:
		fieldsOf(t.Elem(), at, out)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && t.Elem() != reflect.TypeFor[netip.Prefix]():
		fieldsOf(t.Elem(), at+"[]", out)
	case t.Kind() == reflect.Map && t.Elem() == reflect.TypeFor[bundle.Enforcer]():
		fieldsOf(t.Elem(), at+"{}", out)
	case t.Kind() == reflect.Struct && !slices.Contains(whole, t):
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); f.IsExported() {
				fieldsOf(f.Type, strings.TrimPrefix(at+"."+name, "."), out)
			}
		}
	default:
		*out = append(*out, at)
	}
}

// whole are the types that are one value to the reader.
var whole = []reflect.Type{
	reflect.TypeFor[bundle.Rate](), reflect.TypeFor[bundle.Day](), reflect.TypeFor[bundle.Credentials](), reflect.TypeFor[bundle.Agent](),
	reflect.TypeFor[bundle.Rootfs](), reflect.TypeFor[bundle.GitRepository](), reflect.TypeFor[netip.Prefix](),
}

func TestCoversKnowsEveryField(t *testing.T) {
	var fields []string
	fieldsOf(reflect.TypeFor[bundle.Bundle](), "", &fields)
	base := parse(t, full)
	for _, field := range fields {
		t.Run(field, func(t *testing.T) {
			if notAuthority[field] != "" {
				return
			}
			widen, ok := widened[field]
			if !ok {
				t.Fatal("nobody decided whether this field is authority: add it to Covers and to widened")
			}
			if widen == nil {
				return
			}
			b := parse(t, full)
			widen(b)
			if ok, _ := base.Covers(b); ok {
				t.Error("full covers the wider bundle")
			}
			if !strings.HasSuffix(field, "mode") && b.Digest() == base.Digest() || field == "session.mounts[].mode" && b.Digest() == base.Digest() {
				t.Error("the digest does not see the change")
			}
		})
	}
	for field := range widened {
		if !slices.Contains(fields, field) {
			t.Errorf("%s is widened and no field", field)
		}
	}
	if ok, why := base.Covers(parse(t, full)); !ok {
		t.Errorf("full does not cover itself: %s", why)
	}
}

func TestCovers(t *testing.T) {
	git := func(push string) string { return minimal + "git: {repository: session, push: {" + push + "}}\n" }
	rule := func(s string) string { return minimal + "egress: [{" + s + "}]\n" }
	where := func(s string) string {
		return minimal + "match: [{source: github, kinds: [push], where: {" + s + "}}]\n"
	}
	rules := func(list ...string) string { return minimal + "egress: [{" + strings.Join(list, "}, {") + "}]\n" }
	npm := func(content string, more ...string) string {
		return rules(append([]string{"set: npm"}, more...)...) + "sets: {npm: {" + content + "}}\n"
	}
	const get, post, postC2 = "host: a.test, methods: [GET], connection: c1", "host: a.test, methods: [POST]", "host: a.test, methods: [POST], connection: c2"
	cases := map[string]struct {
		a, b string
		want bool
	}{
		"EG-75_without_what_binds":      {rules(get, post), rules(post), false},
		"EG-75_other_connection_binds":  {rules(get, postC2), rules(postC2), false},
		"EG-75_other_order":             {rules(get, postC2), rules(postC2, get), false},
		"EG-75_in_a_set":                {rules("set: npm", get), rules("set: npm"), false},
		"EG-75_under_a_wildcard":        {rules("host: '*.test.test', methods: [POST]", "host: a.test.test, connection: c1"), rules("host: '*.test.test', methods: [POST]"), false},
		"EG-75_beside_a_wildcard":       {rules("host: '*.test.test', methods: [POST]", "host: a.test.test, connection: c1"), rules("host: b.test.test, methods: [POST]"), true},
		"EG-75_binding_kept":            {rules(get, post), rules(get), true},
		"EG-75_without_what_blinds":     {rules("host: a.test, tls: passthrough", postC2), rules(postC2), false},
		"EG-75_blind_narrower":          {rules("host: '**.a.test', tls: passthrough"), rules("host: b.a.test, tls: passthrough"), true},
		"EG-93_without_the_lower_cap":   {rules("host: a.test", "host: a.test, up: 9MiB"), rules("host: a.test, up: 9MiB"), false},
		"EG-93_lower_cap_kept":          {rules("host: a.test", "host: a.test, up: 9MiB"), rules("host: a.test", "host: a.test, up: 8MiB"), true},
		"EG-93_lower_cap_behind":        {rules("host: a.test", "host: a.test, up: 9MiB"), rules("host: a.test, up: 9MiB", "host: a.test"), false},
		"EG-93_higher_cap_first":        {rules("host: a.test, up: 9MiB", "host: a.test"), rules("host: a.test"), true},
		"EG-93_lower_cap_elsewhere":     {rules("host: a.test, paths: [/v1/**]", "host: a.test, paths: [/v2/**], up: 9MiB"), rules("host: a.test, paths: [/v2/**], up: 9MiB"), true},
		"EG-93_lower_cap_that_crosses":  {rules("host: a.test, paths: [/a/b/*]", "host: a.test, paths: [/a/*/c], up: 9MiB"), rules("host: a.test, paths: [/a/*/c], up: 9MiB"), false},
		"EG-58_star_over_a_segment":     {rule("host: a.test, paths: [/a/*/c]"), rule("host: a.test, paths: [/a/b/c]"), true},
		"EG-58_star_over_two":           {rule("host: a.test, paths: [/a/*/c]"), rule("host: a.test, paths: [/a/b/b/c]"), false},
		"EG-93_lower_cap_of_a_wildcard": {rules("host: '*.test.test'", "host: a.test.test, down: 1GiB"), rules("host: a.test.test, down: 1GiB"), false},
		"EG-93_lower_cap_of_a_set":      {rules("set: npm", "host: a.test, up: 9MiB"), rules("host: a.test, up: 9MiB"), false},
		"EG-93_set_kept":                {rules("set: npm", "host: a.test, up: 9MiB"), rules("set: npm", "host: a.test, up: 9MiB"), true},
		"EG-93_set_without_more":        {rules("set: npm", "host: a.test, up: 9MiB"), rules("host: a.test"), true},
		"set_adds_a_host":               {npm("hosts: [a.test]"), npm("hosts: [a.test, b.test]"), false},
		"set_leaves_one_out":            {npm("hosts: [a.test, b.test]"), npm("hosts: [b.test]"), true},
		"set_in_another_order":          {npm("hosts: [a.test, b.test]"), npm("hosts: [b.test, a.test]"), true},
		"set_adds_a_method":             {npm("hosts: [a.test]"), npm("hosts: [a.test], methods: [GET, POST]"), false},
		"set_wildcard_for_a_host":       {npm("hosts: ['*.test.test']"), npm("hosts: [a.test.test]"), true},
		"set_held_by_one_only":          {rules("set: npm"), npm("hosts: [a.test]"), false},
		"set_held_by_the_other_only":    {npm("hosts: [a.test]"), rules("set: npm"), false},
		"set_moves_a_host_to_a_rule":    {npm("hosts: [a.test]", "host: b.test"), npm("hosts: [a.test, b.test]"), true},
		"EG-75_set_gains_a_bound_host":  {npm("hosts: [a.test, b.test]", "host: a.test, methods: [GET], connection: c1"), npm("hosts: [a.test]"), false},
		"EG-93_set_behind_a_lower_cap":  {npm("hosts: [a.test, b.test]", "host: a.test, up: 9MiB"), npm("hosts: [b.test]", "host: a.test, up: 9MiB"), false},
		"EG-31_addresses_first":         {rules("host: a.test, addresses: [10.2.0.0/16]", "host: a.test"), rules("host: a.test"), false},
		"EG-84_git_gone":                {minimal + "egress: [{host: a.test}]\ngit: {repository: session}\n", rule("host: a.test"), false},
		"git_gone_with_all_egress":      {minimal + "egress: [{host: a.test}]\ngit: {repository: session}\n", minimal, true},
		"nothing":                       {rule("host: a.test"), minimal, true},
		"one_label":                     {rule("host: '*.a.test'"), rule("host: b.a.test"), true},
		"apex":                          {rule("host: '*.a.test'"), rule("host: a.test"), false},
		"EG-05_two_labels":              {rule("host: '*.a.test'"), rule("host: c.b.a.test"), false},
		"any_depth":                     {rule("host: '**.a.test'"), rule("host: c.b.a.test"), true},
		"any_over_one":                  {rule("host: '**.a.test'"), rule("host: '*.a.test'"), true},
		"any_over_one_deeper":           {rule("host: '**.a.test'"), rule("host: '*.b.a.test'"), true},
		"any_over_any_deeper":           {rule("host: '**.a.test'"), rule("host: '**.b.a.test'"), true},
		"one_over_any":                  {rule("host: '*.a.test'"), rule("host: '**.a.test'"), false},
		"one_over_one_deeper":           {rule("host: '*.a.test'"), rule("host: '*.b.a.test'"), false},
		"EG-02_suffix_lookalike":        {rule("host: '**.a.test'"), rule("host: '*.ba.test'"), false},
		"EG-15_punycode":                {rule("host: '*.a.test'"), rule("host: xn--bcher-kva.a.test"), false},
		"EG-58_path_prefix":             {rule("host: a.test, paths: [/v1/**]"), rule("host: a.test, paths: [/v1evil]"), false},
		"path_under":                    {rule("host: a.test, paths: [/v1/**]"), rule("host: a.test, paths: [/v1/x, /v1/y/**]"), true},
		"path_exact_over_prefix":        {rule("host: a.test, paths: [/v1/]"), rule("host: a.test, paths: [/v1/**]"), false},
		"no_union_of_rules":             {minimal + "egress: [{host: a.test, methods: [GET]}, {host: a.test, methods: [POST]}]\n", rule("host: a.test, methods: [GET, POST]"), false},
		"address_narrower":              {rule("host: a.test, addresses: [10.0.0.0/8]"), rule("host: a.test, addresses: [10.2.0.0/16]"), true},
		"address_instead_of_public":     {rule("host: a.test"), rule("host: a.test, addresses: [10.2.0.0/16]"), false},
		"public_instead_of_address":     {rule("host: a.test, addresses: [10.2.0.0/16]"), rule("host: a.test"), false},
		"without_credential":            {rule("host: a.test, connection: c"), rule("host: a.test"), false},
		"fewer_uses":                    {rule("host: a.test, connection: c, env: T"), rule("host: a.test, connection: c, env: T, uses: 2"), true},
		"without_placeholder":           {rule("host: a.test, connection: c, env: T, uses: 2"), rule("host: a.test, connection: c"), true},
		"blind_over_read":               {rule("host: a.test, tls: passthrough"), rule("host: a.test"), false},
		"read_over_blind":               {rule("host: a.test"), rule("host: a.test, tls: passthrough"), false},
		"ref_entity_under_star":         {git("refs: ['refs/heads/gatehouse/*/*']"), git("refs: ['refs/heads/gatehouse/{entity}/*']"), true},
		"ref_star_under_entity":         {git("refs: ['refs/heads/gatehouse/{entity}/*']"), git("refs: ['refs/heads/gatehouse/*/*']"), false},
		"ref_deep":                      {git("refs: ['refs/heads/gatehouse/**']"), git("refs: ['refs/heads/gatehouse/{entity}/*']"), true},
		"ref_deeper_than_star":          {git("refs: ['refs/heads/*']"), git("refs: ['refs/heads/a/b']"), false},
		"ref_shorter":                   {git("refs: ['refs/heads/a/**']"), git("refs: ['refs/heads/a']"), false},
		"deny_more":                     {git("refs: ['refs/heads/x'], deny_paths: ['.github/workflows/**']"), git("refs: ['refs/heads/x'], deny_paths: ['.github/**', 'ci/**']"), true},
		"deny_prefix_name":              {git("refs: ['refs/heads/x'], deny_paths: ['ci/**']"), git("refs: ['refs/heads/x'], deny_paths: ['ci/a/**']"), false},
		"deny_everything":               {git("refs: ['refs/heads/x'], deny_paths: ['ci/**']"), git("refs: ['refs/heads/x'], deny_paths: ['**']"), true},
		"model_star_stops_at_slash":     {minimal + "models: [{connection: c, allow: ['a*'], max_output_tokens: 1}]\n", minimal + "models: [{connection: c, allow: ['a/b'], max_output_tokens: 1}]\n", false},
		"more_enforcers":                {minimal, minimal + "enforcers: {x: {module: 'x@sha256:" + zeros64 + "'}}\n", true},
		"harder_enforcer":               {minimal + "enforcers: {x: {module: 'x@sha256:" + zeros64 + "'}}\n", minimal + "enforcers: {x: {module: 'x@sha256:" + zeros64 + "', mode: hard}}\n", true},
		"harder":                        {minimal, minimal + "mode: hard\n", true},
		"stricter_credentials":          {minimal + "credentials: required\n", minimal, true},
		"weaker_credentials":            {minimal, minimal + "credentials: required\n", false},
		"compatibility_new":             {minimal + "credentials: required\n", minimal + "credentials: {compatibility: {reason: x, expires: 2030-01-01}}\n", false},
		"higher_accepts":                {minimal, strings.Replace(minimal, "member", "operator", 1), true},
		"slower_rate":                   {minimal, minimal + "per_entity: 3/48h\n", true},
		"faster_rate":                   {minimal, minimal + "per_entity: 3/12h\n", false},
		"new_concurrency":               {minimal, head + "session: {agent: codex, task: go, concurrency: {key: run_id}}\n", true},
		"where_narrower_list":           {where("x: [a, b]"), where("x: a"), true},
		"where_list_under_prefix":       {where("x: {prefix: a}"), where("x: [ab, ac]"), true},
		"where_list_beside_prefix":      {where("x: {prefix: a}"), where("x: [ab, bc]"), false},
		"where_prefix_longer":           {where("x: {prefix: a}"), where("x: {prefix: ab}"), true},
		"where_min_higher":              {where("x: {min: 1}"), where("x: {min: 2, max: 5}"), true},
		"where_min_lower":               {where("x: {min: 2}"), where("x: {min: 1}"), false},
		"where_value_in_range":          {where("x: {min: 1, max: 3}"), where("x: 2"), true},
		"where_value_not_in_range":      {where("x: {min: 1, max: 3}"), where("x: 4"), false},
		"where_not_more":                {where("x: {not: a}"), where("x: {not: [a, b]}"), true},
		"where_any_is_not_not":          {where("x: {not: a}"), where("x: b"), false}, // a list fact may hold both
		"where_more_conditions":         {where("x: a"), where("x: a, y: b"), true},
		"where_fewer_conditions":        {where("x: a, y: b"), where("x: a"), false},
		"endpoint_named":                {minimal + "match: [{source: github, kinds: [push]}]\n", minimal + "match: [{source: github, kinds: [push], endpoint: main}]\n", true},
		"kind_action_under_star":        {minimal + "match: [{source: github, kinds: ['a.*']}]\n", minimal + "match: [{source: github, kinds: [a.b]}]\n", true},
		"kind_bare_under_star":          {minimal + "match: [{source: github, kinds: ['a.*']}]\n", minimal + "match: [{source: github, kinds: [a]}]\n", true},
		"kind_action_under_bare":        {minimal + "match: [{source: github, kinds: [a]}]\n", minimal + "match: [{source: github, kinds: [a.b]}]\n", false},
		"child_without_match":           {full, strings.Replace(minimal, "task: go", "task: other", 1) + "mode: hard\nenforcers: {dlp: {module: 'dlp@sha256:" + zeros64 + "', mode: hard, params: {level: '3'}}}\n", false}, // another rootfs
		"deliver_less_raises_floor":     {head + "match: [{source: github, kinds: [issue_comment.created]}]\nsession: {agent: codex, task: go}\n", head + "match: [{source: github, kinds: [issue_comment.created]}]\nsession: {agent: codex, task: go, deliver: [/comment/body]}\n", false},
		"deliver_default_written":       {head + "match: [{source: github, kinds: [issue_comment.created]}]\nsession: {agent: codex, task: go}\n", head + "match: [{source: github, kinds: [issue_comment.created]}]\nsession: {agent: codex, task: go, deliver: [/comment/body, /issue/body, /issue/title]}\n", true},
		"deliver_of_a_child_smaller":    {head + "match: [{source: github, kinds: [issue_comment.created]}]\nsession: {agent: codex, task: go}\n", head + "session: {agent: codex, task: go, deliver: [/comment/body]}\n", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, why := parse(t, c.a).Covers(parse(t, c.b))
			if got != c.want {
				t.Errorf("covers = %v (%s), want %v", got, why, c.want)
			}
			if got == (why != "") {
				t.Errorf("covers = %v with reason %q", got, why)
			}
		})
	}
}

func TestMostSpecific(t *testing.T) {
	wide, narrow := minimal+"egress: [{host: '*.a.test'}]\n", minimal+"egress: [{host: b.a.test}]\n"
	other := minimal + "egress: [{host: c.test}]\n"
	cases := map[string]struct {
		src  []string
		want int
	}{
		"one":                 {[]string{wide}, 0},
		"narrower":            {[]string{wide, narrow}, 1},
		"narrower_first":      {[]string{narrow, wide}, 0},
		"incomparable":        {[]string{narrow, other}, -1},
		"priority":            {[]string{narrow, other + "priority: 1\n"}, 1},
		"priority_tie":        {[]string{narrow + "priority: 1\n", other + "priority: 1\n"}, -1},
		"priority_is_no_wall": {[]string{wide + "priority: 9\n", narrow}, 1},
		"equal":               {[]string{wide, wide}, -1},
		"equal_by_priority":   {[]string{wide, wide + "priority: 1\n"}, 0}, // the lower one is covered by the higher
		"chain":               {[]string{wide, minimal + "egress: [{host: '**.a.test'}]\n", narrow}, 2},
		"diamond":             {[]string{wide, narrow, other}, -1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var bs []*bundle.Bundle
			for _, s := range c.src {
				bs = append(bs, parse(t, s))
			}
			if got := bundle.MostSpecific(bs); got != c.want {
				t.Errorf("most specific is %d, want %d", got, c.want)
			}
		})
	}
}

func TestWithModesLeavesTheOriginal(t *testing.T) {
	b := parse(t, full)
	c := b.WithModes(bundle.Shadow, map[string]bundle.Mode{"dlp": bundle.Shadow, "unknown": bundle.Hard})
	if b.Mode != bundle.Hard || b.Enforcers["dlp"].Mode != bundle.Hard {
		t.Error("the original changed")
	}
	if c.Mode != bundle.Shadow || c.Enforcers["dlp"].Mode != bundle.Shadow || len(c.Enforcers) != 1 {
		t.Errorf("modes are %s, %v", c.Mode, c.Enforcers)
	}
	if c.Digest() != b.Digest() {
		t.Error("modes are in the digest")
	}
}

var testNow = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
