package main

import (
	"context"

	"gatehouse/enforcers"
	"gatehouse/enforcers/telemetry"
	"gatehouse/gatekeeper"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

// relays give sessions their way to telemetry connections.
type relays struct {
	conns map[string]telemetry.Connection
	seen  func(telemetry.Event)
}

// newRelays registers the telemetry connections' injectors.
func newRelays(p parts) (*relays, error) {
	t := &relays{conns: map[string]telemetry.Connection{}}
	if p.metrics != nil {
		t.seen = func(e telemetry.Event) { p.metrics.Telemetry.WithLabelValues(e.Connection, e.Code).Inc() }
	}
	for _, c := range p.cfg.Connections {
		if c.Kind != "telemetry" {
			continue
		}
		conn := telemetryConnection(c)
		injector, err := telemetry.Injector(conn)
		if err != nil {
			return nil, err
		}
		p.inject[c.Name], t.conns[c.Name] = injector, conn
	}
	return t, nil
}

// telemetryConnection reads a connection of kind telemetry. A host is the same
// as an address without a path.
func telemetryConnection(c config.Connection) telemetry.Connection {
	at := c.API
	if at == "" && c.Host != "" {
		at = "https://" + c.Host
	}
	return telemetry.Connection{Name: c.Name, Provider: c.Provider, URL: at, Scheme: c.Scheme, Header: c.Header, Credential: c.Credential.Value()}
}

// Mediate returns the session's routes to the connections that its bundle lists.
func (t *relays) Mediate(_ context.Context, s gatekeeper.DoorSpec, _ *enforcers.Gate) (mediation, error) {
	var conns []telemetry.Connection
	for _, name := range s.Bundle.Telemetry {
		c, ok := t.conns[name]
		if !ok {
			return mediation{}, problem.New(problem.ConfigInvalid, "the bundle names the connection "+name+", which is no telemetry connection of this node", "")
		}
		conns = append(conns, c)
	}
	if len(conns) == 0 {
		return mediation{}, nil
	}
	m, err := telemetry.New(telemetry.Options{Session: s.Session, Bundle: s.Bundle.Name, Connections: conns, Seen: t.seen})
	if err != nil {
		return mediation{}, err
	}
	return mediation{Routes: m.Routes(), Inside: gatekeeper.Inside{Env: m.Env()}}, nil
}
