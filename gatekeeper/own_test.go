package gatekeeper

import (
	"strings"
	"testing"

	"golang.org/x/net/publicsuffix"
)

// shared are names under which strangers have a place of their own, or hosts that
// take a stranger's key: data that goes there may reach anybody (RV-01).
var shared = []string{
	"sentry.io", "storage.googleapis.com", "api.github.com", "github.com", "raw.githubusercontent.com", "api.anthropic.com", "api.openai.com",
	"claude.ai", "chatgpt.com", "opencode.ai", "generativelanguage.googleapis.com", "datadoghq.com", "amazonaws.com", "cloudfront.net", "posthog.com",
}

// TestOwnEndpoint holds the lists to exact names of hosts that no stranger shares.
func TestOwnEndpoint(t *testing.T) {
	for agent, p := range presets {
		t.Run("RV-01_"+agent, func(t *testing.T) {
			for _, host := range p.own {
				if !OwnEndpoint(agent, host) || OwnEndpoint("command", host) || OwnEndpoint(agent, "x."+host) {
					t.Errorf("%s is not exactly %s's", host, agent)
				}
				if strings.ContainsAny(host, "*/:") || host != strings.ToLower(host) || strings.Count(host, ".") == 0 {
					t.Errorf("%s is no host name", host)
				}
				if suffix, icann := publicsuffix.PublicSuffix(host); suffix == host || !icann {
					t.Errorf("anybody may have a name under %s", suffix)
				}
				for _, s := range shared {
					if host == s || s != "github.com" && s != "claude.ai" && s != "chatgpt.com" && strings.HasSuffix(host, "."+s) {
						t.Errorf("%s is shared", host)
					}
				}
			}
		})
	}
}
