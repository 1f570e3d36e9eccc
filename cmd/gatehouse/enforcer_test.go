package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/api"
	"gatehouse/internal/config"
	"gatehouse/internal/outside"
	"gatehouse/receipts"
	"gatehouse/wasm"
	"gatehouse/wasm/hostile"
)

// guest FILE [ANSWER] writes a module that answers every action the same.
func guest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: guest file [answer]")
	}
	g := &hostile.Guest{}
	if len(args) == 2 {
		g.Answer = args[1]
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), g.Module(), 0o644))
}

// fill FILE [WORD SOURCE]... replaces each WORD in a file by the text of another.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 == 0 {
		ts.Fatalf("usage: fill file [word source]...")
	}
	text := ts.ReadFile(args[0])
	for i := 1; i < len(args); i += 2 {
		text = strings.ReplaceAll(text, args[i], strings.TrimSpace(ts.ReadFile(args[i+1])))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

// exits returns doors over a real host and a folder of modules, and what they
// wrote to the control chain.
func exits(t *testing.T) (*doors, *[]receipts.Change) {
	t.Helper()
	host, err := wasm.NewHost(t.Context(), wasm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close(context.Background()) })
	cfg := config.Default()
	up, err := newUpstream(&cfg, nil, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	var mu sync.Mutex
	var changes []receipts.Change
	return &doors{
		host: host, up: up, modules: &modules{dir: filepath.Join(tempDir(t), "modules")}, log: slog.New(slog.DiscardHandler),
		control: func(_ context.Context, r receipts.Receipt) (receipts.Hash, error) {
			mu.Lock()
			defer mu.Unlock()
			if r.Type != receipts.TypePolicyChange {
				t.Errorf("a receipt of type %s", r.Type)
			}
			changes = append(changes, *r.Change)
			return receipts.Hash{}, nil
		},
	}, &changes
}

// own adds a module that answers everything the same and returns its reference.
func own(t *testing.T, d *doors, g *hostile.Guest) string {
	t.Helper()
	ref, err := d.modules.add(t.Context(), d.host, g.Module(), moduleSettings{Name: "own"})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func named(ref, params string) *bundle.Bundle {
	return &bundle.Bundle{Name: "b", Mode: bundle.Hard, Enforcers: map[string]bundle.Enforcer{"own": enforcerOf(ref, params)}}
}

func enforcerOf(ref, params string) bundle.Enforcer {
	b, err := bundle.Parse([]byte("apiVersion: gatehouse/v1\nkind: Bundle\nname: b\naccepts: member\nsession: {agent: codex, task: go}\nenforcers: {own: {module: '" + ref + "', mode: hard, params: " + params + "}}\n"))
	if err != nil {
		panic(err)
	}
	return b.Enforcers["own"]
}

func (d *doors) opened(t *testing.T, b *bundle.Bundle) (*openDoor, error) {
	t.Helper()
	dir := shortDir(t, "door")
	door, err := d.Open(t.Context(), gatekeeper.DoorSpec{Session: "s1", Bundle: b, Policy: []byte(`{"bundle":"b","digest":"00","egress":[],"models":[],"operations":[],"telemetry":[]}`), Dir: dir})
	if err != nil {
		return nil, err
	}
	return door.(*openDoor), nil
}

const saysA, saysB = `{"reason":"a","rule":"r","verdict":"deny"}`, `{"reason":"b","rule":"r","verdict":"deny"}`

// TestReplaceModules is WA-07 on a node: running sessions get the module of a
// bundle's newest version while they are asked, and keep the old one when that
// fails. Each step is in the control chain.
func TestReplaceModules(t *testing.T) {
	d, changes := exits(t)
	a, b := own(t, d, &hostile.Guest{Answer: saysA}), own(t, d, &hostile.Guest{Answer: saysB})
	picky := own(t, d, &hostile.Guest{Configure: hostile.I32Const(1)})
	o, err := d.opened(t, named(a, "{x: 1}"))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close("revoked")
	says := func() string {
		v, err := o.added[0].live.Decide(t.Context(), []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return v.Reason
	}
	if says() != "a" {
		t.Fatal("the module that the bundle names does not judge")
	}

	ctx, stop := context.WithCancel(t.Context())
	var traffic sync.WaitGroup
	for range 4 {
		traffic.Go(func() {
			for ctx.Err() == nil {
				if v, err := o.added[0].live.Decide(context.Background(), []byte(`{}`)); err != nil || v.Effect != enforcers.Deny {
					t.Errorf("%+v, %v", v, err)
					return
				}
			}
		})
	}
	by := api.Actor{Name: "ann", Via: "cli"}
	missing := "own@sha256:" + strings.Repeat("0", 64)
	steps := []struct {
		name, module, params, says, result string
	}{
		{"newer", b, "{x: 1}", "b", "applied"},
		{"same", b, "{x: 1}", "b", ""},
		{"refuses_the_policy", picky, "{x: 1}", "b", "rejected"},
		{"not_there", missing, "{x: 1}", "b", "rejected"},
		{"other_settings_wait", a, "{x: 2}", "b", ""},
		{"back", a, "{x: 1}", "a", "applied"},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			before := len(*changes)
			if err := d.replace(t.Context(), named(s.module, s.params), by); err != nil {
				t.Fatal(err)
			}
			if got := says(); got != s.says {
				t.Errorf("judged by the one that says %s, want %s", got, s.says)
			}
			switch now := *changes; {
			case s.result == "" && len(now) != before:
				t.Errorf("a receipt about nothing: %+v", now[before:])
			case s.result != "" && (len(now) != before+1 || now[before].Result != s.result || now[before].By != "ann" || now[before].Enforcer != "own" || !strings.HasSuffix(s.module, fmt.Sprintf("%x", [32]byte(now[before].Digest)))):
				t.Errorf("receipts %+v, want one that says %s", now[before:], s.result)
			}
		})
	}
	stop()
	traffic.Wait()
	if first := (*changes)[0]; first.Result != "applied" || !first.Old.IsZero() || first.By != "config" {
		t.Errorf("the activation at the start: %+v", first)
	}
}

// TestSessionNeedsItsModules starts no session without them.
func TestSessionNeedsItsModules(t *testing.T) {
	d, changes := exits(t)
	good := own(t, d, &hostile.Guest{})
	for name, c := range map[string]struct {
		bundle *bundle.Bundle
		err    string
	}{
		"not_there":         {named("own@sha256:"+strings.Repeat("0", 64), "{}"), "does not have the module"},
		"other_name":        {named(strings.Replace(good, "own@", "other@", 1), "{}"), "does not have the module"},
		"refuses_policy":    {named(own(t, d, &hostile.Guest{Configure: hostile.I32Const(1)}), "{}"), wasm.ConfigureFailed},
		"name_of_a_builtin": {&bundle.Bundle{Name: "b", Enforcers: map[string]bundle.Enforcer{"egress": enforcerOf(good, "{}")}}, "cannot be called egress"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(*changes)
			if o, err := d.opened(t, c.bundle); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("opened %v, error %v, want %q", o != nil, err, c.err)
			}
			if now := *changes; name != "name_of_a_builtin" && (len(now) != before+1 || now[before].Result != "rejected") {
				t.Errorf("receipts %+v", now[before:])
			}
		})
	}
}

