package policies

import "strconv"

// git judges git.fetch and git.push: repositories by numeric id, refs by
// pattern, changed paths by pattern. A push must satisfy every rule with every
// command it carries.
type git struct {
	repository string
	connection string
	own        *Answer
	siblings   []sibling
	push       *pushRule
	pushed     *Answer
	notMine    *Answer
	denied     map[string]*Answer // by reason; read only after configure

	scratch [4096]byte // unescaped form of one changed path
}

type sibling struct {
	repository string
	write      bool
	allowed    *Answer
}

type pushRule struct {
	refs          []string
	force, delete bool
	denyPaths     []string
	denyAnswers   []*Answer
}

const gitDefault = "git.default_deny"

var gitDescription = []byte(`{"actions":["git.fetch","git.push"],"name":"git","version":"1"}`)

func (g *git) describe() []byte { return gitDescription }

func newGit(p policy) (*git, bool) {
	g := &git{
		own:     newAnswer(allow, "git.repository", ReasonListed),
		pushed:  newAnswer(allow, "git.push", ReasonListed),
		notMine: newAnswer(abstain, "git", ReasonNotMine),
		denied:  map[string]*Answer{},
	}
	for _, reason := range []string{
		ReasonRepositoryNotListed, ReasonConnectionNotListed, ReasonAccessReadOnly, ReasonPushNotListed, ReasonNoCommands,
		ReasonRefNotListed, ReasonForceNotAllowed, ReasonDeleteNotAllowed, ReasonValueNotPresentable,
	} {
		g.denied[reason] = newAnswer(deny, gitDefault, reason)
	}
	if null(p.git) {
		return g, true
	}
	c := cursor{b: p.git}
	o := object{c: &c}
	good := true
	for o.next() {
		switch string(o.key) {
		case "connection":
			g.connection = stringOf(&c)
		case "repository":
			g.repository = stringOf(&c)
		case "siblings":
			good = g.addSiblings(&c) && good
		case "push":
			if c.word("null") {
				continue
			}
			good = g.addPush(&c) && good
		default:
			c.fail()
		}
	}
	return g, good && c.done()
}

func (g *git) addSiblings(c *cursor) bool {
	if c.word("null") {
		return true
	}
	good := true
	c.eat('[')
	for first := true; c.more(']', &first); {
		var s sibling
		var access string
		o := object{c: c}
		for o.next() {
			switch string(o.key) {
			case "repository":
				s.repository = stringOf(c)
			case "access":
				access = stringOf(c)
			default:
				c.fail()
			}
		}
		good = good && s.repository != "" && (access == "read" || access == "write")
		s.write = access == "write"
		s.allowed = newAnswer(allow, "git.siblings["+strconv.Itoa(len(g.siblings))+"]", ReasonListed)
		g.siblings = append(g.siblings, s)
	}
	return good
}

func (g *git) addPush(c *cursor) bool {
	p := &pushRule{}
	o := object{c: c}
	for o.next() {
		switch string(o.key) {
		case "refs":
			p.refs = stringsOf(c)
		case "force":
			p.force = c.boolean()
		case "delete":
			p.delete = c.boolean()
		case "deny_paths":
			if !c.word("null") {
				p.denyPaths = stringsOf(c)
			}
		default:
			c.fail()
		}
	}
	good := len(p.refs) > 0
	for _, r := range p.refs {
		good = good && globOK(r) && len(r) > 5 && r[:5] == "refs/"
	}
	for i, d := range p.denyPaths {
		good = good && globOK(d)
		p.denyAnswers = append(p.denyAnswers, newAnswer(deny, "git.push.deny_paths["+strconv.Itoa(i)+"]", ReasonPathDenied))
	}
	g.push = p
	return good
}

// transfer is one decoded git action; commands and changed stay JSON.
type transfer struct {
	kind, connection, repository []byte
	commands, changed            []byte
	body                         uint8
}

const (
	bodyFetch uint8 = bodyForeign + 1 + iota
	bodyPush
)

