package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gatehouse.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	t.Setenv("GH_SECRET", "s3cret-canary")
	t.Setenv("GH_EMPTY", "")
	github := "endpoints: [{name: main, source: github, secrets: [\"${env:%s}\"]}]\n"
	with := func(env string) string { return strings.Replace(github, "%s", env, 1) }
	asker := func(endpoint, connection string) string {
		return "repositories: [{id: \"1\", name: acme/shop}]\nconnections: [{name: gh, kind: scm, provider: github, " + connection + "}]\n" +
			"endpoints: [{name: main, source: github, secrets: [\"${env:GH_SECRET}\"], " + endpoint + "}]\n"
	}
	cases := map[string]struct{ src, msg, hint string }{
		"empty_is_default": {src: "{}"},
		"github":           {src: with("GH_SECRET")},
		"unknown_key":      {"lisen: {}", `unknown key "lisen"`, `did you mean "listen"?`},
		"unset_secret":     {with("GH_NOPE"), "environment variable GH_NOPE is not set", "set it"},
		"empty_secret":     {with("GH_EMPTY"), "is empty", "accept what anyone signs"},
		"literal_secret":   {"endpoints: [{name: main, source: github, secrets: [abc]}]", "never as a literal", "${env:NAME}"},
		"no_secret":        {"endpoints: [{name: main, source: github}]", "no secrets", "would accept anyone"},
		"bad_source":       {"endpoints: [{name: main, source: gihub, secrets: [\"${env:GH_SECRET}\"]}]", `endpoints[0].source: "gihub" is not one of`, `did you mean "github"?`},
		"bad_name":         {"endpoints: [{name: Main.1, source: cron, schedule: x}]", "endpoints[0].name: only a-z", ""},
		"same_name_twice":  {"repositories: [{id: \"1\", name: a/b}, {id: \"1\", name: c/d}]", "repositories: two entries", ""},
		"cron_no_schedule": {"endpoints: [{name: nightly, source: cron}]", "needs a schedule", "0 3 * * *"},
		"operator_public":  {"listen: {operator: 0.0.0.0:8081}", "not a loopback address and tls is not set", "set tls"},
		"private_public":   {"listen: {private: 0.0.0.0:9090}", "listen.private is not a loopback", ""},
		"retain_short":     {"retain: 3d", "shorter than 7d", ""},
		"checkpoint_plain": {"checkpoints: [http://audit.example.com/x]", "checkpoints[0] is neither a folder nor an https URL", ""},
		"checkpoint_user":  {"checkpoints: [keep, \"https://a:b@audit.example.com/x\"]", "checkpoints[1] is neither", ""},
		"uids_system":      {"sandbox: {uids: 0-10}", "is not a range of uids", "610000-610999"},
		"unlimited_typo":   {"sandbox: {unlimited: acepted}", "is not one of", `did you mean "accepted"?`},
		"missing_file":     {"", "no such file", "gatehouse init"},
		"webhook": {src: "endpoints: [{name: shop, source: webhook, secrets: [\"${env:GH_SECRET}\"], hmac: {header: X-Sig, signed: \"{ts}.{body}\", time: X-T}, kind: {path: /type, values: {a.b: ab}}, " +
			"declare: [{name: id, path: /id, form: uuid}], entity: id}]"},
		"webhook_no_proof":   {"endpoints: [{name: shop, source: webhook, secrets: [\"${env:GH_SECRET}\"]}]", "needs hmac or token", "hmac: {header"},
		"webhook_two_proofs": {"endpoints: [{name: shop, source: webhook, secrets: [\"${env:GH_SECRET}\"], hmac: {header: X}, token: {}}]", "needs hmac or token", ""},
		"token_on_github":    {"endpoints: [{name: main, source: github, secrets: [\"${env:GH_SECRET}\"], token: {}}]", "only source webhook takes", ""},
		"declare_on_github":  {"endpoints: [{name: main, source: github, secrets: [\"${env:GH_SECRET}\"], declare: [{name: a, path: /a, form: uuid}]}]", "take id, kind, declare and entity", "own tables"},
		"declare_unknown":    {"endpoints: [{name: shop, source: webhook, secrets: [\"${env:GH_SECRET}\"], token: {}, declare: [{name: a, path: /a, form: text}]}]", "is not one of", ""},
		"trust_too_high":     {"endpoints: [{name: main, source: github, secrets: [\"${env:GH_SECRET}\"], trust: {bots: {\"1\": platform}}}]", "is not one of", ""},
		"trust_on_sentry":    {"endpoints: [{name: main, source: sentry, secrets: [\"${env:GH_SECRET}\"], trust: {bots: {\"1\": member}}}]", "only source github and linear take trust", ""},
		"hook":               {src: asker("connection: gh, hook: {repository: \"1\", id: 9}", "credential: \"${env:GH_SECRET}\"")},
		"hook_of_app":        {src: asker("connection: gh", "app: {id: 1, key: \"${env:GH_SECRET}\"}")},
		"hook_of_nobody":     {asker("hook: {repository: \"1\", id: 9}", "credential: \"${env:GH_SECRET}\""), "hook needs a connection", ""},
		"hook_unknown":       {asker("connection: github", "credential: \"${env:GH_SECRET}\""), `connection "github" is not an scm connection`, "under connections"},
		"hook_missing":       {asker("connection: gh", "credential: \"${env:GH_SECRET}\""), "needs to know the hook", "hook: {"},
		"hook_no_credential": {asker("connection: gh", "api: https://ghe.example.com/api/v3"), "takes app or credential", ""},
		"hook_two":           {asker("connection: gh, hook: {repository: \"1\", organization: acme, id: 9}", "credential: \"${env:GH_SECRET}\""), "of a repository or of an organization", ""},
		"hook_org_app":       {asker("connection: gh, hook: {organization: acme, id: 9}", "app: {id: 1, key: \"${env:GH_SECRET}\"}"), "read under a token", "with credential"},
		"hook_unlisted":      {asker("connection: gh, hook: {repository: \"2\", id: 9}", "credential: \"${env:GH_SECRET}\""), "not in repositories", ""},
		"hook_no_id":         {asker("connection: gh, hook: {repository: \"1\"}", "credential: \"${env:GH_SECRET}\""), "endpoints[0].hook.id", ""},
		"hook_on_sentry":     {"endpoints: [{name: e, source: sentry, secrets: [\"${env:GH_SECRET}\"], connection: gh}]", "only source github takes connection", ""},
		"store_not_open":     {"endpoints: [{name: main, source: github, secrets: [\"${secret:hook}\"]}]", "endpoints[0].secrets[0]: the secret store is not open here", "${env:NAME}"},
		"identity_in_store":  {"secrets: {identity: \"${secret:self}\"}", "secrets.identity: the secret store is not open here", ""},
		"secret_file_absent": {"endpoints: [{name: main, source: github, secrets: [\"${file:nope.key}\"]}]", "couldn't read the secret's file", "0600"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "none.yaml")
			if name != "missing_file" {
				path = write(t, c.src)
			}
			_, err := Load(path)
			if c.msg == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			if problem.CodeOf(err) != problem.ConfigInvalid || !strings.Contains(err.Error(), c.msg) {
				t.Errorf("got %v, want %q", err, c.msg)
			}
			if !strings.Contains(problem.HintOf(err), c.hint) {
				t.Errorf("hint %q lacks %q", problem.HintOf(err), c.hint)
			}
		})
	}
}

