package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/config"
)

// TestUpstreamsOf: tunnels to what a connection is for are judged by the kind of
// request inside them, wherever the connection says that is.
func TestUpstreamsOf(t *testing.T) {
	for name, c := range map[string]struct {
		connection config.Connection
		hosts      []string
	}{
		"github":            {config.Connection{Kind: "scm", Provider: "github"}, []string{"github.com", "api.github.com"}},
		"enterprise server": {config.Connection{Kind: "scm", Provider: "github", API: "https://ghe.example.com/api/v3/"}, []string{"ghe.example.com"}},
		"anthropic":         {config.Connection{Kind: "model", Provider: "anthropic"}, []string{"api.anthropic.com"}},
		"google":            {config.Connection{Kind: "model", Provider: "google"}, []string{"generativelanguage.googleapis.com"}},
		"openai":            {config.Connection{Kind: "model", Provider: "openai"}, []string{"api.openai.com"}},
		"own host":          {config.Connection{Kind: "model", Provider: "openai", Host: "models.example.com"}, []string{"models.example.com"}},
		"of kind http":      {config.Connection{Kind: "http", Host: "packages.example.com"}, nil},
		"unknown":           {config.Connection{Kind: "model", Provider: "nobody"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.connection.Name = "x"
			var want []bundle.Upstream
			if c.hosts != nil {
				want = []bundle.Upstream{{Connection: "x", Kind: c.connection.Kind, Hosts: c.hosts}}
			}
			if diff := cmp.Diff(want, upstreamsOf(&config.Config{Connections: []config.Connection{c.connection}})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
