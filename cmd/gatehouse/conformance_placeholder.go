package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/config"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/outside"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// SB-49: a placeholder is worth nothing in another session, at another host, or
// after its own session, and what it stands for never enters a sandbox. The
// door, the gate and upstream are the node's own; the outside is a fake on
// loopback, which counts what reaches it.
const (
	boundHost   = "bound.conformance.test" // the connection's host
	otherHost   = "other.conformance.test" // listed, without the connection
	tokenIn     = "CONFORMANCE_TOKEN"      // holds the placeholder inside
	agentInside = "/opt/gatehouse-conformance/agent"
)

// agentScriptInside does what the agent does where this program cannot be: it
// prints a placeholderCall for each call.
const agentScriptInside = `call() {
  status=$(curl -sS -m 20 -o body -w '%{http_code}' -H "Authorization: Bearer $2" "https://$1/" 2>>body) || status=0
  printf '{"host":"%s","status":%d,"body":"%s"}' "$1" "$status" "$(tr -cd 'A-Za-z0-9 ._-' < body)"
}
printf '['; call ` + boundHost + ` "$` + tokenIn + `"; printf ','; call ` + otherHost + ` "$` + tokenIn + `"
if [ -n "$CONFORMANCE_FOREIGN" ]; then printf ','; call ` + boundHost + ` "$CONFORMANCE_FOREIGN"; fi
printf ']'`

const conformanceBundle = `apiVersion: gatehouse/v1
kind: Bundle
name: conformance
mode: hard
accepts: operator
session: {agent: {command: {argv: ["true"]}}, task: conformance}
egress:
  - {host: ` + boundHost + `, connection: conformance, env: ` + tokenIn + `}
  - {host: ` + otherHost + `}
`

// placeholderTrial is one door after another over one fake outside.
type placeholderTrial struct {
	provider sandbox.Provider
	exits    *doors
	notary   *notary.Notary
	bundle   *bundle.Bundle
	policy   []byte
	dir      string
	secret   string
	bound    *outside.Site
	other    *outside.Site

	mu   sync.Mutex
	auth []string // Authorization fields that reached the bound host
}

func judgePlaceholders(ctx context.Context, provider sandbox.Provider, dir string) (string, error) {
	t := &placeholderTrial{provider: provider, secret: "conformance-secret-" + rand.Text()}
	var err error
	if t.dir, err = os.MkdirTemp(dir, "placeholders-"); err != nil {
		return "", err
	}
	world, err := outside.New()
	if err != nil {
		return "", err
	}
	defer world.Close()
	if t.bound, err = world.HTTPS(boundHost, netip.MustParseAddr("93.184.216.34"), http.HandlerFunc(t.serve)); err != nil {
		return "", err
	}
	if t.other, err = world.HTTPS(otherHost, netip.MustParseAddr("93.184.216.35"), http.HandlerFunc(t.serve)); err != nil {
		return "", err
	}
	closeAll, err := t.wire(ctx, world)
	if err != nil {
		return "", err
	}
	defer closeAll()
	return t.judge(ctx)
}

func (t *placeholderTrial) serve(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	t.auth = append(t.auth, r.Header.Get("Authorization"))
	t.mu.Unlock()
	_, _ = io.WriteString(w, "served\n")
}

// wire builds the way out over the fake outside.
func (t *placeholderTrial) wire(ctx context.Context, world *outside.World) (_ func(), err error) {
	var undo []func()
	all := func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	defer func() {
		if err != nil {
			all()
		}
	}()
	cfg, err := t.config(world)
	if err != nil {
		return nil, err
	}
	keys, err := notary.NewKeys("conformance.gatehouse.example/run")
	if err != nil {
		return nil, err
	}
	t.notary = notary.New(notary.Options{Node: "conformance", Keys: keys})
	j, err := journal.Open(filepath.Join(t.dir, "journal"), journal.Options{Seal: t.notary.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = j.Close() })
	if err := t.notary.Start(ctx, j); err != nil {
		return nil, err
	}
	host, err := wasm.NewHost(ctx, wasm.Options{CacheDir: wasmCache()})
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = host.Close(context.WithoutCancel(ctx)) })
	in, err := injectorsOf(cfg)
	if err != nil {
		return nil, err
	}
	up, err := newUpstream(cfg, in, func(string, string) {}, true)
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = up.Close() })
	t.exits = &doors{host: host, up: up, modules: modulesOf(cfg), control: t.notary.Control().Append, dev: true, log: slog.New(slog.DiscardHandler)}
	if t.bundle, err = bundle.Parse([]byte(conformanceBundle)); err != nil {
		return nil, err
	}
	t.policy, err = t.bundle.Policy(nil, bundle.Subject{})
	return all, err
}

func (t *placeholderTrial) config(world *outside.World) (*config.Config, error) {
	ups, err := json.Marshal(world.Upstreams())
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("connections: [{name: conformance, kind: http, host: %s, scheme: bearer, credential: \"${file:secret}\"}]\n"+
		"dev: {upstreams: %s, dns: %q, ca: ca.pem}\n", boundHost, ups, world.DNS.Addr())
	for name, b := range map[string][]byte{"ca.pem": world.CA(), "secret": []byte(t.secret), "gatehouse.yaml": []byte(text)} {
		if err := os.WriteFile(filepath.Join(t.dir, name), b, 0o600); err != nil {
			return nil, err
		}
	}
	return config.Load(filepath.Join(t.dir, "gatehouse.yaml"))
}