func TestSecretFileAndPaths(t *testing.T) {
	path := write(t, "state: st\ncheckpoints: [kept, /mnt/audit]\nendpoints: [{name: main, source: github, secrets: [\"${file:hook.key}\"]}]\n")
	dir := filepath.Dir(path)
	if err := os.WriteFile(filepath.Join(dir, "hook.key"), []byte("with-newline\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(c.Endpoints[0].Secrets[0].Value().Reveal()); got != "with-newline" {
		t.Errorf("secret %q", got)
	}
	if c.StateDir() != filepath.Join(dir, "st") {
		t.Errorf("state %s", c.StateDir())
	}
	if d := cmp.Diff([]string{filepath.Join(dir, "kept"), "/mnt/audit"}, c.CheckpointDirs()); d != "" {
		t.Error(d)
	}
	if time.Duration(c.Retain) != 90*24*time.Hour {
		t.Errorf("retain %v", time.Duration(c.Retain))
	}
}

// TestPrintShowsNoSecret is M-03's habit for configuration: what config print
// shows may be pasted into an issue.
func TestPrintShowsNoSecret(t *testing.T) {
	t.Setenv("GH_SECRET", "s3cret-canary")
	c, err := Load(write(t, "endpoints: [{name: main, source: github, secrets: [\"${env:GH_SECRET}\"]}]\n"+
		"connections: [{name: pkg, kind: http, host: packages.example.com, scheme: bearer, credential: \"${env:GH_SECRET}\"}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "s3cret-canary") {
		t.Error("the secret is printed")
	}
	if strings.Count(string(out), "${env:GH_SECRET}") != 2 {
		t.Errorf("the reference is lost:\n%s", out)
	}
	// What is printed is itself a valid file that means the same.
	again, err := Load(write(t, string(out)))
	if err != nil {
		t.Fatalf("printed file does not load: %v\n%s", err, out)
	}
	out2, _ := again.YAML()
	if string(out2) != string(out) {
		t.Errorf("print is not stable:\n%s\n---\n%s", out, out2)
	}
}

func TestSchemaKnowsEveryKey(t *testing.T) {
	b, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"listen", "public_url", "endpoints", "connections", "promotion", "internal_networks", "trusted_proxies", "retain"} {
		if !strings.Contains(string(b), `"`+key+`"`) {
			t.Errorf("schema lacks %s", key)
		}
	}
}

func TestSecretStore(t *testing.T) {
	t.Setenv("GH_IDENTITY", "AGE-KEY")
	path := write(t, `secrets: {file: kept/secrets.age, identity: "${env:GH_IDENTITY}"}
connections: [{name: pkg, kind: http, host: packages.example.com, scheme: bearer, credential: "${secret:pkg.token}"}]
`)
	c, err := LoadWith(path, func(c *Config, name string) (secret.Value, error) {
		if name != "pkg.token" || !c.Secrets.Identity.Value().Equal([]byte("AGE-KEY")) {
			t.Errorf("asked for %s under %q", name, c.Secrets.Identity.Value().Reveal())
		}
		return secret.FromString("s3cret-canary"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Connections[0].Credential.Value(); !got.Equal([]byte("s3cret-canary")) {
		t.Error("the store's value was not taken")
	}
	file := filepath.Join(filepath.Dir(path), "kept", "secrets.age")
	if c.SecretsFile() != file || !slices.Contains(c.Private(), file) {
		t.Errorf("file %s, private %v", c.SecretsFile(), c.Private())
	}
	_, err = LoadWith(path, func(*Config, string) (secret.Value, error) {
		return secret.Value{}, problem.New(problem.NotFound, "there is no secret pkg.token", "set it")
	})
	if problem.CodeOf(err) != problem.ConfigInvalid || problem.HintOf(err) != "set it" || !strings.Contains(err.Error(), "connections[0].credential") {
		t.Errorf("got %v, hint %q", err, problem.HintOf(err))
	}
}

// TestDistantProviders: what runs elsewhere is verified and has a credential, or
// the node does not start.
func TestDistantProviders(t *testing.T) {
	t.Setenv("GH_TOKEN", "s3cret-canary")
	const token = `token: "${env:GH_TOKEN}"`
	cases := map[string]struct{ text, names string }{
		"remote":              {`remote: {url: "https://boxes.example.com", ` + token + `, doors: "0.0.0.0:9443"}`, ""},
		"remote_plain":        {`remote: {url: "http://boxes.example.com", ` + token + `, doors: "0.0.0.0:9443"}`, "not an https URL"},
		"remote_without_door": {`remote: {url: "https://boxes.example.com", ` + token + `}`, "doors"},
		"remote_no_token":     {`remote: {url: "https://boxes.example.com", doors: "0.0.0.0:9443"}`, "token is empty"},
		"inspect":             {`openinspect: {url: "https://inspect.example.com/webhooks/automation/7", ` + token + `}`, ""},
		"inspect_with_user":   {`openinspect: {url: "https://u@inspect.example.com/", ` + token + `}`, "not an https URL"},
		"inspect_no_token":    {`openinspect: {url: "https://inspect.example.com/x"}`, "token is empty"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg, err := Load(write(t, "providers: {local: {}, "+c.text+"}\n"))
			if c.names == "" {
				if err != nil {
					t.Fatal(err)
				}
				if out, err := cfg.YAML(); err != nil || strings.Contains(string(out), "s3cret-canary") || !strings.Contains(string(out), "${env:GH_TOKEN}") {
					t.Errorf("%v\n%s", err, out)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.names) {
				t.Errorf("%v, want %q", err, c.names)
			}
		})
	}
}
