package model

import (
	"regexp"
	"slices"
)

// Codes of refusals that no policy makes: in decisions, answers and metrics.
const (
	CodeRoute       = "model_route_not_allowed" // a path, method or query that is no model call
	CodeBody        = "model_body_malformed"    // no JSON object, a key twice, a wrong type
	CodeField       = "model_field_not_allowed" // a field or block type that is not in the closed list
	CodeTool        = "model_tool_not_allowed"  // a tool that the provider runs
	CodeSource      = "model_source_not_allowed"
	CodeFetch       = "model_source_not_fetched" // a URL's content did not come, is too long, or is of no type that may stand there
	CodeMedia       = "model_media_not_priced"   // audio, video and image output have rates of their own
	CodeBeta        = "model_beta_not_allowed"
	CodePlace       = "model_place_not_allowed" // another project, location or publisher
	CodeUnpriced    = "model_unpriced"          // not in the price table
	CodeFeature     = "model_feature_off"       // background, stored or batched work
	CodeTier        = "model_tier_unpriced"
	CodeUnsupported = "unsupported_backend"
	CodeTooMany     = "model_calls_at_once"
	CodeRate        = "model_calls_per_minute"
	CodeRepeated    = "model_call_repeated" // the same request was paid for three times and never answered
)

// request is what one body was found to ask for.
type request struct {
	b    []byte
	root *value

	model    string
	modelAt  *value // in the body, nil when the path names it
	asked    int64  // output tokens of one answer, 0 = no bound
	askedAt  *value
	bound    func(tokens int64) edit // writes the bound where there is none
	answers  int64
	stream   bool
	free     bool // counts tokens: costs nothing
	caching  bool
	images   int64 // inline
	opaque   bool  // holds what may be longer in tokens than in bytes
	tier     string
	least    int64 // fewer output tokens are useless
	think    int64 // thinking budget, a part of the output, 0 = none
	thinkAt  *value
	sources  []source // URLs, in the body's order
	edits    []edit
	hideLast bool // drop the usage chunk that the client did not ask for

	code, where string // of the first refusal
	field       string // name of the field or type that is on no list, for the hint alone
}

// refuse notes the first thing that is wrong. where names a field of the closed
// list or the kind of what is wrong; it never repeats the client's words.
func (r *request) refuse(code, where string) {
	if r.code == "" {
		r.code, r.where = code, where
	}
}

// unlisted notes a field or a type that is on no closed list, and its name when
// that is one: what a key spells goes back to who sent it, as a word and no
// longer than a name, and into no receipt (ME-10).
func (r *request) unlisted(where, name string) {
	if r.code == "" && nameForm.MatchString(name) {
		r.field = name
	}
	r.refuse(CodeField, where)
}

var nameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`)

// rule judges one value of a body.
type rule func(r *request, v *value)

// fields are the closed list of an object's members.
type fields map[string]rule

// anything is a value that the provider passes to the model, or hands back, as
// it is.
func anything(*request, *value) {}

func aText(r *request, v *value)    { r.want(v, text) }
func aNumber(r *request, v *value)  { r.want(v, number) }
func aBoolean(r *request, v *value) { r.want(v, boolean) }

func (r *request) want(v *value, k kind) bool {
	if v.kind != k {
		r.refuse(CodeBody, "type")
		return false
	}
	return true
}

// obj is an object of exactly these members. A null member is an absent one.
func obj(f fields) rule {
	return func(r *request, v *value) {
		if r.want(v, object) {
			r.members(v, f)
		}
	}
}

func (r *request) members(v *value, f fields) {
	for i := range v.keys {
		m := &v.keys[i]
		if m.kind == null {
			continue
		}
		judge, ok := f[m.name]
		if !ok {
			r.unlisted("field", m.name)
			return
		}
		judge(r, &m.value)
	}
}

func list(each rule) rule {
	return func(r *request, v *value) {
		if !r.want(v, array) {
			return
		}
		for i := range v.items {
			each(r, &v.items[i])
		}
	}
}

// either is a string, or what other says.
func either(other rule) rule {
	return func(r *request, v *value) {
		if v.kind != text {
			other(r, v)
		}
	}
}

// blocks is a list of objects told apart by their type.
func blocks(types map[string]fields) rule { return list(block(types)) }

func block(types map[string]fields) rule {
	return func(r *request, v *value) {
		if !r.want(v, object) {
			return
		}
		t := v.get("type")
		if t == nil || t.kind != text {
			r.refuse(CodeBody, "type")
			return
		}
		f, ok := types[t.str]
		if !ok {
			r.unlisted("type", t.str)
			return
		}
		r.members(v, f)
	}
}

// only is one of these words.
func only(code string, words ...string) rule {
	return func(r *request, v *value) {
		if v.kind != text || !slices.Contains(words, v.str) {
			r.refuse(code, "value")
		}
	}
}

// off is a boolean that must be false.
func off(r *request, v *value) {
	if r.want(v, boolean) && !v.is(r.b, "false") {
		r.refuse(CodeFeature, "value")
	}
}

// never is a field that is known and refused under a code that says why.
func never(code string) rule {
	return func(r *request, _ *value) { r.refuse(code, "field") }
}

// whole reads a positive integer into n.
func (r *request) whole(v *value, n *int64) {
	i, ok := v.whole(r.b)
	if !ok || i < 1 || i > 1e9 { // ME-20: "1e9" as text, 1e9, a fraction
		r.refuse(CodeBody, "number")
		return
	}
	*n = i
}

func askedTokens(r *request, v *value) {
	if r.askedAt != nil {
		r.refuse(CodeBody, "bound")
		return
	}
	r.askedAt = v
	r.whole(v, &r.asked)
}

func theModel(r *request, v *value) {
	if r.want(v, text) {
		r.model, r.modelAt = v.str, v
	}
}

func theStream(r *request, v *value) {
	if r.want(v, boolean) {
		r.stream = v.is(r.b, "true")
	}
}

func theTier(r *request, v *value) {
	if r.want(v, text) {
		r.tier = v.str
	}
}

// anImage is inline base64 of an image; aDocument is one of anything longer.
func anImage(r *request, v *value) {
	if r.want(v, text) {
		r.images++
	}
}

func aDocument(r *request, v *value) {
	if r.want(v, text) {
		r.opaque = true
	}
}
