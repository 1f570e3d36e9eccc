package event

import "time"

// Origin says who chose the bytes of a value. The order is the integrity
// order: a join takes the lowest.
type Origin string

// Origins, from DESIGN.md section 5.
const (
	Platform    Origin = "platform"
	Operator    Origin = "operator"
	Member      Origin = "member"
	Reviewed    Origin = "reviewed"
	Contributor Origin = "contributor"
	Outsider    Origin = "outsider"
	Derived     Origin = "derived"
	Credential  Origin = "credential"
)

// Text is untrusted text. It has no String method and no conversion helper, so
// that it cannot stand where a fact is wanted; Untrusted returns the bytes to
// the one place that renders them inside a box.
type Text struct{ v string }

// NewText tags s as untrusted.
func NewText(s string) Text { return Text{v: s} }

// Untrusted returns the text. Callers render it boxed, escaped or datamarked.
func (t Text) Untrusted() string { return t.v }

// Event is one verified inbound delivery, normalized: the CloudEvents 1.0
// envelope with Gatehouse's data. All ids are strings.
type Event struct {
	ID         string    // "<source>:<endpoint>:<key>", stable over retries
	Source     string    // github | sentry | linear | standard-webhooks | webhook | cron
	Endpoint   string    // configured endpoint name
	Kind       string    // workflow_run, issue_comment, ...; "unrecognized"
	Action     string    // completed, created, ...; "" if the vendor sends none
	Subject    string    // entity path made of ids only: repo/501/issue/11
	Time       time.Time // from the body when well formed, else Received
	Received   time.Time
	Delivery   string // vendor delivery id
	Trust      string // "untrusted" for every webhook, "operator" for cron
	BodySHA256 string // lower hex
	Entity     Entity
	Actor      Actor
	Auth       Auth
	Facts      map[string]string   // closed-form values only; all that a bundle's match can see
	Lists      map[string][]string // closed-form list facts (pull_requests, labels by id)
	Text       []Passage           // what a session may be shown, tagged
	Prov       map[string]Origin   // JSON pointer (RFC 6901, "*" for any index) -> origin; longest match wins
	Anomalies  []string
	Payload    []byte // the redacted original object; nil when the body went to a blob
	Raw        string // "blob:<sha256>" when Payload is nil
}

// Entity is what the event is about.
type Entity struct {
	Kind   string // pull_request, issue, workflow_run ...
	ID     string
	Number string            // "" if it has none
	Scope  map[string]string // repo, org, project, team: ids
}

// Actor is who caused the event.
type Actor struct {
	ID    string
	Kind  string // user | bot | app | integration | external | system | none
	Level Origin
}

// Auth says how the delivery was verified.
type Auth struct {
	Scheme string   // github-hmac-sha256 ...
	Key    string   // name of the secret that matched: "k1", "k2"
	Signed []string // what the signature covers
	Late   bool
}

// Passage is one text value with its pointer and origin.
type Passage struct {
	Pointer string // RFC 6901 into the payload
	As      string // title, body, ref, name ...
	Value   Text
	Origin  Origin
	Author  string // id, "" unknown
	Len     int    // bytes before truncation
	Cut     bool
	Marks   []string // bidi, zero_width, tag, html_comment, lossy
}
