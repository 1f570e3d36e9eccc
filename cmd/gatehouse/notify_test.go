package main

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net/http"
	"net/mail"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"gatehouse/enforcers/upstream"
	"gatehouse/internal/config"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/outside"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
)

// TestFirstRefusalIsTold: the first refusal after a promotion, and only that, goes
// to the receiver, once over restarts.
func TestFirstRefusalIsTold(t *testing.T) {
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	got := make(chan string, 100)
	if _, err := world.HTTP("hooks.test", netip.MustParseAddr("93.184.216.38"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(b)
	})); err != nil {
		t.Fatal(err)
	}
	n := newLiveNode(t, worldConfig(world)+"promotion: {approvers: 1}\nnotify: [{webhook: \"http://hooks.test/in/secret\"}]\n", `apiVersion: gatehouse/v1
kind: Bundle
name: told
accepts: outsider
match: [{source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure}}]
per_entity: 99/24h
session: {agent: {command: {argv: [/bin/sh, -c, "getent ahosts wanted.test; getent ahosts other.test; true"]}}, task: "go"}
`)
	n.args = []string{"--dev"}
	n.start()
	attempt := func(run int) { n.settled(n.deliver(failure(run))...) }
	attempt(1)
	n.gatehouse(exitOK, "bundle", "promote", "told", "--reason", "it is quiet")
	attempt(2)
	var m struct{ Type, Bundle, Host, Session, Reason, Text string }
	var told string
	select {
	case told = <-got:
	case <-time.After(patience):
		t.Fatal("nobody was told")
	}
	path, body, _ := strings.Cut(told, " ")
	if err := json.Unmarshal([]byte(body), &m); err != nil || path != "/in/secret" {
		t.Fatalf("%s %s: %v", path, body, err)
	}
	if m.Type != "gatehouse.first_refusal.v1" || m.Bundle != "told" || m.Host != "wanted.test" || m.Session == "" || !strings.Contains(m.Text, "first refusal of told") {
		t.Errorf("%+v", m)
	}
	n.until("the receipt", func() bool { return len(steps(n)) == 1 })
	n.stop()
	n.start()
	attempt(3)
	n.until("the list", func() bool {
		return strings.Contains(n.gatehouse(exitOK, "shadow", "list", "verdict:hard", "-o", "json"), `"hard":`)
	})
	n.stop()
	if len(got) != 0 {
		t.Errorf("told again: %s", <-got)
	}
}

// letterbox is a mail server that keeps what it takes.
type letterbox struct {
	mu      sync.Mutex
	letters []string
	logins  []string
}

func (b *letterbox) NewSession(*smtp.Conn) (smtp.Session, error) { return &mailing{box: b}, nil }

type mailing struct {
	box      *letterbox
	in       bool
	from, to string
}

func (d *mailing) AuthMechanisms() []string { return []string{sasl.Plain} }

func (d *mailing) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, username, password string) error {
		d.box.mu.Lock()
		defer d.box.mu.Unlock()
		d.box.logins = append(d.box.logins, username+" "+password)
		d.in = true
		return nil
	}), nil
}

func (d *mailing) Mail(from string, _ *smtp.MailOptions) error { d.from = from; return nil }
func (d *mailing) Rcpt(to string, _ *smtp.RcptOptions) error   { d.to = to; return nil }
func (d *mailing) Reset()                                      {}
func (d *mailing) Logout() error                               { return nil }

func (d *mailing) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	d.box.mu.Lock()
	defer d.box.mu.Unlock()
	d.box.letters = append(d.box.letters, fmt.Sprintf("%v %s %s\n%s", d.in, d.from, d.to, b))
	return err
}

