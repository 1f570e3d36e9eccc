package bundle_test

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
)

const npmSet = `apiVersion: gatehouse/v1
kind: EgressSet
name: npm
hosts: [registry.example.com, "*.mirror.example.com"]
encoded_slash: true
`

var sets = bundle.Sets(fstest.MapFS{
	"npm.yaml":    {Data: []byte(npmSet)},
	"other.yaml":  {Data: []byte(npmSet)}, // says name: npm
	"broken.yaml": {Data: []byte("hosts: 3")},
	"many.yaml":   {Data: []byte(strings.NewReplacer("npm", "many", "registry.example.com", "a.test, b.test, c.test", "encoded_slash: true", "methods: [GET]").Replace(npmSet))},
	"wide.yaml":   {Data: []byte(strings.NewReplacer("npm", "wide", "registry.example.com", "'*.co.uk'").Replace(npmSet))},
})

func node(t testing.TB) bundle.LintContext {
	return bundle.LintContext{
		Endpoints: map[string]string{"main": "github", "nightly": "cron"},
		Connections: map[string]bundle.Connection{
			"acme-packages": {Kind: "http", Host: "packages.example.com"}, "anthropic-main": {Kind: "model"}, "langfuse-main": {Kind: "telemetry"},
			"forge": {Kind: "scm", Host: "git.test", API: "api.test"},
		},
		Providers:    []string{"local"},
		Repositories: map[string]string{"1296269": "acme/shop", "7": "acme/docs"},
		Bundles:      map[string]*bundle.Bundle{},
		Sets:         sets,
		SetNames:     []string{"broken", "many", "npm"},
		Modules:      func(m string) bool { return m == "acme-dlp@sha256:"+zeros64 },
		Internal:     []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		Private:      func(path string) bool { return path == "/var/lib/gatehouse" },
		Now:          testNow,
		Kinds: func(source, kind string) (bundle.Vocabulary, bool) {
			if source != "github" || kind != "workflow_run" {
				return bundle.Vocabulary{}, false
			}
			return bundle.Vocabulary{
				Facts:    []string{"conclusion", "fork", "repository.id", "run_id", "pull_requests"},
				Text:     []string{"/repository/full_name", "/repository/name", "/workflow_run/head_branch", "/workflow_run/name", "/commits/*/message"},
				Passages: []string{"/repository/full_name", "/workflow_run/head_branch", "/workflow_run/name"},
			}, true
		},
	}
}

