package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"gatehouse/internal/bus"
	"gatehouse/internal/problem"
)

var update = flag.Bool("update", false, "write deploy/nats/streams")

const (
	deployConf    = "../../deploy/nats/nats.conf"
	deployStreams = "../../deploy/nats/streams"
)

var streamNames = []string{bus.Events, bus.Sessions, bus.Log, bus.Audit, bus.Actions, "KV_" + bus.Claims, "KV_" + bus.Bundles}

// TestStreamFiles keeps deploy/nats/streams in step with what a node makes.
func TestStreamFiles(t *testing.T) {
	b := open(t, bus.Options{Dir: t.TempDir()})
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range streamNames {
		s, err := js.Stream(context60(t), name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.Metadata = nil // of the server that made it
		want, err := json.MarshalIndent(cfg, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		file := filepath.Join(deployStreams, name+".json")
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(have)); d != "" {
			t.Errorf("%s: run with -update:\n%s", file, d)
		}
	}
}

// user makes an nkey pair: the public key, and the seed in a 0600 file.
func user(t *testing.T) (public, file string) {
	t.Helper()
	kp, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err = kp.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := kp.Seed()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return public, file
}

// deployed starts a server from deploy/nats/nats.conf with fresh keys.
func deployed(t *testing.T, auditors ...string) (url, admin, node string) {
	t.Helper()
	conf := deployConf
	if len(auditors) > 0 { // beside their auditors.conf
		dir := t.TempDir()
		b, err := os.ReadFile(deployConf)
		if err != nil {
			t.Fatal(err)
		}
		conf = filepath.Join(dir, "nats.conf")
		for name, text := range map[string]string{"nats.conf": string(b), "auditors.conf": "AUDITORS: [\n" + strings.Join(auditors, "\n") + "\n]\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var adminKey, nodeKey string
	adminKey, admin = user(t)
	nodeKey, node = user(t)
	t.Setenv("GATEHOUSE_ADMIN_NKEY", adminKey)
	t.Setenv("GATEHOUSE_NODE_NKEY", nodeKey)
	o, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	o.Port, o.StoreDir, o.NoLog, o.NoSigs = server.RANDOM_PORT, t.TempDir(), true, true
	srv, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(deadline) {
		t.Fatal("the server did not start")
	}
	return "nats://" + srv.Addr().String(), admin, node
}

// connect opens a connection of a user and the channel of its refusals.
func connect(t *testing.T, url, seed string) (*nats.Conn, <-chan error) {
	t.Helper()
	opt, err := nats.NkeyOptionFromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 64)
	nc, err := nats.Connect(url, opt, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, refused
}

// makeStreams does what an administrator does once.
func makeStreams(t *testing.T, url, admin string) {
	t.Helper()
	nc, _ := connect(t, url, admin)
	for _, name := range streamNames {
		cfg, err := os.ReadFile(filepath.Join(deployStreams, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := nc.RequestWithContext(context60(t), "$JS.API.STREAM.CREATE."+name, cfg)
		if err != nil || bytes.Contains(m.Data, []byte(`"error"`)) {
			t.Fatalf("%s: %v %s", name, err, m.Data)
		}
	}
}

// TestDeployedServer: an administrator makes the streams from the files, and
// then a node with least privilege has all it needs and nothing more.
func TestDeployedServer(t *testing.T) {
	url, admin, node := deployed(t)
	t.Run("before_the_streams", func(t *testing.T) {
		_, err := bus.Open(context60(t), bus.Options{Node: "n1", URL: url, Creds: node, Log: quiet(t)})
		if problem.CodeOf(err) != problem.Unavailable {
			t.Fatal(err)
		}
	})
	makeStreams(t, url, admin)

	b, j := open(t, bus.Options{URL: url, Creds: node}), openJournal(t, t.TempDir())
	if drift, err := b.Drift(context60(t)); err != nil || len(drift) != 0 {
		t.Fatalf("drift %v, %v", drift, err)
	}
	fill(t, j, 0, 50)
	stop := pumping(t, b, j)
	stored(t, b, j)
	same(t, b, j)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	pumping(t, b, j) // reconciles
	fill(t, j, 50, 60)
	stored(t, b, j)

	handled := make(chan struct{}, 100)
	stopWork := worker(t, b, func(context.Context, bus.Msg) error { handled <- struct{}{}; return nil })
	for range 60 {
		<-handled
	}
	stopWork()
	ctx := context60(t)
	if err := b.PutAction(ctx, "abc", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := b.PutAction(ctx, "abc", []byte("y")); !errors.As(err, new(*bus.FenceError)) {
		t.Fatal(err)
	}
	if _, err := b.GetAction(ctx, "abc"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{bus.Events, bus.Sessions, bus.Log, bus.Audit, bus.Actions} {
		for _, err := range b.Read(ctx, name, "", 0) {
			if err != nil {
				t.Errorf("the node cannot read %s: %v", name, err)
			}
		}
	}
	for _, name := range []string{bus.Claims, bus.Bundles} {
		kv, err := b.KV(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		rev, err := kv.Create(ctx, "k", []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Create(ctx, "k", []byte("1")); !errors.Is(err, bus.ErrExists) {
			t.Fatal(err)
		}
		if _, err := kv.Update(ctx, "k", []byte("2"), rev); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, err := range kv.All(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 1 {
			t.Fatalf("%d keys", n)
		}
	}
	for range b.Follow(ctx, bus.Log, "", 0) {
		break
	}

	t.Run("may_not", func(t *testing.T) {
		nc, refused := connect(t, url, node)
		var subjects []string
		for _, s := range streamNames {
			for _, verb := range []string{"STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.LEADER.STEPDOWN"} {
				subjects = append(subjects, "$JS.API."+verb+"."+s)
			}
		}
		subjects = append(subjects, "$JS.API.STREAM.CREATE.OTHER", "$KV.other.k", "other", "gatehouse.v2.x", "$SYS.REQ.SERVER.PING", "$JS.API.ACCOUNT.PURGE.GATEHOUSE")
		for _, s := range subjects {
			if err := nc.PublishRequest(s, nc.NewInbox(), []byte("{}")); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-refused:
				if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), fmt.Sprintf("%q", s)) {
					t.Fatalf("%s: %v", s, err)
				}
			case <-time.After(deadline):
				t.Fatalf("%s was not refused", s)
			}
		}
		for _, s := range []string{">", "gatehouse.v1.sessions.*", "$JS.API.>"} {
			if _, err := nc.SubscribeSync(s); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-refused:
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Fatalf("%s: %v", s, err)
				}
			case <-time.After(deadline):
				t.Fatalf("subscribing to %s was not refused", s)
			}
		}
	})
}

func TestCredentialFiles(t *testing.T) {
	srv := startServer(t)
	_, seed := user(t)
	wide := filepath.Join(t.TempDir(), "wide")
	b, err := os.ReadFile(seed)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wide, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(wide, 0o640); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"absent": filepath.Join(t.TempDir(), "none"), "open_to_others": wide, "garbage": garbage} {
		t.Run(name, func(t *testing.T) {
			_, err := bus.Open(context60(t), bus.Options{Node: "n1", URL: srv.url(), Creds: file, Log: quiet(t)})
			if problem.CodeOf(err) != problem.ConfigInvalid || strings.Contains(err.Error(), "canary") {
				t.Fatal(err)
			}
		})
	}
}
