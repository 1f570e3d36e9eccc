package bundle_test

import (
	"strings"
	"testing"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
)

// head is the least a bundle needs.
const head = `apiVersion: gatehouse/v1
kind: Bundle
name: b
accepts: member
`

const minimal = head + `session: {agent: codex, task: go}
`

func TestParseRefuses(t *testing.T) {
	cases := map[string]struct{ src, msg, hint string }{
		"unknown_key":            {minimal + "egres: []\n", `line 6: unknown key "egres" at the top level`, `did you mean "egress"?`},
		"unknown_nested":         {head + "session:\n  agent: codex\n  task: go\n  timeot: 4m\n", `line 8: unknown key "timeot" in session`, `"timeout"`},
		"unknown_in_rule":        {minimal + "egress:\n  - {host: a.test, method: [GET]}\n", `line 7: unknown key "method" in egress[0]`, `"methods"`},
		"unknown_in_where":       {minimal + "match:\n  - {source: github, kinds: [push], where: {x: {prefx: a}}}\n", `line 7: unknown key "prefx" in where`, `"prefix"`},
		"unknown_in_policy":      {minimal + "credentials: {compatibility: {reason: x, expires: 2027-01-01, until: x}}\n", `unknown key "until" in credentials.compatibility`, ""},
		"unknown_agent":          {head + "session: {agent: claude-cod, task: go}\n", `line 5: "claude-cod" is not known here`, `"claude-code"`},
		"second_document":        {minimal + "---\nname: c\n", "a second document", ""},
		"other_version":          {strings.Replace(minimal, "gatehouse/v1", "gatehouse/v2", 1), `apiVersion is "gatehouse/v2"`, "write gatehouse/v1"},
		"no_name":                {strings.Replace(minimal, "name: b\n", "", 1), "name is missing", ""},
		"name_form":              {strings.Replace(minimal, "name: b", "name: B_x", 1), `line 3: name: "B_x" is not well formed`, "fix-failing-ci"},
		"no_accepts":             {strings.Replace(minimal, "accepts: member\n", "", 1), "accepts is missing", ""},
		"accepts_credential":     {strings.Replace(minimal, "member", "credential", 1), `"credential" is not one of`, ""},
		"mode":                   {minimal + "mode: off\n", `line 6: mode: "off" is not one of shadow hard`, ""},
		"compatibility_bare":     {minimal + "credentials: compatibility\n", "compatibility needs a reason and an expiry", "reason"},
		"compatibility_empty":    {minimal + "credentials: {compatibility: {reason: x}}\n", "expires is missing", ""},
		"source":                 {minimal + "match: [{source: githib, kinds: [push]}]\n", `"githib" is not one of`, `"github"`},
		"no_kinds":               {minimal + "match: [{source: github}]\n", "match[0].kinds is missing", ""},
		"kind_form":              {minimal + "match: [{source: github, kinds: ['a.b.c']}]\n", "not well formed", "workflow_run.completed"},
		"where_null":             {minimal + "match: [{source: github, kinds: [push], where: {x: }}]\n", "where[x] is missing", ""},
		"where_empty":            {minimal + "match: [{source: github, kinds: [push], where: {x: []}}]\n", "an empty list matches nothing", ""},
		"where_empty_map":        {minimal + "match: [{source: github, kinds: [push], where: {x: {}}}]\n", "the condition is empty", ""},
		"where_twice":            {minimal + "match: [{source: github, kinds: [push], where: {x: a, facts.x: b}}]\n", "written twice", ""},
		"where_min_above_max":    {minimal + "match: [{source: github, kinds: [push], where: {n: {min: 3, max: 2}}}]\n", "min is above max", ""},
		"where_name":             {minimal + "match: [{source: github, kinds: [push], where: {'a b': x}}]\n", "not well formed", ""},
		"agent_argv":             {head + "session: {agent: {command: {argv: []}}, task: go}\n", "argv is empty", ""},
		"task_missing":           {head + "session: {agent: codex}\n", "session.task is missing", ""},
		"task_function":          {head + "session: {agent: codex, task: '{{ upper x }}'}\n", "{{ upper x }} is not a name", "no functions"},
		"task_unclosed":          {head + "session: {agent: codex, task: '{{ run_id'}\n", "{{ without }}", ""},
		"task_c1":                {head + "session: {agent: codex, task: \"a\\x9bb\"}\n", "cannot be written out plainly", ""},
		"task_control":           {head + "session: {agent: codex, task: \"a\\u001bb\"}\n", "control characters", ""},
		"rootfs_tag":             {head + "session: {agent: codex, task: go, rootfs: {oci: 'image:latest'}}\n", "names no digest", "moved"},
		"rootfs_relative":        {head + "session: {agent: codex, task: go, rootfs: {dir: ../x}}\n", "not a clean absolute path", ""},
		"timeout_long":           {head + "session: {agent: codex, task: go, timeout: 25h}\n", "longer than 24h", ""},
		"timeout_form":           {head + "session: {agent: codex, task: go, timeout: soon}\n", `"soon" is not a duration`, "45m"},
		"quota_form":             {head + "session: {agent: codex, task: go, workspace: {quota: 10GB}}\n", `"10GB" is not a size`, "10GiB"},
		"cache_write":            {head + "session: {agent: codex, task: go, caches: [{name: npm, path: /c, mode: write}]}\n", `"write" is not one of read`, ""},
		"deliver_form":           {head + "session: {agent: codex, task: go, deliver: [comment.body]}\n", "not well formed", "/comment/body"},
		"egress_nothing":         {minimal + "egress: [{methods: [GET]}]\n", "not exactly one of set, host and tcp", ""},
		"egress_two":             {minimal + "egress: [{host: a.test, tcp: b.test}]\n", "not exactly one of set, host and tcp", ""},
		"egress_set_more":        {minimal + "egress: [{set: npm, methods: [POST]}]\n", "writes something beside set", ""},
		"EG-101_star":            {minimal + "egress: [{host: '*'}]\n", "wildcard", ""},
		"EG-101_tld":             {minimal + "egress: [{host: '*.com'}]\n", "at least two labels", ""},
		"EG-101_inner_star":      {minimal + "egress: [{host: 'a.*.test'}]\n", "first label", ""},
		"EG-14_newline":          {minimal + "egress: [{host: \"a.test\\nb.test\"}]\n", "host", ""},
		"EG-54_trace":            {minimal + "egress: [{host: a.test, methods: [TRACE]}]\n", "not well formed", "never allowed"},
		"EG-55_lower_method":     {minimal + "egress: [{host: a.test, methods: [get]}]\n", "not well formed", ""},
		"EG-56_dots":             {minimal + "egress: [{host: a.test, paths: ['/a/../b']}]\n", "not well formed", "dot segments"},
		"EG-58_star_inside":      {minimal + "egress: [{host: a.test, paths: ['/v1**']}]\n", "not well formed", ""},
		"EG-66_credential_http":  {minimal + "egress: [{host: a.test, schemes: [http], connection: c}]\n", "credential on plain http", ""},
		"credential_wildcard":    {minimal + "egress: [{host: '*.a.test', connection: c}]\n", "credential to a wildcard", ""},
		"blind_credential":       {minimal + "egress: [{host: a.test, tls: passthrough, connection: c}]\n", "blind and carries a credential", ""},
		"blind_methods":          {minimal + "egress: [{tcp: a.test, ports: [5432], methods: [GET]}]\n", "blind and names", ""},
		"tcp_no_ports":           {minimal + "egress: [{tcp: a.test}]\n", "has tcp and no ports", ""},
		"env_alone":              {minimal + "egress: [{host: a.test, env: TOKEN}]\n", "env or uses and no connection", ""},
		"empty_list":             {minimal + "egress: [{host: a.test, methods: []}]\n", "egress.methods is an empty list", ""},
		"address_host_bits":      {minimal + "egress: [{host: a.test, addresses: [10.0.0.1/8]}]\n", "not an exact prefix", "first address"},
		"EG-22_address_loopback": {minimal + "egress: [{host: a.test, addresses: [127.0.0.0/8]}]\n", "loopback", ""},
		"port_zero":              {minimal + "egress: [{host: a.test, ports: [0]}]\n", "less than 1", ""},
		"git_repository":         {minimal + "git: {repository: acme}\n", "neither session nor owner/name", ""},
		"git_map_form":           {minimal + "git: {repository: {by: project.id, map: {'1': acme}}}\n", "not owner/name", ""},
		"sibling_write":          {minimal + "git: {repository: session, siblings: [{repository: a/b, access: write}]}\n", `"write" is not one of read`, ""},
		"ref_short":              {minimal + "git: {repository: session, push: {refs: [main]}}\n", "not well formed", "refs/heads/"},
		"ref_part_star":          {minimal + "git: {repository: session, push: {refs: ['refs/heads/a*']}}\n", "not well formed", ""},
		"ref_part_entity":        {minimal + "git: {repository: session, push: {refs: ['refs/heads/x-{entity}']}}\n", "not well formed", ""},
		"ref_dots":               {minimal + "git: {repository: session, push: {refs: ['refs/heads/a..b']}}\n", "not well formed", ""},
		"deny_path_slash":        {minimal + "git: {repository: session, push: {refs: ['refs/heads/*'], deny_paths: [/etc]}}\n", "not well formed", "leading slash"},
		"model_no_cap":           {minimal + "models: [{connection: c, allow: [m]}]\n", "max_output_tokens is missing", ""},
		"money":                  {minimal + "spend: {limit: 5}\n", `"5" is not an amount`, "5.00 USD"},
		"rate":                   {minimal + "per_entity: 3\n", `"3" is not a rate`, "3/24h"},
		"module_tag":             {minimal + "enforcers: {x: {module: 'dlp:latest'}}\n", "not well formed", "sha256"},
		"operation_form":         {minimal + "operations: [comment]\n", "not well formed", "scm.pr.create"},
		"not_yaml":               {"a: b: c", "mapping values", ""},
		"empty":                  {"", "EOF", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Parse([]byte(c.src))
			if err == nil {
				t.Fatal("accepted")
			}
			if problem.CodeOf(err) != problem.ConfigInvalid {
				t.Errorf("code %s", problem.CodeOf(err))
			}
			if !strings.Contains(err.Error(), c.msg) {
				t.Errorf("message %q lacks %q", err, c.msg)
			}
			if !strings.Contains(problem.HintOf(err), c.hint) {
				t.Errorf("hint %q lacks %q", problem.HintOf(err), c.hint)
			}
		})
	}
}