func TestLint(t *testing.T) {
	const started = head + "match: [{source: github, endpoint: main, kinds: [workflow_run.completed]}]\n"
	session := func(s string) string { return started + "session: {agent: codex, task: go" + s + "}\n" }
	with := func(s string) string { return session("") + s + "\n" }
	cases := map[string]struct {
		src, code, pointer, msg, hint string
		warning                       bool
	}{
		"WA-03_template_text":     {src: started + "session: {agent: codex, task: 'see {{ workflow_run.head_branch }}'}\n", code: bundle.LintTemplateNamesText, pointer: "/session/task", msg: "/workflow_run/head_branch"},
		"WA-03_template_text_end": {src: started + "session: {agent: codex, task: '{{ head_branch }}'}\n", code: bundle.LintTemplateNamesText, pointer: "/session/task", msg: "/workflow_run/head_branch"},
		"WA-03_full_name":         {src: started + "session: {agent: codex, task: '{{ repository.full_name }}'}\n", code: bundle.LintTemplateNamesText, pointer: "/session/task", msg: "/repository/full_name"},
		"WA-03_text_prefix":       {src: started + "session: {agent: codex, task: '{{ text.name }}'}\n", code: bundle.LintTemplateNamesText, pointer: "/session/task", msg: "names text"},
		"WA-03_where_text":        {src: head + "match: [{source: github, kinds: [workflow_run.completed], where: {workflow_run.name: CI}}]\nsession: {agent: codex, task: go}\n", code: bundle.LintTemplateNamesText, pointer: "/match/0/where/workflow_run.name", msg: "/workflow_run/name"},
		"WA-03_concurrency_text":  {src: session(", concurrency: {key: workflow_run.name}"), code: bundle.LintTemplateNamesText, pointer: "/session/concurrency/key", msg: "/workflow_run/name"},
		"unknown_fact":            {src: started + "session: {agent: codex, task: '{{ run_idd }}'}\n", code: bundle.LintUnknownFact, pointer: "/session/task", hint: `"run_id"`},
		"unknown_kind":            {src: head + "match: [{source: github, kinds: [workflow_rum.completed]}]\nsession: {agent: codex, task: go}\n", code: bundle.LintUnknownKind, pointer: "/match/0/kinds/0", hint: `"workflow_run"`},
		"ping_never_starts":       {src: head + "match: [{source: github, kinds: [ping]}]\nsession: {agent: codex, task: go}\n", code: bundle.LintUnknownKind, pointer: "/match/0/kinds/0"},
		"unknown_endpoint":        {src: head + "match: [{source: github, endpoint: mian, kinds: [workflow_run.completed]}]\nsession: {agent: codex, task: go}\n", code: bundle.LintUnknownEndpoint, pointer: "/match/0/endpoint", hint: `"main"`},
		"endpoint_of_another":     {src: head + "match: [{source: github, endpoint: nightly, kinds: [workflow_run.completed]}]\nsession: {agent: codex, task: go}\n", code: bundle.LintUnknownEndpoint, pointer: "/match/0/endpoint"},
		"unknown_provider":        {src: session(", provider: oci"), code: bundle.LintUnknownProvider, pointer: "/session/provider"},
		"never_starts":            {src: minimal, code: bundle.LintNeverStarts, pointer: "/match", warning: true},
		"accepts_below_member":    {src: strings.Replace(with(""), "member", "outsider", 1), code: bundle.LintAcceptsBelowMember, pointer: "/accepts", warning: true},
		"shadow_outsiders_over":   {src: with("shadow_outsiders: {reason: x, expires: 2026-01-01}"), code: bundle.LintExpired, pointer: "/shadow_outsiders/expires"},
		"compatibility_over":      {src: with("credentials: {compatibility: {reason: x, expires: 2026-01-01}}"), code: bundle.LintExpired, pointer: "/credentials/compatibility/expires"},
		"deliver_unknown":         {src: session(", deliver: [/workflow_run/nam]"), code: bundle.LintDeliverUnknown, pointer: "/session/deliver/0", hint: `"/workflow_run/name"`, warning: true},
		"checkout_without_git":    {src: session(", workspace: {checkout: true}"), code: bundle.LintCheckoutWithoutGit, pointer: "/session/workspace/checkout"},
		"on_start_not_listed":     {src: session(", on_start: [scm.comment]"), code: bundle.LintOnEndNotListed, pointer: "/session/on_start/0"},
		"on_end_not_listed":       {src: session(", on_end: [scm.comment]"), code: bundle.LintOnEndNotListed, pointer: "/session/on_end/0"},
		"unknown_child":           {src: session(", children: {bundles: [lint-fix]}"), code: bundle.LintUnknownBundle, pointer: "/session/children/bundles/0"},
		"child_not_covered":       {src: session(", children: {bundles: [wide]}"), code: bundle.LintBundleNotCovered, pointer: "/session/children/bundles/0", msg: "egress[0]"},
		"SB-05_private_mount":     {src: session(", mounts: [{source: /var/lib/gatehouse, path: /state}]"), code: bundle.LintPrivateMount, pointer: "/session/mounts/0"},
		"child_shares_mount":      {src: session(", children: {bundles: [writer]}, mounts: [{source: /srv, path: /srv, mode: write}]"), code: bundle.LintSharedWritableMount, pointer: "/session/children/bundles/0"},
		"unknown_set":             {src: with("egress: [{set: pypi}]"), code: bundle.LintUnknownSet, pointer: "/egress/0/set", hint: "set add"},
		"broken_set":              {src: with("egress: [{set: broken}]"), code: bundle.LintUnknownSet, pointer: "/egress/0/set"},
		"misnamed_set":            {src: with("egress: [{set: other}]"), code: bundle.LintUnknownSet, pointer: "/egress/0/set", hint: "named after"},
		"set_public_suffix":       {src: with("egress: [{set: wide}]"), code: bundle.LintWildcardPublicSuffix, pointer: "/egress/0/set/host"},
		"public_suffix":           {src: with("egress: [{host: '*.co.uk'}]"), code: bundle.LintWildcardPublicSuffix, pointer: "/egress/0/host"},
		"public_suffix_private":   {src: with("egress: [{host: '**.github.io'}]"), code: bundle.LintWildcardPublicSuffix, pointer: "/egress/0/host"},
		"address_not_internal":    {src: with("egress: [{host: a.test, addresses: [10.2.0.0/16]}]"), code: bundle.LintAddressNotInternal, pointer: "/egress/0/addresses/0"},
		"address_too_wide":        {src: with("egress: [{host: a.test, addresses: [10.0.0.0/8]}]"), code: bundle.LintAddressNotInternal, pointer: "/egress/0/addresses/0"},
		"set_differs":             {src: with("egress: [{set: npm}]\nsets: {npm: {hosts: [held.test]}}"), code: bundle.LintSetDiffers, pointer: "/sets/npm", msg: "the node's set npm adds registry.example.com", hint: "remove sets", warning: true},
		"prefer_set":              {src: with("egress: [{host: z.test}, {host: a.test, methods: [GET]}, {host: x.mirror.example.com, methods: [GET], paths: ['/x/**']}, {host: c.test, methods: [GET]}]"), code: bundle.LintPreferSet, pointer: "/egress/1", msg: "3 hosts that are listed one by one are in the set many", hint: "{set: many}", warning: true},
		"unknown_connection":      {src: with("egress: [{host: a.test, connection: acme-package}]"), code: bundle.LintUnknownConnection, pointer: "/egress/0/connection", hint: `"acme-packages"`},
		"connection_kind":         {src: with("egress: [{host: a.test, connection: anthropic-main}]"), code: bundle.LintConnectionKind, pointer: "/egress/0/connection"},
		"connection_host":         {src: with("egress: [{host: a.test, connection: acme-packages}]"), code: bundle.LintConnectionHost, pointer: "/egress/0/host"},
		"connection_host_scm":     {src: with("egress: [{host: a.test, connection: forge}, {host: api.test, connection: forge}, {host: git.test, connection: forge}]"), code: bundle.LintConnectionHost, pointer: "/egress/0/host"},
		"model_connection":        {src: with("models: [{connection: langfuse-main, allow: [x], max_output_tokens: 1}]\nspend: {limit: 1 USD}"), code: bundle.LintConnectionKind, pointer: "/models/0/connection"},
		"models_without_spend":    {src: with("models: [{connection: anthropic-main, allow: [x], max_output_tokens: 1}]"), code: bundle.LintModelsWithoutSpend, pointer: "/models"},
		"telemetry_connection":    {src: with("telemetry: [nobody]"), code: bundle.LintUnknownConnection, pointer: "/telemetry/0"},
		"unknown_module":          {src: with("enforcers: {x: {module: 'x@sha256:" + zeros64 + "'}}"), code: bundle.LintUnknownModule, pointer: "/enforcers/x/module"},
		"builtin_name":            {src: with("enforcers: {git: {module: 'acme-dlp@sha256:" + zeros64 + "'}}"), code: bundle.LintBuiltinName, pointer: "/enforcers/git"},
		"repository_not_listed":   {src: with("git: {repository: acme/none}"), code: bundle.LintRepositoryNotListed, pointer: "/git/repository"},
		"map_not_listed":          {src: with("git: {repository: {by: run_id, map: {'1': acme/none}}}"), code: bundle.LintRepositoryNotListed, pointer: "/git/repository/map/1"},
		"sibling_not_listed":      {src: with("git: {repository: session, siblings: [{repository: acme/none, access: read}]}"), code: bundle.LintRepositoryNotListed, pointer: "/git/siblings/0/repository"},
		"map_by_text":             {src: with("git: {repository: {by: workflow_run.name, map: {'1': acme/shop}}}"), code: bundle.LintTemplateNamesText, pointer: "/git/repository/by"},
		"entity_missing":          {src: head + "match: [{source: cron, endpoint: nightly, kinds: [audit]}]\nsession: {agent: codex, task: go}\ngit: {repository: acme/shop, push: {refs: ['refs/heads/{entity}/*']}}\n", code: bundle.LintEntityWithoutIdentity, pointer: "/git/push/refs/0"},
	}
	covered := map[string]bool{}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := parse(t, c.src)
			n := node(t)
			n.Bundles["wide"] = parse(t, strings.Replace(minimal, "name: b", "name: wide", 1)+"egress: [{host: z.test}]\n")
			n.Bundles["writer"] = parse(t, head+"session: {agent: codex, task: go, mounts: [{source: /srv, path: /srv, mode: write}]}\n")
			found := bundle.Lint(b, n)
			i := slices.IndexFunc(found, func(p bundle.Problem) bool { return p.Code == c.code && p.Pointer == c.pointer })
			if i < 0 {
				t.Fatalf("no %s at %s in %v", c.code, c.pointer, found)
			}
			p := found[i]
			covered[p.Code] = true
			if !strings.Contains(p.Msg, c.msg) || !strings.Contains(p.Hint, c.hint) || p.Warning != c.warning || p.Line == 0 {
				t.Errorf("problem is %+v", p)
			}
			if len(found) != 1 {
				t.Errorf("%d findings: %v", len(found), found)
			}
			if bundle.Blocks(found) == c.warning {
				t.Errorf("blocks is %v", bundle.Blocks(found))
			}
		})
	}
	t.Run("session_repository_without_fact", func(t *testing.T) {
		n := node(t)
		n.Kinds = func(string, string) (bundle.Vocabulary, bool) { return bundle.Vocabulary{}, true }
		found := bundle.Lint(parse(t, with("git: {repository: session}")), n)
		if len(found) != 1 || found[0].Code != bundle.LintNoRepositoryFact {
			t.Errorf("found %v", found)
		}
		covered[bundle.LintNoRepositoryFact] = true
	})
	// A first session that fails for want of a connection is said before it starts.
	t.Run("checkout_without_scm", func(t *testing.T) {
		b, n := parse(t, session(", workspace: {checkout: true}")+"git: {repository: session}\n"), node(t)
		if found := bundle.Lint(b, n); len(found) != 0 {
			t.Errorf("with a connection: %v", found)
		}
		delete(n.Connections, "forge")
		if found := bundle.Lint(b, n); len(found) != 1 || found[0].Code != bundle.LintCheckoutWithoutSCM || found[0].Pointer != "/session/workspace/checkout" || bundle.Blocks(found) {
			t.Errorf("without one: %v", found)
		}
		covered[bundle.LintCheckoutWithoutSCM] = true
	})
	t.Run("every_code", func(t *testing.T) {
		for _, code := range codes(t) {
			if !covered[code] {
				t.Errorf("no case finds %s", code)
			}
		}
	})
	t.Run("sample_is_clean", func(t *testing.T) {
		n := node(t)
		n.Bundles["lint-fix"] = parse(t, head+"session: {agent: codex, task: go, timeout: 5m, concurrency: {key: repository.id}}\nenforcers: {acme-dlp: {module: 'acme-dlp@sha256:"+zeros64+"'}}\n")
		if found := bundle.Lint(parse(t, string(sample(t))), n); len(found) != 0 {
			t.Errorf("found %v", found)
		}
	})
	t.Run("one_finding_for_two_triggers", func(t *testing.T) {
		src := head + "match: [{source: github, kinds: [workflow_run.completed]}, {source: github, kinds: [workflow_run.requested]}]\nsession: {agent: codex, task: '{{ head_branch }}'}\n"
		if found := bundle.Lint(parse(t, src), node(t)); len(found) != 1 {
			t.Errorf("found %v", found)
		}
	})
}

