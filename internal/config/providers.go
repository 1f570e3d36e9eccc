package config

import "net/netip"

// Remote is a machine that speaks docs/api/remote-provider.yaml, gatehouse-remote
// for example.
type Remote struct {
	URL       string         `yaml:"url" validate:"required,url"`                       // of its contract, https
	CA        string         `yaml:"ca,omitempty"`                                      // PEM file of the authority of its certificate; default the system's
	Token     Secret         `yaml:"token"`                                             // that this node shows
	Addresses []netip.Prefix `yaml:"addresses,omitempty"`                               // the only ones its name may have; default public ones
	Doors     string         `yaml:"doors" validate:"required,hostport"`                // listener to which the machine's shims come
	Advertise string         `yaml:"advertise,omitempty" validate:"omitempty,hostport"` // its address as the machine reaches it; default doors
}

// OpenInspect is the webhook of one automation of an Open-Inspect deployment.
type OpenInspect struct {
	URL   string `yaml:"url" validate:"required,url"` // https://HOST/webhooks/automation/ID
	Token Secret `yaml:"token"`                       // the automation's key
}
