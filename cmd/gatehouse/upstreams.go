package main

import (
	"net/url"
	"slices"

	"gatehouse/enforcers/model"
	"gatehouse/enforcers/telemetry"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/config"
)

// hostsByProvider are the hosts of the providers that have fixed ones. Those of
// models are the mediator's to say; a self-hosted provider's connection names
// its own.
var hostsByProvider = map[string][]string{
	"github": {"github.com", "api.github.com"},
}

// upstreamsOf lists the hosts whose requests are judged by another enforcer
// than egress, for the tunnels and names of compiled policies. A connection's
// own host or api stands in place of its provider's.
func upstreamsOf(cfg *config.Config) []bundle.Upstream {
	var out []bundle.Upstream
	for _, c := range cfg.Connections {
		if !slices.Contains([]string{"model", "scm", "telemetry"}, c.Kind) {
			continue
		}
		var hosts []string
		if c.Host != "" {
			hosts = append(hosts, c.Host)
		}
		if u, err := url.Parse(c.API); err == nil && u.Hostname() != "" && !slices.Contains(hosts, u.Hostname()) {
			hosts = append(hosts, u.Hostname())
		}
		if len(hosts) == 0 {
			hosts = hostsByProvider[c.Provider]
		}
		if c.Kind == "model" && c.Host == "" {
			// An unknown provider has no host; making its mediator says so.
			if conn, err := modelConnection(c); err == nil {
				if to, err := model.Host(conn); err == nil {
					hosts = []string{to.Host()}
				}
			}
		}
		if c.Kind == "telemetry" {
			hosts = nil // a DSN names its own host; making its mediator says what is wrong
			if to, err := telemetry.Host(telemetryConnection(c)); err == nil {
				hosts = []string{to.Host()}
			}
		}
		if len(hosts) > 0 {
			out = append(out, bundle.Upstream{Connection: c.Name, Kind: c.Kind, Hosts: hosts})
		}
	}
	return out
}
