package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/oauth2-proxy/mockoidc"

	"gatehouse/internal/api"
	"gatehouse/internal/outside"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/receipts"
)

const peopleBundle = `apiVersion: gatehouse/v1
kind: Bundle
name: two
mode: hard
accepts: member
match: [{source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure}}]
session: {agent: {command: {argv: [/bin/true]}}, task: "go"}
egress: [{host: %q}]
`

// person is somebody with a browser and the provider's account.
type person struct {
	t     *testing.T
	name  string
	n     *liveNode
	http  *http.Client
	token string // "" = by the browser's cookie
}

// logsIn goes to the provider and back, and proves itself there: this provider does
// not say when somebody did. idpAt is where it really is.
func logsIn(t *testing.T, n *liveNode, idp *mockoidc.MockOIDC, idpAt, name, group string) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == "idp.test:80" {
			addr = idpAt
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	p := &person{t: t, name: name, n: n, http: &http.Client{Jar: jar, Transport: transport}}
	if status, body := p.logIn(idp, name+"@example.com", group); status != http.StatusOK {
		t.Fatalf("%s could not log in: %d %s", name, status, body)
	}
	return p
}

// logIn has the provider vouch for an address.
func (p *person) logIn(idp *mockoidc.MockOIDC, email, group string) (status int, body string) {
	p.t.Helper()
	idp.QueueUser(&mockoidc.MockUser{Subject: p.name, Email: email, EmailVerified: true, Groups: []string{group}})
	r, err := p.http.Get("http://" + p.n.operator + "/login/oidc?again=1&to=/ui/")
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// does posts to the API and returns the problem's code, "" when it was done.
func (p *person) does(path, contentType, body string, out any) problem.Code {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.n.operator+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	client := *p.http
	if p.token != "" {
		client.Jar = nil
		req.Header.Set("Authorization", "Bearer "+p.token)
	} else {
		req.Header.Set("Origin", "http://"+p.n.operator)
	}
	r, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if r.StatusCode >= 300 {
		var x api.Problem
		if err := json.Unmarshal(b, &x); err != nil {
			p.t.Fatalf("%s: %s %s", path, r.Status, b)
		}
		return x.Code
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			p.t.Fatal(err)
		}
	}
	return ""
}

func (p *person) approves(proposal, digest string) problem.Code {
	return p.does("/v1/proposals/"+proposal+"/approve", "application/json", fmt.Sprintf(`{"digest":%q}`, digest), nil)
}