func TestParseNormalizes(t *testing.T) {
	same := map[string][2]string{
		"defaults_written_out": {
			minimal,
			minimal + "mode: shadow\ncredentials: credential_free\nper_entity: 3/1d\n",
		},
		"rule_defaults": {
			minimal + "egress: [{host: a.test}]\n",
			minimal + "egress: [{host: A.test., ports: [443], schemes: [https], methods: [HEAD, GET], paths: [/**], up: 1024KiB, down: 268435456, idle: 600s}]\n",
		},
		"fact_prefix": {
			minimal + "match: [{source: github, kinds: [b.c, a.b], where: {facts.fork: false}}]\n",
			minimal + "match: [{source: github, kinds: [a.b, b.c], where: {fork: ['false']}}]\n",
		},
		"modes_stand_outside": {
			minimal + "enforcers: {x: {module: 'x@sha256:" + strings.Repeat("0", 64) + "', mode: hard}}\nmode: hard\n",
			minimal + "enforcers: {x: {module: 'x@sha256:" + strings.Repeat("0", 64) + "'}}\n",
		},
		"order_of_words": {
			minimal + "operations: [scm.comment, scm.pr.create]\n",
			minimal + "operations: [scm.pr.create, scm.comment]\n",
		},
		"empty_list": {minimal + "operations: []\nenforcers: {}\n", minimal},
		"money_and_time": {
			minimal + "spend: {limit: 5 USD}\n",
			minimal + "spend: {limit: 5.000 USD}\n",
		},
		"date_is_the_end_of_its_day": {
			minimal + "shadow_outsiders: {reason: x, expires: 2027-01-01}\n",
			minimal + "shadow_outsiders: {reason: x, expires: 2027-01-02T01:00:00+01:00}\n",
		},
	}
	for name, c := range same {
		t.Run(name, func(t *testing.T) {
			a, b := parse(t, c[0]), parse(t, c[1])
			if a.Digest() != b.Digest() {
				t.Errorf("two digests:\n%s\n%s", a.Canonical(), b.Canonical())
			}
			if again := parse(t, string(a.Canonical())); again.Digest() != a.Digest() {
				t.Errorf("canonical bytes read back differently:\n%s\n%s", a.Canonical(), again.Canonical())
			}
		})
	}
	t.Run("empty_deliver_is_not_default", func(t *testing.T) {
		a := parse(t, minimal)
		b := parse(t, head+"session: {agent: codex, task: go, deliver: []}\n")
		if a.Digest() == b.Digest() || parse(t, string(b.Canonical())).Digest() != b.Digest() {
			t.Errorf("digests are wrong:\n%s\n%s", a.Canonical(), b.Canonical())
		}
	})
	t.Run("order_of_rules_counts", func(t *testing.T) {
		// Rule ids in receipts are indexes, so another order is another version.
		a := parse(t, minimal+"egress: [{host: a.test}, {host: b.test}]\n")
		b := parse(t, minimal+"egress: [{host: b.test}, {host: a.test}]\n")
		if a.Digest() == b.Digest() {
			t.Error("one digest for two orders")
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(string(sample(f)))
	f.Add(minimal + "credentials: {compatibility: {reason: x, expires: 2027-01-01}}\nself: {max: 1}\n")
	f.Add(minimal + "match: [{source: cron, kinds: [slot], where: {n: {min: 1, max: 2, not: [3], prefix: a, glob: '*'}}}]\n")
	f.Add(minimal + "git: {repository: {by: project.id, map: {'450': acme/app}}}\negress: [{tcp: a.test, ports: [1]}]\n")
	f.Fuzz(func(t *testing.T, src string) {
		b, err := bundle.Parse([]byte(src))
		if err != nil {
			if problem.CodeOf(err) != problem.ConfigInvalid {
				t.Fatalf("code %s for %q", problem.CodeOf(err), src)
			}
			return
		}
		again, err := bundle.Parse(b.Canonical())
		if err != nil {
			t.Fatalf("canonical bytes do not parse: %v\n%s", err, b.Canonical())
		}
		if again.Digest() != b.Digest() {
			t.Fatalf("canonical bytes have another digest:\n%s\n%s", b.Canonical(), again.Canonical())
		}
		if ok, why := b.Covers(again); !ok {
			t.Fatalf("a bundle does not cover itself: %s", why)
		}
	})
}
