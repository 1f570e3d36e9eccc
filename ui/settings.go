package ui

import (
	"context"
	"net/http"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// Provider is what the node knows of one sandbox provider.
type Provider struct {
	Name         string
	Declared     []string // capabilities it says it has
	Report       *ConformanceReport
	ReportFault  string // why there is no report that holds
	UsedBy       []ProviderUse
	NotAvailable string // why sessions of it are refused; "" when it works
}

// ProviderUse is a bundle that runs under a provider: what was configured and
// what is in force.
type ProviderUse struct {
	Bundle                string
	Configured, Effective string // modes
	Policy                string // credential policy
}

// ConformanceReport is a provider's signed report.
type ConformanceReport struct {
	At, Expires            time.Time
	Version, User          string
	Passed, Failed, Absent int
	Cases                  []ConformanceCase
}

// ConformanceCase is one case of a report.
type ConformanceCase struct{ ID, Name, Outcome, Evidence, Proves string }

// Setting is one line of the node's configuration in words. It never holds a
// secret, and names where one is read from.
type Setting struct{ Name, Value, Note string }

// Settings is the configuration as it is in force, for reading.
type Settings struct {
	Listeners, Endpoints, Connections, People, Keys, Auditors, Rules []Setting
}

// Inventory says what the node is made of.
type Inventory interface {
	Providers(ctx context.Context) ([]Provider, error)
	Settings(ctx context.Context) (Settings, error)
}

func (u *UI) providers(r *http.Request) (answer, error) {
	all, err := u.o.Inventory.Providers(r.Context())
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Providers", body: providersPage(all)}, nil
}

func (u *UI) settings(r *http.Request) (answer, error) {
	s, err := u.o.Inventory.Settings(r.Context())
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Settings", body: settingsPage(s)}, nil
}

// proven says what a report shows of a declared capability: "" for nothing.
func proven(r *ConformanceReport, capability string) (o string) {
	if r == nil {
		return ""
	}
	for _, c := range r.Cases {
		if c.Proves != capability {
			continue
		}
		if c.Outcome == sandbox.Failed {
			return sandbox.Failed
		}
		o = sandbox.Passed
	}
	return o
}