// placeholderCall is one request of the agent and what became of it.
type placeholderCall struct {
	Host   string `json:"host"`
	Status int    `json:"status"` // 0: no answer
	Body   string `json:"body"`
}

// session runs the agent once behind a door of its own and returns the
// placeholder that it had, the calls, and everything it printed.
func (t *placeholderTrial) session(ctx context.Context, name, foreign string) (placeholder string, calls []placeholderCall, printed []byte, err error) {
	chain, err := chains{t.notary}.Open(ctx, name, receipts.Open{State: "admitted", Mode: receipts.Hard}, receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
	if err != nil {
		return "", nil, nil, err
	}
	dir := filepath.Join(t.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", nil, nil, err
	}
	door, err := t.exits.Open(ctx, gatekeeper.DoorSpec{
		Session: name, Bundle: t.bundle, Digest: t.bundle.Digest(), Policy: t.policy, Dir: dir,
		Recorder: chain.Recorder(receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"}),
	})
	if err != nil {
		return "", nil, nil, err
	}
	defer func() { err = errors.Join(err, door.Close("ended")) }()
	self, err := os.Executable()
	if err != nil {
		return "", nil, nil, err
	}
	inside := door.Inside()
	env := map[string]string{"CONFORMANCE_FOREIGN": foreign}
	for k, v := range inside.Env {
		env[k] = v
	}
	var out bytes.Buffer
	argv, mounts := []string{agentInside, "conformance", "agent"}, []sandbox.Mount{{Source: self, Path: agentInside}}
	if _, distant := t.provider.(sandbox.Distant); distant {
		argv, mounts = []string{"/bin/sh", "-c", agentScriptInside}, nil // it shows nothing of this machine
	}
	box, err := t.provider.Start(ctx, sandbox.Spec{
		Session: name, Argv: argv, Env: env, Files: inside.Files, Trust: door.Trust(),
		Timeout: time.Minute, Unlimited: true, Proxy: true, Witness: door, Output: &out, Canaries: []string{t.secret},
		Mounts: mounts,
	}, door.Listener())
	if err != nil {
		return "", nil, nil, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	if _, err := box.Run(ctx); err != nil {
		return "", nil, nil, err
	}
	if err := json.Unmarshal(out.Bytes(), &calls); err != nil {
		return "", nil, out.Bytes(), fmt.Errorf("the agent said %.200q", out.Bytes())
	}
	return inside.Env[tokenIn], calls, out.Bytes(), nil
}

// judge runs two sessions one after the other: the first has a placeholder of
// its own, the second is given the first's as well.
func (t *placeholderTrial) judge(ctx context.Context) (string, error) {
	placeholder, calls, printed, err := t.session(ctx, "conformance-first", "")
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	injected := len(t.auth) == 1 && t.auth[0] == "Bearer "+t.secret
	t.mu.Unlock()
	switch {
	case placeholder == "" || strings.Contains(placeholder, t.secret):
		return "", errors.New("could not run: the session had no placeholder")
	case len(calls) != 2 || calls[0].Status != http.StatusOK || !injected:
		return "", fmt.Errorf("could not run: the control did not reach the bound host with its credential: %+v", calls)
	case calls[1].Status != http.StatusForbidden || t.other.Requests() != 0:
		return "", fmt.Errorf("at another host it was answered %d, and %d requests arrived", calls[1].Status, t.other.Requests())
	}
	before := t.bound.Requests()
	_, later, printedLater, err := t.session(ctx, "conformance-second", placeholder)
	if err != nil {
		return "", err
	}
	switch {
	case len(later) != 3 || later[0].Status != http.StatusOK || t.bound.Requests() != before+1:
		return "", fmt.Errorf("could not run: the second session's own control failed: %+v", later)
	case later[2].Status != http.StatusForbidden:
		return "", fmt.Errorf("in a later session it was answered %d", later[2].Status)
	case bytes.Contains(append(printed, printedLater...), []byte(t.secret)):
		return "", errors.New("the credential was seen inside")
	}
	return "403 at another host, and in a later session after its own had ended; nothing of the credential was seen inside", nil
}

// conformanceAgent is what runs inside the sandbox: this same program.
func (c *cli) conformanceAgent() *cobra.Command {
	return &cobra.Command{
		Use: "agent", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own := os.Getenv(tokenIn)
			calls := []placeholderCall{call(cmd.Context(), boundHost, own), call(cmd.Context(), otherHost, own)}
			if foreign := os.Getenv("CONFORMANCE_FOREIGN"); foreign != "" {
				calls = append(calls, call(cmd.Context(), boundHost, foreign))
			}
			return c.json(calls)
		},
	}
}

func call(ctx context.Context, host, token string) placeholderCall {
	out := placeholderCall{Host: host}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", nil)
	if err != nil {
		out.Body = err.Error()
		return out
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		out.Body = err.Error()
		return out
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	out.Status, out.Body = res.StatusCode, string(body)
	return out
}
