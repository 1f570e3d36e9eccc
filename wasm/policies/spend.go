package policies

import "strconv"

// spend judges what costs money or multiplies it: model.call and
// session.spawn. It keeps no account: the ledger holds the worst case before
// it asks, and the amounts stand in the action.
type spend struct {
	models   []modelRule
	limit    int64 // nanodollars, 0 = none in the policy
	children *childRule
	notMine  *Answer
	denied   denials
}

type modelRule struct {
	connection string
	models     []modelPattern
	maxTokens  int64 // 0 = no bound
	allowed    *Answer
}

type childRule struct {
	bundles    []listing
	max, depth int64
}

const spendDefault = "spend.default_deny"

var spendDescription = []byte(`{"actions":["model.call","session.spawn"],"name":"spend","version":"1"}`)

func (s *spend) describe() []byte { return spendDescription }

func newSpend(p policy) (*spend, bool) {
	s := &spend{notMine: newAnswer(abstain, "spend", ReasonNotMine)}
	s.denied = newDenials(spendDefault, ReasonConnectionNotListed, ReasonModelNotListed, ReasonMaxTokensExceeded, ReasonBudgetExceeded,
		ReasonSpawnNotListed, ReasonBundleNotListed, ReasonDepthExceeded, ReasonChildrenExceeded)
	return s, s.addModels(p.models) && s.addLimit(p.spend) && s.addChildren(p.children)
}

func (s *spend) addModels(b []byte) bool {
	if b == nil {
		return true
	}
	c := cursor{b: b}
	good := true
	c.eat('[')
	for first := true; c.more(']', &first); {
		var m modelRule
		o := object{c: &c}
		for o.next() {
			switch string(o.key) {
			case "connection":
				m.connection = stringOf(&c)
			case "allow":
				for _, name := range stringsOf(&c) {
					model, ok := parseModel(name)
					good = good && ok
					m.models = append(m.models, model)
				}
			case "max_output_tokens":
				m.maxTokens = c.integer()
			default:
				c.fail()
			}
		}
		good = good && m.connection != "" && m.maxTokens >= 0
		m.allowed = newAnswer(allow, "models["+strconv.Itoa(len(s.models))+"]", ReasonListed)
		s.models = append(s.models, m)
	}
	return good && c.done()
}

func (s *spend) addLimit(b []byte) bool {
	if b == nil {
		return true
	}
	c := cursor{b: b}
	good := true
	o := object{c: &c}
	for o.next() {
		switch string(o.key) {
		case "limit":
			s.limit = c.integer()
			good = good && s.limit > 0
		case "per_day":
			good = c.integer() >= 0 && good // the ledger's: no single action shows a day
		default:
			c.fail()
		}
	}
	return good && c.done()
}

func (s *spend) addChildren(b []byte) bool {
	if b == nil {
		return true
	}
	r := &childRule{}
	c := cursor{b: b}
	good := true
	o := object{c: &c}
	for o.next() {
		switch string(o.key) {
		case "bundles":
			r.bundles, good = newListing("children.bundles", c.value())
		case "max":
			r.max = c.integer()
		case "depth":
			r.depth = c.integer()
		default:
			c.fail()
		}
	}
	s.children = r
	return good && c.done() && r.max >= 0 && r.depth >= 0
}

// outlay is one decoded action of spend's kinds.
type outlay struct {
	kind, connection []byte
	body             body
	model, bundle    []byte
	maxTokens, held  int64
	depth, count     int64
}

func (s *spend) judge(message []byte) *Answer {
	c, ok := envelope(message)
	if !ok {
		return nil
	}
	var a outlay
	a.decode(&c)
	if !c.closeEnvelope() {
		return nil
	}
	switch string(a.kind) {
	case "model.call":
		if a.body == bodyModel {
			return s.call(&a)
		}
	case "session.spawn":
		if a.body == bodySpawn {
			return s.spawn(&a)
		}
	default:
		return s.notMine
	}
	return nil // the kind without its body
}

func (a *outlay) decode(c *cursor) {
	c.seek(`"connection":`)
	a.connection = c.raw()
	c.seek(`"kind":`)
	a.kind = c.raw()
	if c.has(`,"model_call":{`) {
		a.body = bodyModel
		c.seek(`"held":`)
		a.held = c.integer()
		c.seek(`"max_tokens":`)
		a.maxTokens = c.integer()
		c.seek(`"model":`)
		a.model = c.raw()
		c.finish()
		return
	}
	if string(a.kind) == "session.spawn" {
		c.seek(`"session_spawn":`)
		a.body = bodySpawn
		c.eat('{')
		c.seek(`"bundle":`)
		a.bundle = c.raw()
		c.seek(`"count":`)
		a.count = c.integer()
		c.seek(`"depth":`)
		a.depth = c.integer()
		c.finish()
	}
}

func (s *spend) call(a *outlay) *Answer {
	reason := ReasonConnectionNotListed
	for i := range s.models {
		m := &s.models[i]
		if len(a.connection) == 0 || m.connection != string(a.connection) {
			continue
		}
		if !m.lists(a.model) {
			if reason == ReasonConnectionNotListed {
				reason = ReasonModelNotListed
			}
			continue
		}
		// An absent bound (0) is worse than a large one: the provider picks it.
		if m.maxTokens > 0 && (a.maxTokens <= 0 || a.maxTokens > m.maxTokens) {
			reason = ReasonMaxTokensExceeded
			continue
		}
		if s.limit > 0 && a.held > s.limit {
			return s.denied.of(ReasonBudgetExceeded)
		}
		return m.allowed
	}
	return s.denied.of(reason)
}

// lists reports whether a pattern covers the model's name.
func (m *modelRule) lists(model []byte) bool {
	for i := range m.models {
		if m.models[i].match(model) {
			return true
		}
	}
	return false
}

func (s *spend) spawn(a *outlay) *Answer {
	if s.children == nil {
		return s.denied.of(ReasonSpawnNotListed)
	}
	answer := listed(s.children.bundles, a.bundle, s.denied.of(ReasonBundleNotListed))
	switch {
	case answer.Effect != allow:
		return answer
	case a.depth > s.children.depth:
		return s.denied.of(ReasonDepthExceeded)
	case a.count > s.children.max:
		return s.denied.of(ReasonChildrenExceeded)
	}
	return answer
}