// TestTwoPeopleLive: on no road does one person widen a hard bundle. People log in
// at a provider over HTTP that the node reaches through its own checked exit.
func TestTwoPeopleLive(t *testing.T) {
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	idp, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = idp.Shutdown() })
	if _, err := world.HTTP("idp.test", netip.MustParseAddr("93.184.216.37"), idp.Server.Handler); err != nil {
		t.Fatal(err)
	}
	idp.Server.Addr = "idp.test"
	idpAt := world.Upstreams()["93.184.216.37:80"]
	t.Setenv("GATEHOUSE_TEST_IDP", idp.ClientSecret)
	n := newLiveNode(t, worldConfig(world)+fmt.Sprintf(
		"oidc: {issuer: %q, client_id: %q, secret: \"${env:GATEHOUSE_TEST_IDP}\", scopes: [groups], roles: {eng: [reviewer, approver], look: [viewer]}}\n", idp.Issuer(), idp.ClientID),
		fmt.Sprintf(peopleBundle, "a.example.com"))
	n.args = []string{"--dev"}
	n.start()
	ann := logsIn(t, n, idp, idpAt, "ann", "eng")
	bob := logsIn(t, n, idp, idpAt, "bob", "eng")
	eve := logsIn(t, n, idp, idpAt, "eve", "look")
	wide := fmt.Sprintf(peopleBundle, "*.example.com")
	propose := "/v1/bundles/two/proposals?" + url.Values{"reason": {"more hosts"}}.Encode()

	if got := eve.does(propose, "application/yaml", wide, nil); got != problem.Forbidden {
		t.Errorf("a viewer proposed: %q", got)
	}
	var p review.Proposal
	if got := ann.does(propose, "application/yaml", wide, &p); got != "" {
		t.Fatal(got)
	}
	var made api.NewToken
	if got := ann.does("/v1/tokens", "application/json", `{"name":"ci","roles":["approver"],"life":"1h"}`, &made); got != "" {
		t.Fatal(got)
	}
	known("token", []byte(made.Text))
	token := *ann
	token.token = made.Text
	for road, try := range map[string]func() problem.Code{
		"ui":             func() problem.Code { return ann.approves(p.ID, p.Digest) },
		"api_with_token": func() problem.Code { return token.approves(p.ID, p.Digest) },
		"another_login":  func() problem.Code { return logsIn(t, n, idp, idpAt, "ann", "eng").approves(p.ID, p.Digest) },
	} {
		t.Run("proposer_"+road, func(t *testing.T) {
			if got := try(); got != problem.SelfApproval {
				t.Errorf("%q", got)
			}
		})
	}
	t.Run("proposer_cli_with_token", func(t *testing.T) {
		t.Setenv(tokenVariable, made.Text)
		if out := n.gatehouse(exitFailed, "bundle", "approve", p.ID, "--digest", p.Digest); !strings.Contains(out, "self_approval") {
			t.Error(out)
		}
	})
	t.Run("machines_user", func(t *testing.T) {
		if out := n.gatehouse(exitFailed, "bundle", "approve", p.ID, "--digest", p.Digest); !strings.Contains(out, "person_unknown") {
			t.Error(out)
		}
	})
	t.Run("machines_users_apply_waits", func(t *testing.T) {
		n.write("wide.yaml", strings.Replace(wide, "*.example.com", "**.example.com", 1))
		if out := n.gatehouse(exitNegative, "bundle", "apply", n.path("wide.yaml")); !strings.Contains(out, "waiting") {
			t.Error(out)
		}
	})
	// The machine's user applied another version: what ann proposed is replaced.
	if got := bob.approves(p.ID, p.Digest); got != problem.Conflict {
		t.Errorf("a replaced proposal was approved: %q", got)
	}
	if got := ann.does(propose, "application/yaml", wide, &p); got != "" {
		t.Fatal(got)
	}
	if got := bob.approves(p.ID, strings.Repeat("0", 64)); got != problem.CandidateChanged {
		t.Errorf("another candidate was approved: %q", got)
	}
	if got := eve.approves(p.ID, p.Digest); got != problem.Forbidden {
		t.Errorf("a viewer approved: %q", got)
	}
	if got := bob.approves(p.ID, p.Digest); got != "" {
		t.Fatalf("a second person could not approve: %s", got)
	}
	var now api.BundleDetail
	if err := n.client.Get(t.Context(), "/v1/bundles/two", nil, &now); err != nil || now.Digest != p.Digest || now.Mode != "hard" {
		t.Errorf("in force: %+v, %v", now, err)
	}

	// Each step is a receipt that names the person, and the log verifies.
	f, err := n.client.File(t.Context(), "/v1/receipts/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	export, err := io.ReadAll(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	root := strings.TrimSpace(n.gatehouse(exitOK, "receipts", "root"))
	result := receipts.Verify(bytes.NewReader(export), receipts.Options{Root: root, Visit: func(_ uint64, _ receipts.Hash, r *receipts.Receipt) {
		if c := r.Change; c != nil && c.Bundle == "two" {
			steps = append(steps, fmt.Sprintf("%s %s by %s", r.Type, c.Result, c.By))
		}
	}})
	if result.Exit != receipts.ExitUnproven && result.Exit != receipts.ExitComplete {
		t.Errorf("exit %d: %s", result.Exit, result.Verdict())
	}
	want := "bundle.apply applied by config\napproval waiting by ann@example.com\nbundle.apply waiting by local\napproval waiting by ann@example.com\n" +
		"approval waiting by bob@example.com\nbundle.apply applied by bob@example.com"
	if got := strings.Join(steps, "\n"); got != want {
		t.Errorf("receipts:\n%s\nwant\n%s", got, want)
	}
	n.stop()

	// A restarted node still knows her account: under another address she is no
	// second person.
	n.start()
	if status, body := ann.logIn(idp, "ann.smith@example.com", "eng"); status == http.StatusOK || !strings.Contains(body, string(problem.PersonChanged)) {
		t.Errorf("under another address: %d %s", status, body)
	}
	if status, body := ann.logIn(idp, "ann@example.com", "eng"); status != http.StatusOK {
		t.Errorf("under her own: %d %s", status, body)
	}
	n.stop()
}
