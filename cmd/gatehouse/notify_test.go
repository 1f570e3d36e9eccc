package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gatehouse/internal/outside"
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
