package policies

// Status is what gatehouse_configure returns.
type Status int32

// Statuses of ABI v1.
const (
	OK                 Status = 0
	BadBundle          Status = 1
	UnsupportedVersion Status = 2
)

// ABI is the only message version the built-in enforcers read.
const ABI = 1

// rules is one configured enforcer. judge reads a decide message and returns
// nil when the message is malformed. It must not allocate, keep a, or change
// its receiver other than by scratch it overwrites before reading.
type rules interface {
	judge(message []byte) *Answer
	describe() []byte
}

// Judge is one built-in enforcer under one compiled policy. It is not safe for
// concurrent use: instances of the module are not either.
type Judge struct {
	name  string
	rules rules
}

// Name returns "egress", "git" or "spend".
func (j *Judge) Name() string { return j.name }

// Decide judges one decide message, {"abi":1,"action":{...}}. nil means that
// the message is malformed, a guest error.
func (j *Judge) Decide(message []byte) *Answer { return j.rules.judge(message) }

// Describe returns the description JSON: name, version, action kinds.
func (j *Judge) Describe() []byte { return j.rules.describe() }

// Configure compiles {"abi":1,"bundle":{...},"params":{"enforcer":NAME}}. The
// bundle is a compiled policy v1. A section or a key it does not know is
// refused: what is not understood might be a restriction.
func Configure(message []byte) (*Judge, Status) {
	var bundle, params []byte
	abi := int64(-1)
	c := cursor{b: message}
	o := object{c: &c}
	for o.next() {
		switch string(o.key) {
		case "abi":
			abi = c.integer()
		case "bundle":
			bundle = c.value()
		case "params":
			params = c.value()
		default:
			c.fail()
		}
	}
	if !c.done() {
		return nil, BadBundle
	}
	if abi != ABI {
		return nil, UnsupportedVersion
	}
	p, ok := parsePolicy(bundle)
	if !ok {
		return nil, BadBundle
	}
	name, ok := parseParams(params)
	if !ok {
		return nil, BadBundle
	}
	var r rules
	switch name {
	case "egress":
		r, ok = newEgress(p)
	case "git":
		r, ok = newGit(p)
	case "spend":
		r, ok = newSpend(p)
	default:
		return nil, BadBundle
	}
	if !ok {
		return nil, BadBundle
	}
	return &Judge{name, r}, OK
}

// policy is a compiled policy split into its sections, each still JSON; nil
// when absent.
type policy struct {
	egress, git, models, operations, telemetry, children, spend []byte
}

func parsePolicy(b []byte) (p policy, ok bool) {
	c := cursor{b: b}
	o := object{c: &c}
	for o.next() {
		v := c.value()
		switch string(o.key) {
		case "bundle", "digest": // names for people and receipts
		case "egress":
			p.egress = v
		case "git":
			p.git = v
		case "models":
			p.models = v
		case "operations":
			p.operations = v
		case "telemetry":
			p.telemetry = v
		case "children":
			p.children = v
		case "spend":
			p.spend = v
		default:
			c.fail()
		}
	}
	return p, c.done()
}

func parseParams(b []byte) (enforcer string, ok bool) {
	c := cursor{b: b}
	o := object{c: &c}
	for o.next() {
		switch string(o.key) {
		case "enforcer":
			enforcer = stringOf(&c)
		default:
			c.fail()
		}
	}
	return enforcer, c.done()
}

// object iterates over one object, holding it to strictly ascending keys so
// that no key can appear twice.
type object struct {
	c     *cursor
	key   []byte
	begun bool
	first bool
}

func (o *object) next() bool {
	if !o.begun {
		o.c.eat('{')
		o.begun, o.first = true, true
	}
	if !o.c.more('}', &o.first) {
		return false
	}
	k := o.c.raw()
	o.c.eat(':')
	if o.c.bad || escaped(k) || (o.key != nil && string(o.key) >= string(k)) {
		o.c.bad = true
		return false
	}
	o.key = k
	return true
}

// stringsOf reads an array of plain strings.
func stringsOf(c *cursor) []string {
	var out []string
	c.eat('[')
	for first := true; c.more(']', &first); {
		out = append(out, stringOf(c))
	}
	return out
}

// stringOf reads one string without escapes: no name, pattern or id of a policy
// has any.
func stringOf(c *cursor) string {
	s := c.raw()
	if escaped(s) {
		c.fail()
	}
	return string(s)
}

func escaped(s []byte) bool {
	for _, x := range s {
		if x == '\\' || x < 0x20 {
			return true
		}
	}
	return false
}
