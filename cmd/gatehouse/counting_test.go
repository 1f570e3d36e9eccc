package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// scrape returns the samples that a running node's private listener shows.
func (n *liveNode) scrape() string {
	n.t.Helper()
	res, err := http.Get("http://" + n.private + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		n.t.Fatal(res.Status, err)
	}
	return string(b)
}

// TestCounting: what a node decided and wrote down shows in its metrics.
func TestCounting(t *testing.T) {
	t.Parallel()
	world, site := listedWorld(t)
	config, bundle := knocker(world)
	n := newLiveNode(t, config, bundle)
	n.args = []string{"--dev"}
	n.start()
	n.deliver(failure(1), quiet(2))
	n.until("asking outside", func() bool { return site.Requests() > 2 })
	running := []string{
		`gatehouse_admissions_total{bundle="knocker",decision="admitted",reason=""} 1`,
		`gatehouse_admissions_total{bundle="",decision="refused",reason="no_match"} 1`,
		`gatehouse_sessions_active{provider="local"} 1`,
		`gatehouse_ready 1`,
	}
	shows := func(want []string) func() bool {
		return func() bool {
			got := n.scrape()
			for _, w := range want {
				if !strings.Contains(got, w+"\n") {
					return false
				}
			}
			return true
		}
	}
	n.until("counted while it runs", shows(running))
	if got := n.scrape(); !regexp.MustCompile(`gatehouse_verdicts_total{enforcer="[a-z.]+",mode="hard",reason="[a-z_]*",verdict="allow"} [1-9]`).MatchString(got) {
		t.Errorf("no allowed verdict in:\n%s", got)
	}
	if regexp.MustCompile(`gatehouse_checkpoint_timestamp_seconds 0\n`).MatchString(n.scrape()) {
		t.Error("no checkpoint time")
	}
	for _, s := range n.sessions() {
		if s.State == "running" {
			n.gatehouse(exitOK, "session", "kill", s.ID)
		}
	}
	n.until("counted when it has ended", shows([]string{
		`gatehouse_sessions_active{provider="local"} 0`,
		`gatehouse_receipts_appended_total{type="session.close"} 2`,
	}))
	n.stop()
}