// codes reads the closed list out of lint.go.
func codes(t *testing.T) []string {
	src, err := os.ReadFile("lint.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(src)) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasPrefix(f[0], "Lint") && f[1] == "=" && f[3] == "//" {
			out = append(out, strings.Trim(f[2], `"`))
		}
	}
	if len(out) < 20 {
		t.Fatalf("only %d codes read", len(out))
	}
	return out
}

func TestSets(t *testing.T) {
	cases := map[string]struct{ src, msg string }{
		"good":          {src: npmSet},
		"unknown_key":   {npmSet + "host: [a]\n", `unknown key "host"`},
		"no_hosts":      {strings.Replace(npmSet, "registry.example.com, \"*.mirror.example.com\"", "", 1), "hosts"},
		"bad_host":      {strings.Replace(npmSet, "registry.example.com", "'*'", 1), "hosts[0]"},
		"bad_method":    {npmSet + "methods: [TRACE]\n", "methods"},
		"loopback":      {npmSet + "addresses: [127.0.0.0/8]\n", "loopback"},
		"other_kind":    {strings.Replace(npmSet, "EgressSet", "Bundle", 1), "kind"},
		"other_version": {strings.Replace(npmSet, "v1", "v2", 1), "apiVersion"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.ParseSet([]byte(c.src))
			if c.msg == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if problem.CodeOf(err) != problem.ConfigInvalid || !strings.Contains(err.Error(), c.msg) {
				t.Errorf("error %v lacks %q", err, c.msg)
			}
		})
	}
	t.Run("file_names", func(t *testing.T) {
		set, err := bundle.ParseSet([]byte(npmSet))
		if err != nil {
			t.Fatal(err)
		}
		file := func(src string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(src)} }
		edited := strings.Replace(npmSet, "registry.", "other.", 1)
		for name, c := range map[string]struct {
			dir fstest.MapFS
			msg string
		}{
			"by_hand":        {fstest.MapFS{"npm.yaml": file(npmSet)}, ""},
			"with_digest":    {fstest.MapFS{set.File(): file(npmSet)}, ""},
			"edited":         {fstest.MapFS{set.File(): file(edited)}, "not what its name says"},
			"two":            {fstest.MapFS{set.File(): file(npmSet), "npm.yaml": file(npmSet)}, "2 egress sets"},
			"none":           {fstest.MapFS{"npm2.yaml": file(npmSet)}, "no egress set npm"},
			"another_inside": {fstest.MapFS{"npm.yaml": file(strings.Replace(npmSet, "name: npm", "name: other", 1))}, "says name: other"},
		} {
			t.Run(name, func(t *testing.T) {
				got, err := bundle.Sets(c.dir).Set("npm")
				switch {
				case c.msg == "" && (err != nil || got.Digest() != set.Digest()):
					t.Errorf("%v", err)
				case c.msg != "" && (err == nil || !strings.Contains(err.Error(), c.msg)):
					t.Errorf("error %v lacks %q", err, c.msg)
				}
			})
		}
	})
	t.Run("name_is_no_path", func(t *testing.T) {
		if _, err := sets.Set("../npm"); problem.CodeOf(err) != problem.ConfigInvalid {
			t.Errorf("error %v", err)
		}
	})
	t.Run("digest_follows_the_rules", func(t *testing.T) {
		digest := func(src string) [32]byte {
			s, err := bundle.ParseSet([]byte(src))
			if err != nil {
				t.Fatal(err)
			}
			return s.Digest()
		}
		if digest(npmSet) != digest(npmSet+"methods: [HEAD, GET]\n") {
			t.Error("a default written out has another digest")
		}
		if digest(npmSet) == digest(npmSet+"methods: [GET, POST]\n") {
			t.Error("another method has the same digest")
		}
	})
}

func FuzzParseSet(f *testing.F) {
	f.Add(npmSet)
	f.Fuzz(func(t *testing.T, src string) {
		if _, err := bundle.ParseSet([]byte(src)); err != nil && problem.CodeOf(err) != problem.ConfigInvalid {
			t.Fatalf("code %s for %q", problem.CodeOf(err), src)
		}
	})
}
