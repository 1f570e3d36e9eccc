package policies

import "strconv"

// maxRules bounds a policy's egress list, sets expanded.
const maxRules = 20_000

var egressDescription = []byte(`{"actions":["dns.query","http.request","net.connect","operation.call","telemetry.emit"],"name":"egress","version":"1"}`)

func (e *egress) describe() []byte { return egressDescription }

func newEgress(p policy) (*egress, bool) {
	e := &egress{
		deniedName:      newAnswer(deny, egressDefault, ReasonNameNotListed),
		deniedTelemetry: newAnswer(deny, egressDefault, ReasonConnectionNotListed),
		deniedOperation: newAnswer(deny, egressDefault, ReasonOperationNotListed),
		notMine:         newAnswer(abstain, "egress", ReasonNotMine),
	}
	for s, reason := range stageReasons {
		e.denied[s] = newAnswer(deny, egressDefault, reason)
	}
	var hosts []string
	if p.egress != nil {
		c := cursor{b: p.egress}
		c.eat('[')
		for first := true; c.more(']', &first); {
			host, ok := e.addRule(&c)
			if !ok || len(e.rules) > maxRules {
				return nil, false
			}
			hosts = append(hosts, host)
		}
		if !c.done() {
			return nil, false
		}
	}
	var ok, ok2, ok3 bool
	e.hosts, ok = newHostIndex(hosts)
	e.telemetry, ok2 = newListing("telemetry", p.telemetry)
	e.operations, ok3 = newListing("operations", p.operations)
	return e, ok && ok2 && ok3
}

// addRule reads one egress rule and returns its host pattern. Every field is
// required but "connection", "blind", "encoded_slash" and "upgrade", whose
// absence is the narrower meaning.
func (e *egress) addRule(c *cursor) (host string, ok bool) {
	var r egressRule
	var id string
	var ports, schemes, methods, paths bool
	good := true
	o := object{c: c}
	for o.next() {
		switch string(o.key) {
		case "id":
			id = stringOf(c)
		case "host":
			host = stringOf(c)
		case "ports":
			ports = true
			c.eat('[')
			for first := true; c.more(']', &first); {
				n := c.integer()
				good = good && n > 0 && n < 65536
				r.ports = append(r.ports, n)
			}
		case "schemes":
			schemes = true
			for _, s := range stringsOf(c) {
				bit := schemeBit([]byte(s))
				good = good && bit != 0
				r.schemes |= bit
			}
		case "methods":
			methods = true
			for _, m := range stringsOf(c) {
				bit, ok := e.internMethod(m)
				good = good && ok
				r.methods |= bit
			}
		case "paths":
			paths = true
			for _, p := range stringsOf(c) {
				path, ok := parsePath(p)
				good = good && ok
				r.paths = append(r.paths, path)
			}
		case "connection":
			r.connection = stringOf(c)
		case "encoded_slash":
			r.encodedSlash = c.boolean()
		case "blind":
			r.blind = stringOf(c)
			good = good && (r.blind == "" || r.blind == "tcp" || r.blind == "tls")
		case "upgrade":
			r.upgrade = stringOf(c)
			good = good && (r.upgrade == "" || r.upgrade == "websocket")
		case "addresses", "names", "up", "down", "idle", "env", "uses":
			c.value() // bounds that the gate, the door and upstream apply after an allow
		default:
			c.fail()
		}
	}
	// EG-101: an empty port list, a rule without a host or with a newline in it
	// is refused at load. An empty method list is legal: it opens the tunnel and
	// the name and no request, for hosts that another enforcer judges.
	if c.bad || !good || !ruleOK(id) || host == "" || len(r.ports) == 0 || !(ports && schemes && methods && paths) {
		return "", false
	}
	r.allowed = newAnswer(allow, id, ReasonListed)
	e.rules = append(e.rules, r)
	return host, true
}

// internMethod gives each distinct method a bit.
func (e *egress) internMethod(m string) (bit uint64, ok bool) {
	if m == "" || len(m) > 32 {
		return 0, false
	}
	for i, x := range e.methods {
		if x == m {
			return 1 << i, true
		}
	}
	if len(e.methods) == 64 {
		return 0, false
	}
	e.methods = append(e.methods, m)
	return 1 << (len(e.methods) - 1), true
}

// newListing reads an array of names; the rule ids are section[i].
func newListing(section string, b []byte) ([]listing, bool) {
	if b == nil {
		return nil, true
	}
	c := cursor{b: b}
	var out []listing
	for i, name := range stringsOf(&c) {
		if name == "" {
			return nil, false
		}
		out = append(out, listing{name, newAnswer(allow, section+"["+strconv.Itoa(i)+"]", ReasonListed)})
	}
	return out, c.done()
}