// hardWorld is one listed and one unlisted host, and a bundle over the first.
func hardWorld(t *testing.T, enforcer func(dir string) string) (good, evil *outside.Site, dir string) {
	t.Helper()
	w, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	site := func(host, addr string) *outside.Site {
		s, err := w.HTTPS(host, netip.MustParseAddr(addr), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(rw, "reached with %d\n", len(b))
		}))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	good, evil = site("api.good.test", "93.184.216.34"), site("evil.test", "93.184.216.40")
	dir = tempDir(t)
	upstreams, err := json.Marshal(w.Upstreams())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.pem"), string(w.CA()))
	write(t, filepath.Join(dir, "gatehouse.yaml"), fmt.Sprintf("sandbox: {unlimited: accepted}\ndev: {upstreams: %s, dns: %q, ca: ca.pem}\n", upstreams, w.DNS.Addr()))
	write(t, filepath.Join(dir, "bundle.yaml"), "apiVersion: gatehouse/v1\nkind: Bundle\nname: b\naccepts: member\nsession: {agent: {command: {argv: [\"true\"]}}, task: go, timeout: 2m}\n"+
		"egress: [{host: api.good.test, methods: [GET, POST]}]\nenforcers: {"+enforcer(dir)+"}\n")
	return good, evil, dir
}