// TestFirstRefusalIsMailed: a mailbox is told over TLS, after a login, with a
// receipt of the node's own; what the server has no certificate for gets nothing.
func TestFirstRefusalIsMailed(t *testing.T) {
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	l, site, err := world.TLS("mail.test", netip.MustParseAddr("93.184.216.39"), 465)
	if err != nil {
		t.Fatal(err)
	}
	box := &letterbox{}
	srv := smtp.NewServer(box)
	srv.Domain, srv.AllowInsecureAuth = "mail.test", true // its listener is TLS already
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	// The same server under a name that its certificate does not have.
	world.DNS.Answer("wrong.test", netip.MustParseAddr("93.184.216.39"))

	mailPassword := unique("mail", "s3cret-of-the-mailbox-")
	t.Setenv("MAIL_PASSWORD", mailPassword)
	load := func(server string) *config.Config {
		t.Helper()
		cfg, err := written(t, worldConfig(world)+"notify: [{smtp: \""+server+":465\", from: gatehouse@mail.test, to: ops@mail.test, username: gatehouse, password: \"${env:MAIL_PASSWORD}\"}]\n")
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	dev, err := devOf(load("mail.test"))
	if err != nil {
		t.Fatal(err)
	}
	dev.Roots = x509.NewCertPool()
	dev.Roots.AppendCertsFromPEM(world.CA())
	up, err := upstream.New(upstream.Options{Dev: dev})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	keys, err := notary.NewKeys("gatehouse.example/node-1")
	if err != nil {
		t.Fatal(err)
	}
	nt := notary.New(notary.Options{Node: "n1", Keys: keys})
	j, err := journal.Open(tempDir(t), journal.Options{Seal: nt.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if err := nt.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	n := &node{notary: nt}
	mailbox := func(server string) receiver {
		t.Helper()
		r, err := n.newMailbox("notify[0]", load(server).Notify[0], up, true)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	m := messageOf("n1", review.Refusal{Bundle: "told", Promotion: strings.Repeat("ab", 32), Kind: "http.request", Method: "GET", Host: "wanted.test", Rule: "gate.default_deny", Reason: "not_listed", Session: "01s"})
	if err := mailbox("mail.test").tell(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if len(box.letters) != 1 || len(box.logins) != 1 || box.logins[0] != "gatehouse "+mailPassword {
		t.Fatalf("%d letters, logins %q", len(box.letters), box.logins)
	}
	envelope, letter, _ := strings.Cut(box.letters[0], "\n")
	parsed, err := mail.ReadMessage(strings.NewReader(letter))
	if err != nil || envelope != "true gatehouse@mail.test ops@mail.test" || parsed.Header.Get("Subject") != "Gatehouse n1: first refusal of told" || parsed.Header.Get("Auto-Submitted") != "auto-generated" {
		t.Fatalf("%s\n%s\n%v", envelope, letter, err)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(parsed.Body))
	if err != nil || !strings.HasPrefix(string(body), m.Text) || !strings.Contains(string(body), `"host": "wanted.test"`) {
		t.Errorf("%v\n%s", err, body)
	}
	before := site.Accepts()
	if err := mailbox("wrong.test").tell(t.Context(), m); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a server without the certificate: %v", err)
	}
	if site.Accepts() != before+1 || len(box.logins) != 1 || len(box.letters) != 1 {
		t.Errorf("the server without the certificate heard %q %q", box.logins, box.letters)
	}
}

// written loads a configuration from a file.
func written(t *testing.T, yaml string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(tempDir(t), "gatehouse.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(path)
}

// TestNotifyIsChecked: a receiver that cannot be told is an error at start.
func TestNotifyIsChecked(t *testing.T) {
	for name, tc := range map[string]struct{ yaml, says string }{
		"both":        {`{webhook: "https://x.test/", smtp: "mail.test:465"}`, "one of the two"},
		"neither":     {`{to: a@b.test}`, "one of the two"},
		"no_to":       {`{smtp: "mail.test:465", from: a@b.test}`, "needs from and to"},
		"no_password": {`{smtp: "mail.test:465", from: a@b.test, to: a@b.test, username: x}`, "go together"},
		"cleartext":   {`{webhook: "http://x.test/"}`, "https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := written(t, "notify: ["+tc.yaml+"]\n")
			if err != nil {
				t.Fatal(err)
			}
			_, err = (&node{}).newNotifier(cfg, nil, nil, false)
			if problem.CodeOf(err) != problem.ConfigInvalid || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v", err)
			}
		})
	}
	for name, yaml := range map[string]string{"an_injected_header": `{smtp: "mail.test:465", from: "a@b.test\r\nBcc: c@d.test", to: a@b.test}`, "no_port": `{smtp: "mail.test", from: a@b.test, to: a@b.test}`} {
		t.Run(name, func(t *testing.T) {
			if _, err := written(t, "notify: ["+yaml+"]\n"); err == nil {
				t.Error("it is taken")
			}
		})
	}
}

// steps are the notifications that the control chain has.
func steps(n *liveNode) (out []string) {
	var page struct {
		Items []struct{ Step, Subject string }
	}
	if err := n.client.Get(n.t.Context(), "/v1/steps", nil, &page); err != nil {
		n.t.Fatal(err)
	}
	for _, s := range page.Items {
		if s.Step == "notify" {
			out = append(out, fmt.Sprint(s.Subject))
		}
	}
	return out
}