func (g *git) judge(message []byte) *Answer {
	c, ok := envelope(message)
	if !ok {
		return nil
	}
	var t transfer
	o := object{c: &c}
	for o.next() {
		switch string(o.key) {
		case "kind":
			t.kind = c.plain()
		case "connection":
			t.connection = c.plain()
		case "git_fetch":
			t.body = bodyFetch
			t.decode(&c)
		case "git_push":
			t.body = bodyPush
			t.decode(&c)
		default:
			c.skip()
		}
	}
	if !c.closeEnvelope() {
		return nil
	}
	switch string(t.kind) {
	case "git.fetch":
		if t.body != bodyFetch {
			return nil
		}
		return g.fetch(&t)
	case "git.push":
		if t.body != bodyPush {
			return nil
		}
		return g.judgePush(&t)
	}
	return g.notMine
}

func (t *transfer) decode(c *cursor) {
	o := object{c: c}
	for o.next() {
		switch string(o.key) {
		case "repository":
			t.repository = c.plain()
		case "commands":
			t.commands = c.value()
		case "changed":
			t.changed = c.value()
		default:
			c.skip()
		}
	}
}

func (g *git) fetch(t *transfer) *Answer {
	if g.connection != "" && g.connection != string(t.connection) {
		return g.denied[ReasonConnectionNotListed]
	}
	if len(t.repository) == 0 {
		return g.denied[ReasonRepositoryNotListed]
	}
	if g.repository == string(t.repository) {
		return g.own
	}
	for i := range g.siblings {
		if g.siblings[i].repository == string(t.repository) {
			return g.siblings[i].allowed
		}
	}
	return g.denied[ReasonRepositoryNotListed]
}

func (g *git) judgePush(t *transfer) *Answer {
	answer := g.fetch(t)
	if answer.Effect != allow {
		return answer
	}
	if answer != g.own {
		for i := range g.siblings {
			if g.siblings[i].allowed == answer && !g.siblings[i].write {
				return g.denied[ReasonAccessReadOnly]
			}
		}
	}
	if g.push == nil {
		return g.denied[ReasonPushNotListed]
	}
	if answer, ok := g.commands(t.commands); answer != nil || !ok {
		return answer
	}
	if answer, ok := g.changed(t.changed); answer != nil || !ok {
		return answer
	}
	return g.pushed
}

// commands returns the denial of the first command that breaks a rule; not ok
// means malformed.
func (g *git) commands(b []byte) (*Answer, bool) {
	if null(b) {
		return g.denied[ReasonNoCommands], true
	}
	c := cursor{b: b}
	c.eat('[')
	n := 0
	for first := true; c.more(']', &first); n++ {
		var ref, id []byte
		forced := false
		o := object{c: &c}
		for o.next() {
			switch string(o.key) {
			case "ref":
				ref = c.plain()
			case "new":
				id = c.plain()
			case "forced":
				forced = c.boolean()
			default:
				c.skip()
			}
		}
		if c.bad {
			return nil, false
		}
		switch {
		case !matchesAny(g.push.refs, ref):
			return g.denied[ReasonRefNotListed], true
		case zeros(id) && !g.push.delete:
			return g.denied[ReasonDeleteNotAllowed], true
		case forced && !g.push.force:
			return g.denied[ReasonForceNotAllowed], true
		}
	}
	if !c.done() {
		return nil, false
	}
	if n == 0 {
		return g.denied[ReasonNoCommands], true
	}
	return nil, true
}

// changed returns the denial of the first changed path that is denied.
func (g *git) changed(b []byte) (*Answer, bool) {
	if null(b) {
		return nil, true
	}
	c := cursor{b: b}
	c.eat('[')
	for first := true; c.more(']', &first); {
		raw, esc := c.raw()
		path := raw
		if esc {
			// A path that cannot be shown whole to the patterns is denied: deny
			// rules must never be passed by a strange spelling.
			n, ok := unescape(g.scratch[:], raw)
			if !ok {
				return g.denied[ReasonValueNotPresentable], true
			}
			path = g.scratch[:n]
		}
		for i, p := range g.push.denyPaths {
			if glob(p, path) {
				return g.push.denyAnswers[i], true
			}
		}
	}
	return nil, c.done()
}

func matchesAny(patterns []string, s []byte) bool {
	for _, p := range patterns {
		if glob(p, s) {
			return true
		}
	}
	return false
}

// zeros reports whether an object id says "no object". An empty id counts: a
// command that names nothing creates nothing.
func zeros(id []byte) bool {
	for _, x := range id {
		if x != '0' {
			return false
		}
	}
	return true
}
