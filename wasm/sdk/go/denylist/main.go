// Command denylist is the example enforcer that every SDK has: it denies the
// hosts listed in its params, {"hosts":["evil.test"]}, and all names below
// them, and abstains from everything else.
package main

import (
	"encoding/json"
	"errors"
	"strings"

	gatehouse "gatehouse/wasm/sdk/go"
)

func main() {}

var _ = gatehouse.Register(&denylist{})

type denylist struct{ hosts []string }

func (d *denylist) Describe() gatehouse.Description {
	return gatehouse.Description{
		Name: "denylist", Version: "1", Rules: []string{"denylist"},
		Actions: []string{"dns.query", "git.fetch", "git.push", "http.request", "model.call", "net.connect", "operation.call", "session.spawn", "telemetry.emit"},
	}
}

func (d *denylist) Configure(_, params json.RawMessage) error {
	var p struct{ Hosts []string }
	if err := json.Unmarshal(params, &p); err != nil {
		return err
	}
	if len(p.Hosts) == 0 {
		return errors.New("params.hosts is empty")
	}
	d.hosts = p.Hosts
	return nil
}

func (d *denylist) Decide(a *gatehouse.Action) gatehouse.Verdict {
	for _, h := range d.hosts {
		if name := a.Host(); name == h || strings.HasSuffix(name, "."+h) {
			return gatehouse.Deny("denylist", "host_denied")
		}
	}
	return gatehouse.Abstain("denylist", "not_listed")
}
