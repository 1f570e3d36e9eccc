package policies

// egress judges where a session may reach: net.connect, http.request,
// dns.query, telemetry.emit and operation.call. Rules are a list of what is
// allowed; the first one, in policy order, that allows an action names the
// verdict.
type egress struct {
	rules                                                 []egressRule
	hosts                                                 *hostIndex
	methods                                               []string // distinct methods; a rule holds a bit for each
	telemetry                                             []listing
	operations                                            []listing
	denied                                                [stageCount]*Answer
	deniedName, deniedTelemetry, deniedOperation, notMine *Answer

	found matches // scratch of one judge call
}

type egressRule struct {
	ports        []int64
	schemes      uint8
	methods      uint64
	paths        []pathPattern
	connection   string
	encodedSlash bool
	blind        string // "", "tcp" or "tls"
	upgrade      string // "" or "websocket"
	allowed      *Answer
}

// listing is one name whose listing is the permission.
type listing struct {
	name    string
	allowed *Answer
}

// The stages of judging one rule, in order. The deny reason of an action is
// that of the furthest stage any matching rule reached.
type stage uint8

const (
	stageHost stage = iota
	stageIP
	stagePort
	stageScheme
	stageBlind
	stageBlindOnly
	stageConnection
	stageMethod
	stagePath
	stageSlash
	stageUpgrade
	stageCount
)

var stageReasons = [stageCount]string{
	stageHost:       ReasonHostNotListed,
	stageIP:         ReasonIPLiteral,
	stagePort:       ReasonPortNotListed,
	stageScheme:     ReasonSchemeNotListed,
	stageBlind:      ReasonBlindNotListed,
	stageBlindOnly:  ReasonBlindOnly,
	stageConnection: ReasonConnectionNotListed,
	stageMethod:     ReasonMethodNotListed,
	stagePath:       ReasonPathNotListed,
	stageSlash:      ReasonEncodedSlash,
	stageUpgrade:    ReasonUpgradeNotListed,
}

const egressDefault = "egress.default_deny"

// request is one decoded action of egress's kinds. Its strings stand as the
// message spells them: one with an escape matches no rule, since no rule has
// any.
type request struct {
	kind, connection []byte
	body             body
	to               target
	method, path     []byte
	upgrade          []byte
	name             []byte // dns name or operation name
	literal, blind   bool
}

// body says which body an action carries.
type body uint8

const (
	bodyNone body = iota
	bodyConnect
	bodyHTTP
	bodyDNS
	bodyTelemetry
	bodyOperation
	bodyFetch
	bodyPush
	bodyModel
	bodySpawn
)

func (e *egress) judge(message []byte) *Answer {
	c, ok := envelope(message)
	if !ok {
		return nil
	}
	var r request
	r.decode(&c)
	if !c.closeEnvelope() {
		return nil
	}
	switch string(r.kind) {
	case "http.request":
		if r.body == bodyHTTP {
			return e.overRules(&r)
		}
	case "net.connect":
		if r.body == bodyConnect {
			return e.overRules(&r)
		}
	case "dns.query":
		if r.body == bodyDNS {
			return e.lookup(r.name)
		}
	case "telemetry.emit":
		if r.body == bodyTelemetry {
			return listed(e.telemetry, r.connection, e.deniedTelemetry)
		}
	case "operation.call":
		if r.body == bodyOperation {
			return listed(e.operations, r.name, e.deniedOperation)
		}
	default:
		return e.notMine
	}
	return nil // the kind without its body
}

// decode reads an action. Keys ascend, so the bodies stand on either side of
// the kind.
func (r *request) decode(c *cursor) {
	c.seek(`"connection":`)
	r.connection = c.raw()
	switch {
	case c.has(`,"http_request":{`):
		r.body = bodyHTTP
		c.seek(`"method":`)
		r.method = c.raw()
		c.seek(`"path":`)
		r.path = c.raw()
		c.seek(`"to":`)
		r.to.decode(c)
		c.seek(`"upgrade":`)
		r.upgrade = c.raw()
		c.finish()
	case c.has(`,"dns_query":{`):
		r.body = bodyDNS
		r.decodeName(c)
	}
	c.seek(`"kind":`)
	r.kind = c.raw()
	switch {
	case c.has(`,"net_connect":{`):
		r.body = bodyConnect
		c.seek(`"blind":`)
		r.blind = c.boolean()
		c.seek(`"literal":`)
		r.literal = c.boolean()
		c.seek(`"to":`)
		r.to.decode(c)
		c.finish()
	case c.has(`,"operation_call":{`):
		r.body = bodyOperation
		r.decodeName(c)
	case string(r.kind) == "telemetry.emit":
		// The listing of the connection is the permission.
		c.seek(`"telemetry_emit":`)
		c.value()
		r.body = bodyTelemetry
	}
}

