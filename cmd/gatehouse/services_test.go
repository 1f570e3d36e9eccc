package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/enforcers/operations"
	"gatehouse/enforcers/operations/linear"
	"gatehouse/internal/outside"
	"gatehouse/internal/secret"
	"gatehouse/internal/view"
)

// Ids of the fake trackers, and credentials that must never enter a sandbox.
const (
	linearIssue = "2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9"
	linearAgent = "8c6d5b6e-7f4a-4a7f-a7a5-1d8f8f2f3c11"
	packageFile = "package 1\n"
)

var serviceKey = unique("service", "CANARY-service-")

// servicesOutside are the places that operations reach. They keep what they got.
type servicesOutside struct {
	*outside.World
	sites map[string]*outside.Site

	mu    sync.Mutex
	got   []string // "METHOD host path"
	said  []string // bodies
	auth  []string
	notes []string
	files map[string]bool
	ids   map[string]bool
}

func (o *servicesOutside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got, o.said = append(o.got, r.Method+" "+r.Host+" "+r.URL.Path), append(o.said, string(b))
	o.auth = append(o.auth, r.Header.Get("Authorization")+r.Header.Get("Webhook-Signature"))
	switch r.Host {
	case "api.linear.app":
		o.linear(w, b)
	case "sentry.io":
		if r.Method == http.MethodPost {
			var n struct{ Text string }
			_ = json.Unmarshal(b, &n)
			o.notes = append(o.notes, strings.TrimSpace(n.Text))
			fmt.Fprint(w, `{"id":"9"}`)
			return
		}
		list := []any{}
		for _, n := range o.notes {
			list = append(list, map[string]any{"id": "9", "data": map[string]string{"text": n}})
		}
		_ = json.NewEncoder(w).Encode(list)
	case "packages.good.test":
		switch {
		case o.files[r.URL.Path]:
		case r.Method == http.MethodPut:
			o.files[r.URL.Path] = true
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	default:
		fmt.Fprint(w, `{"state":"queued","hidden":"OUTSIDE WORDS"}`)
	}
}

func (o *servicesOutside) linear(w http.ResponseWriter, b []byte) {
	var q struct {
		Query     string
		Variables struct {
			ID    string
			Input struct{ ID string }
		}
	}
	_ = json.Unmarshal(b, &q)
	id := q.Variables.Input.ID
	if id == "" || o.ids[id] {
		fmt.Fprintf(w, `{"data":{"comment":{"id":%[1]q},"agentActivity":{"id":%[1]q}}}`, q.Variables.ID)
		return
	}
	o.ids[id] = true
	fmt.Fprintf(w, `{"data":{"commentCreate":{"success":true,"comment":{"id":%[1]q}},"agentActivityCreate":{"success":true,"agentActivity":{"id":%[1]q}}}}`, id)
}

// made reports whether Linear has something under an id.
func (o *servicesOutside) made(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ids[id]
}

// count returns how many requests of a kind arrived, and whether one said it.
func (o *servicesOutside) count(prefix, said string) (n int, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, g := range o.got {
		if strings.HasPrefix(g, prefix) {
			n++
			found = found || strings.Contains(o.said[i], said)
		}
	}
	return n, found
}

func newServicesOutside(t *testing.T) *servicesOutside {
	t.Helper()
	base, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	o := &servicesOutside{World: base, sites: map[string]*outside.Site{}, files: map[string]bool{}, ids: map[string]bool{}}
	for i, host := range []string{"api.linear.app", "sentry.io", "hooks.good.test", "service.good.test", "packages.good.test"} {
		if o.sites[host], err = base.HTTPS(host, netip.AddrFrom4([4]byte{93, 184, 216, byte(110 + i)}), o); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// operationCall is one call from inside, made over HTTP and by MCP.
type operationCall struct {
	name, op, key, args string
	status              int // over HTTP; by MCP it failed when it is not 200
	want                string
}

// operationScript makes the calls over HTTP, under keys of their own, and by MCP
// through the official client, and then calls each limited operation as often as
// its number says, both ways.
func operationScript(calls []operationCall, limits []operationLimit) string {
	s := "u=$GATEHOUSE_AGENT_URL\nop() { printf 'http_%s: ' \"$1\"; curl -sS -o a -w '%{http_code} ' -H \"Idempotency-Key: http-$3\" -d \"$4\" ${u}operations/$2; tr -d '\\n' < a; echo; }\n"
	byMCP := "/opt/mcpclient"
	add := func(name, op, key, args string) {
		s += fmt.Sprintf("op %s %s %s '%s'\n", name, op, key, args)
		byMCP += fmt.Sprintf(` 'mcp_%s run_operation {"name":%q,"key":"mcp-%s","arguments":%s}'`, name, op, key, args)
	}
	for _, c := range calls {
		add(c.name, c.op, c.key, c.args)
	}
	s, byMCP = s+byMCP+"\n", "/opt/mcpclient"
	for _, l := range limits {
		for i := range l.calls + 1 {
			add(fmt.Sprintf("%s_%d", l.op, i), l.op, fmt.Sprintf("%s-%d", l.op, i), l.args)
		}
	}
	return s + byMCP + "\nenv | grep -c CANARY | sed 's/^/env: /'\necho done > /gatehouse/out/done"
}

// operationLimit is how often an operation may be called in one session.
type operationLimit struct {
	op, args string
	calls    int
}

var linearLimits = []operationLimit{
	{"linear.comment", `{"body":"again"}`, 20}, {"linear.activity", `{"type":"thought","body":"again"}`, 50}, {"webhook.send.chat", `{"text":"again"}`, 5},
	{"http.call.restart", `{"app":"again"}`, 6}, {"package.publish.shop", `{"version":"9","digest":"` + packageDigest() + `"}`, 5},
}

var sentryLimits = []operationLimit{{"sentry.note", `{"text":"again"}`, 20}}

var linearCalls = []operationCall{
	{"comment", "linear.comment", "c1", `{"body":"found it"}`, 200, `"existed":false`},
	{"comment_replayed", "linear.comment", "c1", `{"body":"found it"}`, 200, `"existed":false`},
	{"comment_other_words", "linear.comment", "c1", `{"body":"other"}`, 400, "operation_key"},
	{"comment_elsewhere", "linear.comment", "c2", `{"body":"x","issueId":"9"}`, 400, "operation_arguments"},
	{"activity", "linear.activity", "a1", `{"type":"thought","body":"reading"}`, 200, `"id"`},
	{"activity_wrong", "linear.activity", "a2", `{"type":"prompt","body":"x"}`, 400, "operation_arguments"},
	{"webhook", "webhook.send.chat", "w1", `{"text":"hello"}`, 200, `msg_`},
	{"webhook_replayed", "webhook.send.chat", "w1", `{"text":"hello"}`, 200, `msg_`},
	{"webhook_elsewhere", "webhook.send.chat", "w2", `{"text":"x","url":"https://evil.test"}`, 400, "operation_arguments"},
	{"call", "http.call.restart", "h1", `{"app":"shop"}`, 200, `"state":"queued"`},
	{"call_replayed", "http.call.restart", "h1", `{"app":"shop"}`, 200, `"state":"queued"`},
	{"call_path", "http.call.restart", "h2", `{"app":"../admin"}`, 400, "operation_arguments"},
	{"call_unlisted", "http.call.deploy", "h3", `{}`, 403, "operation_not_listed"},
	{"call_unknown", "http.call.fly", "h4", `{}`, 404, "operation_unknown"},
	{"publish_unapproved", "package.publish.shop", "p1", `{"version":"1.0.0","digest":"` + strings.Repeat("ab", 32) + `"}`, 403, "package_not_approved"},
	{"publish", "package.publish.shop", "p2", `{"version":"1.0.0","digest":"` + packageDigest() + `"}`, 200, `"version":"1.0.0"`},
	{"publish_replayed", "package.publish.shop", "p2", `{"version":"1.0.0","digest":"` + packageDigest() + `"}`, 200, `"version":"1.0.0"`},
	{"publish_wrong", "package.publish.shop", "p3", `{"version":"1.0.0","digest":"latest"}`, 400, "operation_arguments"},
	{"note_of_no_issue", "sentry.note", "n1", `{"text":"x"}`, 404, "operation_unknown"},
}

var sentryCalls = []operationCall{
	{"note", "sentry.note", "n1", `{"text":"fixed"}`, 200, `"existed":false`},
	{"note_replayed", "sentry.note", "n1", `{"text":"fixed"}`, 200, `"existed":false`},
	{"note_elsewhere", "sentry.note", "n2", `{"text":"x","issue":"1"}`, 400, "operation_arguments"},
	{"comment_of_no_issue", "linear.comment", "c1", `{"body":"x"}`, 404, "operation_unknown"},
}

func packageDigest() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(packageFile))) }

