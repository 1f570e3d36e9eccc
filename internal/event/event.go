package event

import "time"

// Kinds that no session may start from, whatever a bundle says.
const (
	KindPing         = "ping"         // the vendor's test of a new hook
	KindUnrecognized = "unrecognized" // verified, but of a kind without a table
	KindQuarantined  = "quarantined"  // verified, but odd: Anomalies says why
)

// Trust values of the envelope.
const (
	TrustUntrusted = "untrusted" // every webhook, however well it is signed
	TrustOperator  = "operator"  // cron: the operator wrote all of it
)

// Startable reports whether a session may start from events of this kind.
func Startable(kind string) bool {
	return kind != KindPing && kind != KindUnrecognized && kind != KindQuarantined
}

// Event is one verified inbound delivery, normalized: the CloudEvents 1.0
// envelope with Gatehouse's data. All ids are strings.
type Event struct {
	ID         string    // "<source>:<endpoint>:<key>", stable over retries
	Source     string    // github | sentry | linear | standard-webhooks | webhook | cron
	Endpoint   string    // configured endpoint name
	Kind       string    // workflow_run, issue_comment, ...; or one of the Kind constants
	Action     string    // completed, created, ...; "" if the vendor sends none
	EntityPath string    // CloudEvents subject, made of ids only: repo/501/issue/11
	Time       time.Time // from the body when well formed, else Received
	Received   time.Time
	Delivery   string // vendor delivery id
	Trust      string // "untrusted" for every webhook, "operator" for cron
	BodySHA256 string // lower hex
	SameSHA256 string // lower hex, of what the vendor says again under another body; "" = nothing known (second dedupe key)
	Entity     Entity
	Actor      Actor
	Auth       Auth
	Facts      map[string]string   // closed-form values only; all that a bundle's match can see
	Lists      map[string][]string // closed-form list facts (pull_requests, labels by id)
	Text       []Passage           // what a session may be shown, tagged
	Prov       map[string]Origin   // JSON pointer (RFC 6901, "*" for any index) -> origin; longest match wins
	Anomalies  []string
	Payload    []byte // the redacted original object, valid JSON in UTF-8; nil when the body went to a blob
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
	Marks   []string // see Mark constants, sorted
}
