package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/bus"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
	"gatehouse/ui"
)

// inventory tells the pages what the node is made of.
type inventory struct {
	cfg       *config.Config
	state     state
	providers map[string]sandbox.Provider
	keyset    func() *receipts.Keyset
	gk        *gatekeeper.Gatekeeper
	bus       *bus.Bus
}

// Providers returns the node's providers with their signed reports and the
// bundles that run under them.
func (i inventory) Providers(ctx context.Context) ([]ui.Provider, error) {
	bundles, err := i.gk.Bundles(ctx)
	if err != nil {
		return nil, err
	}
	configured := map[string]string{}
	files, err := readBundles(i.cfg)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if b, err := readBundle(f.Name); err == nil {
			configured[b.Name] = string(b.Mode)
		}
	}
	var out []ui.Provider
	for _, name := range slices.Sorted(maps.Keys(i.providers)) {
		p := i.providers[name]
		v := ui.Provider{Name: name}
		for c, has := range p.Capabilities() {
			if has {
				v.Declared = append(v.Declared, string(c))
			}
		}
		slices.Sort(v.Declared)
		report, err := i.report(name, time.Now())
		if err != nil {
			v.ReportFault = faultOf(err)
		} else {
			v.Report = reportOf(report)
		}
		for _, b := range bundles {
			if b.Bundle.Session.Provider == name {
				v.UsedBy = append(v.UsedBy, ui.ProviderUse{
					Bundle: b.Bundle.Name, Configured: orElse(configured[b.Bundle.Name], string(b.Bundle.Mode)), Effective: string(b.Bundle.Mode), Policy: string(b.Bundle.Credentials.Policy),
				})
			}
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		out = append(out, ui.Provider{Name: "local", NotAvailable: "this machine lacks what the provider needs; gatehouse doctor says what", ReportFault: "nothing was judged"})
	}
	return out, nil
}

// report returns the signed report of a provider, if it holds at now.
func (i inventory) report(name string, now time.Time) (*conformance, error) {
	r, err := loadConformance(i.state, i.keyset(), name)
	if err != nil {
		return nil, err
	}
	p, ok := i.providers[name]
	if !ok {
		return nil, problem.New(problem.NotFound, "the node has no provider "+name, "providers: in the configuration names them")
	}
	return r, r.holds(p, now)
}

func reportOf(r *conformance) *ui.ConformanceReport {
	out := &ui.ConformanceReport{At: r.At, Expires: r.Expires, Version: r.Version, User: r.User, Passed: r.Passed, Failed: r.Failed, Absent: r.Absent}
	for _, c := range r.Cases {
		out.Cases = append(out.Cases, ui.ConformanceCase{ID: c.ID, Name: c.Name, Outcome: c.Outcome, Evidence: c.Evidence, Proves: c.Proves})
	}
	return out
}

// Settings says the configuration in words. A secret is its reference.
func (i inventory) Settings(ctx context.Context) (ui.Settings, error) {
	c := i.cfg
	s := ui.Settings{
		Listeners: []ui.Setting{
			{Name: "hooks", Value: c.Listen.Hooks, Note: "the only one meant to be public"},
			{Name: "operator", Value: c.OperatorURL()},
			{Name: "private", Value: c.Listen.Private},
			{Name: "public_url", Value: c.PublicURL},
		},
		Rules: []ui.Setting{
			{Name: "promotion.approvers", Value: fmt.Sprint(c.Promotion.Approvers)},
			{Name: "retain", Value: time.Duration(c.Retain).String()},
			{Name: "sandbox.unlimited", Value: c.Sandbox.Unlimited},
			{Name: "internal_networks", Value: strings.Trim(fmt.Sprint(c.InternalNetworks), "[]")},
		},
	}
	for _, e := range c.Endpoints {
		var refs []string
		for _, secret := range e.Secrets {
			refs = append(refs, secret.Ref())
		}
		note := strings.Join(refs, ", ")
		if e.Schedule != "" {
			note = e.Schedule + " " + e.Zone
		}
		s.Endpoints = append(s.Endpoints, ui.Setting{Name: e.Name, Value: e.Source, Note: note})
	}
	for _, n := range c.Connections {
		s.Connections = append(s.Connections, ui.Setting{Name: n.Name, Value: strings.TrimSpace(n.Kind + " " + n.Provider + " " + n.Host), Note: n.Credential.Ref()})
	}
	for _, k := range keyRows(i.keyset()) {
		until := "no end"
		if k.Until != 0 {
			until = fmt.Sprintf("index %d", k.Until)
		}
		s.Keys = append(s.Keys, ui.Setting{Name: k.Purpose, Value: k.ID, Note: fmt.Sprintf("%s, from index %d to %s", k.State, k.From, until)})
	}
	if o := c.OIDC; o != nil {
		s.People = append(s.People, ui.Setting{Name: "issuer", Value: o.Issuer, Note: "people are named by their " + orElse(o.Person, "email")})
		for _, group := range slices.Sorted(maps.Keys(o.Roles)) {
			s.People = append(s.People, ui.Setting{Name: group, Value: strings.Join(o.Roles[group], ", "), Note: "group"})
		}
	}
	if c.NATS.URL != "" { // the embedded server has no listener that an auditor could use
		auditors, err := i.bus.Auditors(ctx)
		if err != nil {
			return ui.Settings{}, problem.Wrap(err, problem.Unavailable, "the auditors could not be listed", "Try again.")
		}
		for _, a := range auditors {
			s.Auditors = append(s.Auditors, ui.Setting{Name: a.Name, Value: orElse(a.Session, "every session")})
		}
	}
	return s, nil
}

// faultOf is an error in the words that a person is shown.
func faultOf(err error) string {
	if hint := problem.HintOf(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
