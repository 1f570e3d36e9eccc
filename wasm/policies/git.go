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
	denied     denials

	scratch [4096]byte // unescaped form of one changed path
}

// sibling is another repository that may be fetched.
type sibling struct {
	repository string
	allowed    *Answer
}

type pushRule struct {
	refs          []string
	force, delete bool
	denyPaths     prefixIndex
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
		denied: newDenials(gitDefault, ReasonRepositoryNotListed, ReasonConnectionNotListed, ReasonAccessReadOnly, ReasonPushNotListed,
			ReasonNoCommands, ReasonRefNotListed, ReasonForceNotAllowed, ReasonDeleteNotAllowed, ReasonValueNotPresentable),
	}
	if p.git == nil {
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
			good = g.addPush(&c) && good
		default:
			c.fail()
		}
	}
	return g, good && c.done()
}

func (g *git) addSiblings(c *cursor) bool {
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
		good = good && s.repository != "" && access == "read"
		s.allowed = newAnswer(allow, "git.siblings["+strconv.Itoa(len(g.siblings))+"]", ReasonListed)
		g.siblings = append(g.siblings, s)
	}
	return good
}

func (g *git) addPush(c *cursor) bool {
	p := &pushRule{}
	var denied []string
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
			denied = stringsOf(c)
		default:
			c.fail()
		}
	}
	good := len(p.refs) > 0
	for _, r := range p.refs {
		good = good && refOK(r)
	}
	var paths []prefixPattern
	for i, d := range denied {
		path, ok := parsePrefix(d)
		good = good && ok
		paths = append(paths, path)
		p.denyAnswers = append(p.denyAnswers, newAnswer(deny, "git.push.deny_paths["+strconv.Itoa(i)+"]", ReasonPathDenied))
	}
	p.denyPaths = newPrefixIndex(paths)
	g.push = p
	return good
}

// transfer is one decoded git action; commands and changed stay JSON.
type transfer struct {
	kind, connection, repository []byte
	commands, changed            []byte
	body                         body
}

func (g *git) judge(message []byte) *Answer {
	c, ok := envelope(message)
	if !ok {
		return nil
	}
	var t transfer
	t.decode(&c)
	if !c.closeEnvelope() {
		return nil
	}
	switch string(t.kind) {
	case "git.fetch":
		if t.body == bodyFetch {
			return g.fetch(&t)
		}
	case "git.push":
		if t.body == bodyPush {
			return g.judgePush(&t)
		}
	default:
		return g.notMine
	}
	return nil // the kind without its body
}

func (t *transfer) decode(c *cursor) {
	c.seek(`"connection":`)
	t.connection = c.raw()
	switch {
	case c.has(`,"git_fetch":{`):
		t.body = bodyFetch
		c.seek(`"repository":`)
		t.repository = c.raw()
		c.finish()
	case c.has(`,"git_push":{`):
		t.body = bodyPush
		c.seek(`"changed":`)
		t.changed = c.value()
		c.seek(`"commands":`)
		t.commands = c.value()
		c.seek(`"repository":`)
		t.repository = c.raw()
		c.finish()
	}
	c.seek(`"kind":`)
	t.kind = c.raw()
}

func (g *git) fetch(t *transfer) *Answer {
	if g.connection != "" && g.connection != string(t.connection) {
		return g.denied.of(ReasonConnectionNotListed)
	}
	if len(t.repository) == 0 {
		return g.denied.of(ReasonRepositoryNotListed)
	}
	if g.repository == string(t.repository) {
		return g.own
	}
	for i := range g.siblings {
		if g.siblings[i].repository == string(t.repository) {
			return g.siblings[i].allowed
		}
	}
	return g.denied.of(ReasonRepositoryNotListed)
}

func (g *git) judgePush(t *transfer) *Answer {
	answer := g.fetch(t)
	if answer.Effect != allow {
		return answer
	}
	if answer != g.own {
		return g.denied.of(ReasonAccessReadOnly)
	}
	if g.push == nil {
		return g.denied.of(ReasonPushNotListed)
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
	c := cursor{b: b}
	c.eat('[')
	n := 0
	for first := true; c.more(']', &first); n++ {
		c.eat('{')
		c.seek(`"forced":`)
		forced := c.boolean()
		c.seek(`"new":`)
		id := c.raw()
		c.seek(`"ref":`)
		ref := c.raw()
		c.finish()
		if c.bad {
			return nil, false
		}
		switch {
		case !g.push.lists(ref):
			return g.denied.of(ReasonRefNotListed), true
		case zeros(id) && !g.push.delete:
			return g.denied.of(ReasonDeleteNotAllowed), true
		case forced && !g.push.force:
			return g.denied.of(ReasonForceNotAllowed), true
		}
	}
	if !c.done() {
		return nil, false
	}
	if n == 0 {
		return g.denied.of(ReasonNoCommands), true
	}
	return nil, true
}

// changed returns the denial of the first changed path that is denied.
func (g *git) changed(b []byte) (*Answer, bool) {
	c := cursor{b: b}
	c.eat('[')
	for first := true; c.more(']', &first); {
		path := c.raw()
		if escaped(path) {
			// A path that cannot be shown whole to the patterns is denied: deny
			// rules must never be passed by a strange spelling.
			n, ok := unescape(g.scratch[:], path)
			if !ok {
				return g.denied.of(ReasonValueNotPresentable), true
			}
			path = g.scratch[:n]
		}
		if i := g.push.denyPaths.find(path); i >= 0 {
			return g.push.denyAnswers[i], true
		}
	}
	return nil, c.done()
}

// lists reports whether a pattern covers ref.
func (p *pushRule) lists(ref []byte) bool {
	for _, pattern := range p.refs {
		if refMatch(pattern, ref) {
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