// TestServicesInside: every operation allowed, refused, over its limit,
// replayed and with wrong arguments, over HTTP and by MCP, from real sandboxes of
// a real node; Linear hears of its agent session before the agent has said a
// word, and again when a person says stop.
func TestServicesInside(t *testing.T) {
	if testing.Short() {
		t.Skip("short: three sandboxes")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("NOT TESTED on this machine: no curl")
	}
	o := newServicesOutside(t)
	client := filepath.Join(tempDir(t), "mcpclient")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", client, "./testdata/mcpclient")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the MCP client: %v\n%s", err, out)
	}
	bundle := func(name, match, script, more string) string {
		b, err := json.Marshal(script)
		if err != nil {
			t.Fatal(err)
		}
		return "apiVersion: gatehouse/v1\nkind: Bundle\nname: " + name + "\nmode: hard\naccepts: outsider\nmatch: [" + match + "]\nsession:\n  agent: {command: {argv: [/bin/bash, -c, " + string(b) +
			"]}}\n  task: go\n  timeout: 4m\n  mounts: [{source: " + client + ", path: /opt/mcpclient}]\n" + more
	}
	const listed = "operations: [linear.comment, linear.activity, sentry.note, webhook.send.chat, http.call.restart, package.publish.shop]\n"
	dir := nodeDir(t)
	upstreams, err := json.Marshal(o.Upstreams())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.pem"), string(o.CA()))
	write(t, filepath.Join(dir, "service.key"), serviceKey+"\n")
	write(t, filepath.Join(dir, "hook.key"), "whsec_"+base64.StdEncoding.EncodeToString([]byte(unique("hook", "hook-")))+"\n")
	n := newLiveNodeOn(t, dir, fmt.Sprintf(`dev: {upstreams: %s, dns: %q, ca: ca.pem}
connections:
  - {name: linear-main, kind: tracker, provider: linear, credential: "${file:service.key}"}
  - {name: sentry-main, kind: tracker, provider: sentry, credential: "${file:service.key}"}
  - {name: chat, kind: webhook, api: "https://hooks.good.test/in", credential: "${file:hook.key}"}
  - {name: deployer, kind: http, host: service.good.test, scheme: bearer, credential: "${file:service.key}"}
  - {name: packages, kind: http, host: packages.good.test, scheme: bearer, credential: "${file:service.key}"}
operations:
  - {name: webhook.send.chat, connection: chat, summary: Tells the team., calls: 5, arguments: {type: object, additionalProperties: false, required: [text], properties: {text: {type: string, maxLength: 100}}}}
  - {name: http.call.restart, connection: deployer, summary: Restarts an app., method: POST, path: "/v1/apps/{app}/restart", answer: [state], calls: 6, arguments: {type: object, additionalProperties: false, required: [app], properties: {app: {type: string}}}}
  - {name: http.call.deploy, connection: deployer, summary: Deploys., method: POST, path: /v1/deploy, arguments: {type: object, additionalProperties: false}}
  - {name: package.publish.shop, connection: packages, summary: Publishes shop., path: "/shop/{version}/shop.tgz", approved: [{version: 1.0.0, sha256: %q}]}
`, upstreams, o.DNS.Addr(), packageDigest()),
		bundle("maker", `{source: github, endpoint: main, kinds: [workflow_run.completed]}`, "printf 'package 1\\n' > /gatehouse/out/shop.tgz", ""),
		bundle("linear", `{source: linear, endpoint: tasks, kinds: [agent_session_event.created], where: {agent_session.status: pending}}`, operationScript(linearCalls, linearLimits), listed),
		bundle("waits", `{source: linear, endpoint: tasks, kinds: [agent_session_event.created], where: {agent_session.status: active}}`, "sleep 600", listed),
		bundle("sentry", `{source: sentry, endpoint: errors, kinds: [issue.created]}`, operationScript(sentryCalls, sentryLimits), "priority: 1\n"+listed))
	file, err := os.ReadFile(n.path("gatehouse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n.write("gatehouse.yaml", strings.Replace(string(file), `secrets: ["${file:main.key}"]}]`,
		`secrets: ["${file:main.key}"]}, {name: tasks, source: linear, secrets: ["${file:main.key}"]}, {name: errors, source: sentry, secrets: ["${file:main.key}"]}]`, 1))
	n.args = []string{"--dev"}
	n.start()
	n.settled(n.deliver(failure(1))...) // what it leaves behind is published below

	send := func(endpoint, source, kind, body string) string {
		t.Helper()
		a, err := delivery{URL: "http://" + n.hooks + "/hooks/" + endpoint, Source: source, Kind: kind, Secret: n.key, Body: []byte(body)}.send(t.Context())
		if err != nil || a.Status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		return a.ID
	}
	events := map[string]string{
		"linear": send("tasks", "linear", "AgentSessionEvent", agentSessionEvent("created", "pending", linearAgent, "")),
		"sentry": send("errors", "sentry", "issue", `{"action":"created","installation":{"uuid":"7a485448-a9e2-4c85-8a3c-4f44175783c9"},"data":{"issue":{"id":"4711","project":{"id":"1"},"title":"it broke","status":"unresolved"}},"actor":{"type":"application","id":"sentry","name":"Sentry"}}`),
	}
	for name, c := range map[string]struct {
		calls  []operationCall
		limits []operationLimit
	}{"linear": {linearCalls, linearLimits}, "sentry": {sentryCalls, sentryLimits}} {
		n.settled(events[name])
		var e struct{ Sessions []view.Session }
		if err := n.client.Get(t.Context(), "/v1/events/"+events[name], nil, &e); err != nil || len(e.Sessions) != 1 {
			t.Fatalf("%v %+v", err, e)
		}
		said := lines(t, n, e.Sessions[0].ID)
		if name == "linear" {
			t.Run("linear/T-17_ids_are_sealed", func(t *testing.T) {
				key, err := os.ReadFile(n.path("state", "mark.key"))
				if err != nil {
					t.Fatal(err)
				}
				node := operations.Remote{MarkKey: secret.FromString(string(key))}
				if id := node.ID(&operations.Call{Session: e.Sessions[0].ID, Key: "node:first-sign"}, linear.Activity); !o.made(id) {
					t.Error("the first sign has not the id that the node's key makes")
				}
			})
		}
		for _, way := range []string{"http_", "mcp_"} {
			for _, c := range c.calls {
				t.Run(name+"/"+way+c.name, func(t *testing.T) {
					begins := fmt.Sprint(c.status, " ")
					if way == "mcp_" {
						begins = "failed "
						if c.status == 200 {
							begins = "ok "
						}
					}
					if got := said[way+c.name]; !strings.HasPrefix(got, begins) || !strings.Contains(got, c.want) || !strings.Contains(got, `"receipt":"`) {
						t.Errorf("%q, want %s%s and a receipt", got, begins, c.want)
					}
				})
			}
			for _, l := range c.limits {
				t.Run(name+"/"+way+l.op+"_over_limit", func(t *testing.T) {
					over := 0
					for i := range l.calls + 1 {
						if got := said[fmt.Sprintf("%s%s_%d", way, l.op, i)]; strings.Contains(got, "operation_limit") && strings.Contains(got, `"receipt":"`) {
							over++
						}
					}
					if over == 0 { // one call more than a session may make was made
						t.Error("nothing was refused")
					}
				})
			}
		}
		if said["env"] != "0" {
			t.Errorf("ME-01: %s: a credential is inside: %q", name, said["env"])
		}
		chain := n.gatehouse(0, "session", "tail", e.Sessions[0].ID)
		if !strings.Contains(chain, "operation.call") {
			t.Errorf("no operation in the chain of %s", name)
		}
	}
	t.Run("first_sign_by_the_node", func(t *testing.T) {
		o.mu.Lock()
		defer o.mu.Unlock()
		for i, g := range o.got {
			if strings.Contains(g, "linear") {
				if !strings.Contains(o.said[i], "starts under bundle") || !strings.Contains(o.said[i], linearAgent) {
					t.Errorf("the first word is %s", o.said[i])
				}
				return
			}
		}
		t.Error("nothing was said")
	})
	t.Run("last_word_by_the_node", func(t *testing.T) {
		if _, found := o.count("POST api.linear.app", "has ended: completed"); !found {
			t.Error("Linear heard of no end")
		}
	})
	t.Run("IN-22_a_person_says_stop", func(t *testing.T) {
		const other = "8c6d5b6e-7f4a-4a7f-a7a5-1d8f8f2f3c12"
		id := send("tasks", "linear", "AgentSessionEvent", agentSessionEvent("created", "active", other, ""))
		var e struct{ Sessions []view.Session }
		n.until("the session runs", func() bool {
			e.Sessions = nil
			return n.client.Get(t.Context(), "/v1/events/"+id, nil, &e) == nil && len(e.Sessions) == 1 && e.Sessions[0].State == "running"
		})
		send("tasks", "linear", "AgentSessionEvent", agentSessionEvent("prompted", "active", other, "stop"))
		n.settled(id)
		if err := n.client.Get(t.Context(), "/v1/events/"+id, nil, &e); err != nil || e.Sessions[0].Reason != "revoked" {
			t.Errorf("%v %+v", err, e.Sessions)
		}
		for _, word := range []string{"starts under bundle `waits`", "under bundle `waits` (hard) has ended: revoked"} {
			if _, found := o.count("POST api.linear.app", word); !found {
				t.Errorf("Linear never heard %q", word)
			}
		}
	})
	t.Run("NE-08_only_where_declared", func(t *testing.T) {
		if n, _ := o.count("PUT packages.good.test /shop/1.0.0/shop.tgz", ""); n != 1 {
			t.Errorf("%d files published", n)
		}
		if n, _ := o.count("POST service.good.test /v1/deploy", ""); n != 0 {
			t.Errorf("an unlisted operation ran %d times", n)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		for i, a := range o.auth {
			if a != "Bearer "+serviceKey && !strings.HasPrefix(a, "v1,") {
				t.Errorf("%s went out under %q", o.got[i], a)
			}
		}
	})
	n.stop()
}

// agentSessionEvent is a delivery of Linear's about one agent session.
func agentSessionEvent(action, status, agent, signal string) string {
	activity := ""
	if signal != "" {
		activity = `"agentActivity":{"id":"1b2c3d4e-0000-4000-8000-00000000000a","signal":"` + signal + `","content":{"type":"prompt","body":"stop"}},`
	}
	return fmt.Sprintf(`{"type":"AgentSessionEvent","action":%q,"createdAt":%q,"organizationId":"1b2c3d4e-0000-4000-8000-000000000001","oauthClientId":"1b2c3d4e-0000-4000-8000-000000000002","appUserId":"1b2c3d4e-0000-4000-8000-000000000003",%s"agentSession":{"id":%q,"issueId":%q,"status":%q,"type":"commentThread","creatorId":"1b2c3d4e-0000-4000-8000-000000000004","issue":{"id":%q,"title":"It broke","teamId":"1b2c3d4e-0000-4000-8000-000000000005"}},"webhookTimestamp":%d,"webhookId":"1b2c3d4e-0000-4000-8000-000000000006"}`,
		action, time.Now().UTC().Format(time.RFC3339), activity, agent, linearIssue, status, linearIssue, time.Now().UnixMilli())
}
