package config

import "net"

// OperatorURL returns the operator listener's address as people open it.
func (c *Config) OperatorURL() string {
	if c.TLS != nil {
		return "https://" + c.Listen.Operator
	}
	return "http://" + c.Listen.Operator
}

// At returns the configuration with the operator listener's real port, which is
// known once it listens: port 0 leaves it to the system.
func (c *Config) At(operator net.Addr) *Config {
	own := *c
	if host, port, err := net.SplitHostPort(c.Listen.Operator); err == nil && port == "0" {
		_, port, _ = net.SplitHostPort(operator.String())
		own.Listen.Operator = net.JoinHostPort(host, port)
	}
	return &own
}

// OperatorHosts returns the exact Host values the operator listener answers
// to; anything else is a rebound name.
func (c *Config) OperatorHosts() []string {
	hosts := []string{c.Listen.Operator}
	if host, port, ok := splitLoopback(c.Listen.Operator); ok {
		for _, other := range []string{"localhost:" + port, "127.0.0.1:" + port, "[::1]:" + port} {
			if other != host+":"+port {
				hosts = append(hosts, other)
			}
		}
	}
	return hosts
}

// OperatorOrigins returns the exact Origin values that may post to it.
func (c *Config) OperatorOrigins() []string {
	scheme := "http://"
	if c.TLS != nil {
		scheme = "https://"
	}
	var out []string
	for _, h := range c.OperatorHosts() {
		out = append(out, scheme+h)
	}
	return out
}
