package bus_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"gatehouse/internal/bus"
	"gatehouse/internal/problem"
)

// auditor connects as one, with nothing but the file that it was given.
func auditor(t *testing.T, url, name string, seed []byte) (*nats.Conn, <-chan error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	opt, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 64)
	nc, err := nats.Connect(url, opt, nats.CustomInboxPrefix("_INBOX_"+name),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, refused
}

// pull reads most messages through an auditor's consumer.
func pull(t *testing.T, nc *nats.Conn, stream, name string, most int) (subjects []string) {
	t.Helper()
	js, err := jetstream.NewWithAPIPrefix(nc, bus.AuditorAPI)
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(context60(t), stream, "auditor_"+name)
	if err != nil {
		t.Fatalf("%s cannot read %s: %v", name, stream, err)
	}
	batch, err := c.Fetch(most, jetstream.FetchMaxWait(deadline))
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		subjects = append(subjects, m.Subject())
	}
	return subjects
}

// TestTamperAuditor gives two auditors what they may read, against the deployed
// configuration, and tries everything else (RC-46).
func TestTamperAuditor(t *testing.T) {
	all, one := bus.Auditor{Name: "all"}, bus.Auditor{Name: "one", Session: "S1"}
	var creds []*bus.Credentials
	var users []string
	for _, a := range []bus.Auditor{all, one} {
		c, err := a.NewCredentials(nil, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		creds, users = append(creds, c), append(users, c.User)
	}
	url, admin, node := deployed(t, users...)
	makeStreams(t, url, admin)
	b, j := open(t, bus.Options{URL: url, Creds: node}), openJournal(t, t.TempDir())
	for _, a := range []bus.Auditor{all, one} {
		if err := b.AddAuditor(context60(t), a); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.AddAuditor(context60(t), bus.Auditor{Name: "all", Session: "S1"}); problem.CodeOf(err) != problem.Conflict {
		t.Fatalf("an auditor's consumer was changed: %v", err)
	}
	if err := b.AddAuditor(context60(t), bus.Auditor{Name: "a.b"}); problem.CodeOf(err) != problem.Usage {
		t.Fatal(err)
	}
	list, err := b.Auditors(context60(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]bus.Auditor{all, one}, list); d != "" {
		t.Fatal(d)
	}

	add(t, j, event("e1", "{}"), receipt(1, 0), receipt(2, 0), receipt(1, 1))
	pumping(t, b, j)
	stored(t, b, j)
	everything, refused := auditor(t, url, "all", creds[0].File)
	single, _ := auditor(t, url, "one", creds[1].File)
	if d := cmp.Diff([]string{"gatehouse.v1.sessions.S1", "gatehouse.v1.sessions.S2", "gatehouse.v1.sessions.S1"}, pull(t, everything, bus.Sessions, "all", 3)); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff([]string{"gatehouse.v1.sessions.S1", "gatehouse.v1.sessions.S1"}, pull(t, single, bus.Sessions, "one", 2)); d != "" {
		t.Fatal(d)
	}
	add(t, j, receipt(2, 1)) // while the session runs
	stored(t, b, j)
	if d := cmp.Diff([]string{"gatehouse.v1.sessions.S2"}, pull(t, everything, bus.Sessions, "all", 1)); d != "" {
		t.Fatal(d)
	}

	t.Run("RC-46_may_not", func(t *testing.T) {
		subjects := []string{
			"gatehouse.v1.sessions.S1", "gatehouse.v1.events.a.b.c.d.e", "gatehouse.v1.log.n1", "$KV.gatehouse_claims.k", "other",
			"$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.INFO", "$SYS.REQ.SERVER.PING",
			// Another auditor's, and the gatekeeper's.
			"GATEHOUSE.API.CONSUMER.MSG.NEXT.GATEHOUSE_SESSIONS.auditor_one", "GATEHOUSE.API.CONSUMER.INFO.GATEHOUSE_SESSIONS.auditor_one",
			"GATEHOUSE.API.CONSUMER.MSG.NEXT.GATEHOUSE_SESSIONS.gatekeeper", "$JS.API.CONSUMER.MSG.NEXT.GATEHOUSE_SESSIONS.auditor_all",
			"$JS.API.CONSUMER.MSG.NEXT.GATEHOUSE_EVENTS.gatekeeper", "$JS.ACK.GATEHOUSE_SESSIONS.auditor_all.1.1.1.1.0",
		}
		for _, s := range streamNames {
			for _, verb := range []string{
				"STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.INFO", "STREAM.MSG.DELETE", "STREAM.MSG.GET", "DIRECT.GET",
				"CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.LIST", "CONSUMER.NAMES", "STREAM.SNAPSHOT",
			} {
				subjects = append(subjects, "$JS.API."+verb+"."+s)
			}
			// A push consumer that delivers where it likes.
			subjects = append(subjects, "$JS.API.CONSUMER.CREATE."+s+".mine", "$JS.API.CONSUMER.DURABLE.CREATE."+s+".mine", "$JS.API.CONSUMER.DELETE."+s+".auditor_all")
		}
		for _, s := range subjects {
			if err := everything.PublishRequest(s, "_INBOX_all.x", []byte(`{"config":{"deliver_subject":"gatehouse.v1.events.a.b.c.d.e"}}`)); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-refused:
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Fatalf("%s: %v", s, err)
				}
			case <-time.After(deadline):
				t.Fatalf("%s was not refused", s)
			}
		}
		for _, s := range []string{">", "gatehouse.v1.sessions.*", "_INBOX.>", "_INBOX_one.>", "$JS.API.>"} {
			if _, err := everything.SubscribeSync(s); err != nil {
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
	t.Run("RC-46_answers_stay_in_the_account", func(t *testing.T) {
		// Inside the node's account this would store a receipt as an event (tried).
		before := contents(t, b, bus.Events)
		add(t, j, receipt(1, 2), receipt(2, 2))
		stored(t, b, j)
		for range 2 {
			if err := everything.PublishRequest(bus.AuditorAPI+".CONSUMER.MSG.NEXT.GATEHOUSE_SESSIONS.auditor_all", eventSubject("squat"), []byte(`{"batch":1}`)); err != nil {
				t.Fatal(err)
			}
		}
		// The consumer answers in order: nothing went elsewhere before this.
		if d := cmp.Diff([]string{"gatehouse.v1.sessions.S1", "gatehouse.v1.sessions.S2"}, pull(t, everything, bus.Sessions, "all", 2)); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(before, contents(t, b, bus.Events)); d != "" {
			t.Fatalf("an auditor made the server write an event: %s", d)
		}
	})

	if err := b.RemoveAuditor(context60(t), "all"); err != nil {
		t.Fatal(err)
	}
	if err := b.RemoveAuditor(context60(t), "all"); problem.CodeOf(err) != problem.NotFound {
		t.Fatal(err)
	}
	js, err := jetstream.NewWithAPIPrefix(everything, bus.AuditorAPI)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if _, err := js.Consumer(ctx, bus.Sessions, "auditor_all"); err == nil {
		t.Fatal("a removed auditor still reads")
	}
	if list, err := b.Auditors(context60(t)); err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
}

// natsCLI returns the stock nats command: that of GATEHOUSE_NATS_CLI, or the one
// that `make setup` builds from its module into .tools.
func natsCLI(t *testing.T) string {
	t.Helper()
	for _, path := range []string{os.Getenv("GATEHOUSE_NATS_CLI"), "../../.tools/nats"} {
		if path == "" {
			continue
		}
		if path, err := filepath.Abs(path); err == nil {
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
	}
	t.Skip("SKIPPED: THE STOCK nats COMMAND IS NOT THERE (make setup builds it, or name one in GATEHOUSE_NATS_CLI)")
	return ""
}

// TestAuditorWithStockCLI reads a session with the stock nats command while it
// goes on, as docs/auditors.md says, and is refused everything else.
func TestAuditorWithStockCLI(t *testing.T) {
	cli := natsCLI(t)
	a := bus.Auditor{Name: "ann", Session: "S1"}
	creds, err := a.NewCredentials(nil, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	url, admin, node := deployed(t, creds.User)
	makeStreams(t, url, admin)
	b, j := open(t, bus.Options{URL: url, Creds: node}), openJournal(t, t.TempDir())
	if err := b.AddAuditor(context60(t), a); err != nil {
		t.Fatal(err)
	}
	add(t, j, event("e1", "{}"), receipt(1, 0), receipt(2, 0))
	pumping(t, b, j)
	stored(t, b, j)
	file := filepath.Join(t.TempDir(), "ann.creds")
	if err := os.WriteFile(file, creds.File, 0o600); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	run := func(prefix string, args ...string) (string, error) {
		flags := []string{"--server", url, "--nkey", file, "--inbox-prefix", "_INBOX_ann", "--timeout", "2s"}
		if prefix != "" {
			flags = append(flags, "--js-api-prefix", prefix)
		}
		cmd := exec.CommandContext(context60(t), cli, append(flags, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	next := func(want string) {
		t.Helper()
		if out, err := run(bus.AuditorAPI, "consumer", "next", bus.Sessions, "auditor_ann"); err != nil || !strings.Contains(out, "gatehouse.v1.sessions.S1") || !strings.Contains(out, want) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	next("session 1 receipt 0")
	add(t, j, receipt(2, 1), receipt(1, 1)) // while the session runs
	stored(t, b, j)
	next("session 1 receipt 1")

	before := map[string]map[string][]string{}
	for _, s := range []string{bus.Events, bus.Sessions, bus.Log} {
		before[s] = contents(t, b, s)
	}
	target := eventSubject("squat")
	config := filepath.Join(home, "push.json")
	if err := os.WriteFile(config, []byte(`{"deliver_subject":"`+target+`","deliver_policy":"all","ack_policy":"none","replay_policy":"instant"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("RC-46", func(t *testing.T) {
		for name, args := range map[string][]string{
			"delete":           {"stream", "rm", bus.Sessions, "-f"},
			"purge":            {"stream", "purge", bus.Sessions, "-f"},
			"delete_a_message": {"stream", "rmm", bus.Sessions, "1", "-f"},
			"update":           {"stream", "edit", bus.Sessions, "--max-msgs", "1", "-f"},
			"read_events":      {"stream", "get", bus.Events, "1"},
			"read_actions":     {"stream", "get", bus.Actions, "1"},
			"pull_consumer":    {"consumer", "add", bus.Sessions, "mine", "--pull", "--defaults"},
			"push_consumer":    {"consumer", "add", bus.Sessions, "mine", "--config", config},
			"delete_consumer":  {"consumer", "rm", bus.Sessions, "auditor_ann", "-f"},
			"of_events":        {"consumer", "next", bus.Events, "gatekeeper"},
			"of_others":        {"consumer", "next", bus.Sessions, "gatekeeper"},
		} {
			for _, prefix := range []string{bus.AuditorAPI, ""} {
				t.Run(name+map[string]string{"": "_of_the_node"}[prefix], func(t *testing.T) {
					t.Parallel() // each waits for an answer that does not come
					out, err := run(prefix, args...)
					if err == nil || !strings.Contains(out, "permissions violation") {
						t.Errorf("not refused by the server: %v\n%s", err, out)
					}
				})
			}
		}
	})
	_, _ = run("", "publish", "gatehouse.v1.sessions.S1", "forged") // it reports no refusal
	_, _ = run("", "publish", target, "forged")
	for s, was := range before {
		if d := cmp.Diff(was, contents(t, b, s)); d != "" {
			t.Errorf("%s has changed: %s", s, d)
		}
	}
}

func TestAuditorCredsFile(t *testing.T) {
	account, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := account.Seed()
	if err != nil {
		t.Fatal(err)
	}
	until := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	c, err := bus.Auditor{Name: "ann", Session: "S1"}.NewCredentials(seed, until)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseDecoratedJWT(c.File)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := account.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"GATEHOUSE.API.CONSUMER.INFO.GATEHOUSE_SESSIONS.auditor_ann", "GATEHOUSE.API.CONSUMER.MSG.NEXT.GATEHOUSE_SESSIONS.auditor_ann",
		"GATEHOUSE.API.CONSUMER.INFO.GATEHOUSE_LOG.auditor_ann", "GATEHOUSE.API.CONSUMER.MSG.NEXT.GATEHOUSE_LOG.auditor_ann",
	}
	if claims.Issuer != issuer || claims.Subject != c.Public || claims.Expires != until.Unix() ||
		cmp.Diff(want, []string(claims.Pub.Allow)) != "" || cmp.Diff([]string{"_INBOX_ann.>"}, []string(claims.Sub.Allow)) != "" {
		t.Fatalf("%+v", claims)
	}
	if bytes.Contains(c.File, seed) {
		t.Fatal("the account's seed is in the auditor's file")
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string][]byte{"garbage": []byte("canary"), "a user's": wrong} {
		_, err := bus.Auditor{Name: "ann"}.NewCredentials(s, until)
		if problem.CodeOf(err) != problem.Usage || strings.Contains(err.Error(), string(s)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAuditorNeedsAListener(t *testing.T) {
	b := open(t, bus.Options{Dir: t.TempDir()})
	if err := b.AddAuditor(context60(t), bus.Auditor{Name: "ann"}); problem.CodeOf(err) != problem.Usage {
		t.Fatal(err)
	}
}