func (r *request) decodeName(c *cursor) {
	c.seek(`"name":`)
	r.name = c.raw()
	c.finish()
}

// overRules judges a connect or a request against the rules whose host
// matches.
func (e *egress) overRules(r *request) *Answer {
	literal := r.literal || r.to.ip
	e.hosts.match(r.to.host, literal, &e.found)
	first, reached := -1, stageHost
	if literal {
		reached = stageIP
	}
	method := e.methodBit(r.method)
	slash := r.body == bodyHTTP && encodedSeparator(r.path)
	for _, list := range e.found.lists[:e.found.n] {
		for _, i := range list {
			if first >= 0 && int(i) > first {
				break // lists ascend: nothing here comes earlier
			}
			s := e.rules[i].check(r, method, slash)
			if s == stageCount {
				first = int(i)
				break
			}
			if s > reached {
				reached = s
			}
		}
	}
	if first >= 0 {
		return e.rules[first].allowed
	}
	return e.denied[reached]
}

// check returns the stage at which the rule refuses r, or stageCount.
func (rule *egressRule) check(r *request, method uint64, slash bool) stage {
	if !hasPort(rule.ports, r.to.port) {
		return stagePort
	}
	scheme := schemeBit(r.to.scheme)
	if r.body == bodyConnect {
		if r.blind && rule.blind == "" {
			return stageBlind
		}
		if !r.blind && rule.blind != "" {
			return stageBlindOnly
		}
		// A bare tunnel's scheme shows only with its first bytes; each request
		// inside is judged again.
		if scheme != schemeTCP && !r.blind && rule.schemes&scheme == 0 {
			return stageScheme
		}
		return stageCount
	}
	if rule.schemes&scheme == 0 {
		return stageScheme
	}
	if rule.blind != "" {
		return stageBlindOnly
	}
	// A request that would use a connection needs the rule that names it.
	if len(r.connection) > 0 && rule.connection != string(r.connection) {
		return stageConnection
	}
	if rule.methods&method == 0 {
		return stageMethod
	}
	if !rule.hasPath(r.path) {
		return stagePath
	}
	if slash && !rule.encodedSlash {
		return stageSlash
	}
	if len(r.upgrade) > 0 && rule.upgrade != string(r.upgrade) {
		return stageUpgrade
	}
	return stageCount
}

func (rule *egressRule) hasPath(path []byte) bool {
	for i := range rule.paths {
		if rule.paths[i].match(path) {
			return true
		}
	}
	return false
}

// lookup judges a name: listed under any rule, on any port.
func (e *egress) lookup(name []byte) *Answer {
	e.hosts.match(name, false, &e.found)
	first := -1
	for _, list := range e.found.lists[:e.found.n] {
		if i := int(list[0]); first < 0 || i < first {
			first = i
		}
	}
	if first < 0 {
		return e.deniedName
	}
	return e.rules[first].allowed
}

func (e *egress) methodBit(m []byte) uint64 {
	for i, x := range e.methods {
		if x == string(m) {
			return 1 << i
		}
	}
	return 0
}

func hasPort(ports []int64, port int64) bool {
	for _, p := range ports {
		if p == port {
			return true
		}
	}
	return false
}

func listed(names []listing, name []byte, denied *Answer) *Answer {
	if len(name) > 0 {
		for i := range names {
			if names[i].name == string(name) {
				return names[i].allowed
			}
		}
	}
	return denied
}

// encodedSeparator reports whether a canonical path still carries an encoded
// slash or backslash, which only a rule that opts in may pass (EG-57).
func encodedSeparator(path []byte) bool {
	for i := 0; i+2 < len(path); i++ {
		if i+8 <= len(path) {
			// No byte of these eight is a percent sign: as in stringEnd.
			if v := load64(path, i) ^ 0x2525252525252525; (v-0x0101010101010101)&^v&0x8080808080808080 == 0 {
				i += 7
				continue
			}
		}
		if path[i] != '%' {
			continue
		}
		a, b := path[i+1], path[i+2]|0x20
		if (a == '2' && b == 'f') || (a == '5' && b == 'c') {
			return true
		}
	}
	return false
}