// addModule runs enforcer add and returns the reference.
func addModule(t *testing.T, dir, file string, flags ...string) string {
	t.Helper()
	args := append([]string{"-c", filepath.Join(dir, "gatehouse.yaml"), "enforcer", "add", file}, flags...)
	out, err := hear(t, exec.CommandContext(t.Context(), binary, args...)).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// recorded runs a script in a hard session and returns what it printed and the
// bytes of its receipts.
func recorded(t *testing.T, dir, script string) (printed, exported string) {
	t.Helper()
	file := filepath.Join(tempDir(t), "receipts.gh")
	out, _ := hear(t, exec.CommandContext(t.Context(), binary, "-c", filepath.Join(dir, "gatehouse.yaml"), "run", "--dev", "-b", filepath.Join(dir, "bundle.yaml"),
		"--mode", "hard", "--receipts", file, "--", "/bin/sh", "-c", script)).CombinedOutput()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if res := receipts.Verify(bytes.NewReader(b), receipts.Options{Root: ephemeralRoot(t, out)}); res.Exit != receipts.ExitComplete {
		t.Errorf("receipts: %s", res.Verdict())
	}
	return string(out), string(b)
}

// TestAddedAllowChangesNothing is the whole path with an added enforcer that
// answers allow for everything: the unlisted host is not reached, and its
// answer is recorded as the fault that it is.
func TestAddedAllowChangesNothing(t *testing.T) {
	t.Parallel()
	good, evil, dir := hardWorld(t, func(dir string) string {
		file := filepath.Join(dir, "liar.wasm")
		write(t, file, string((&hostile.Guest{Answer: `{"reason":"trust_me","rule":"r","verdict":"allow"}`}).Module()))
		return "liar: {module: '" + addModule(t, dir, file) + "', mode: shadow}"
	})
	out, exported := recorded(t, dir, "curl -sS https://api.good.test/; curl -sS https://evil.test/ || echo refused")
	if !strings.Contains(out, "reached with 0") || good.Requests() != 1 {
		t.Errorf("the listed host got %d requests:\n%s", good.Requests(), out)
	}
	if !strings.Contains(out, "refused") || evil.Accepts() != 0 {
		t.Errorf("the unlisted host got %d connections:\n%s", evil.Accepts(), out)
	}
	refusals := 0
	for line := range strings.SplitSeq(exported, "\n") {
		if strings.Contains(line, `"host":"evil.test"`) && strings.Contains(line, `"verdict":"deny"`) {
			refusals++
			if !strings.Contains(line, `"enforcer.liar":"fault bad_output"`) {
				t.Errorf("the answer is not recorded: %s", line)
			}
		}
	}
	if refusals == 0 {
		t.Error("no receipt of the refusal")
	}
}

// TestDLP runs the example in a hard session: it reads whole bodies, and what it
// cannot read whole is refused.
func TestDLP(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a guest")
	}
	t.Parallel()
	good, _, dir := hardWorld(t, func(dir string) string {
		file := filepath.Join(dir, "dlp.wasm")
		build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w -buildid=", "-o", file, "gatehouse/wasm/sdk/go/dlp")
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build dlp: %v\n%s", err, out)
		}
		return "dlp: {module: '" + addModule(t, dir, file, "--fuel-decide", "20000000") + "', mode: hard, params: {max_body: 1024, patterns: [{name: aws_key, regexp: 'AKIA[0-9A-Z]{16}'}]}}"
	})
	out, exported := recorded(t, dir, `post() { curl -sS -w '\n' --data-binary @- "$@" https://api.good.test/; }
printf 'hello' | post
printf 'id=AKIA%s' ABCDEFGHIJKLMNOP | post
printf 'id=AKIA%s' ABCDEFGHIJKLMNOP | gzip | post -H 'Content-Encoding: gzip'
head -c 2000 /dev/zero | tr '\0' x | post
curl -sS https://api.good.test/`)
	for _, want := range []string{"reached with 5", `"rule":"dlp.aws_key"`, `"code":"pattern_found"`, `"code":"body_not_inspectable"`, "reached with 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "pattern_found"); n != 2 || good.Requests() != 2 {
		t.Errorf("%d bodies denied for the pattern, %d requests forwarded", n, good.Requests())
	}
	if strings.Contains(exported, "AKIAABCDEFGHIJKLMNOP") {
		t.Error("a body stands in the receipts")
	}
}
