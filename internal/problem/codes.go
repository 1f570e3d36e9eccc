package problem

// Internal is the code of any error that carries none.
const Internal Code = "internal"

// Codes of the command line and the configuration.
const (
	Usage         Code = "usage"
	ConfigInvalid Code = "config_invalid"
	Unreachable   Code = "unreachable"
	NotFound      Code = "not_found"
	Conflict      Code = "conflict"
	Unavailable   Code = "unavailable"
)

// Refusal codes of admission: DESIGN.md section 6, closed list.
const (
	NoMatch                   Code = "no_match"
	BelowAccepts              Code = "below_accepts"
	SelfCaused                Code = "self_caused"
	PerEntity                 Code = "per_entity"
	AmbiguousBundles          Code = "ambiguous_bundles"
	EventUnsealed             Code = "event_unsealed"
	ProviderCapabilityMissing Code = "provider_capability_missing"
	RepositoryNotListed       Code = "repository_not_listed"
	BundleNotCovered          Code = "bundle_not_covered"
	ConnectionUnmediated      Code = "connection_unmediated" // the credential policy does not let its credential be delivered as it would be
	BundlePaused              Code = "bundle_paused"         // somebody paused the one that would have taken the event
	SetNotPinned              Code = "set_not_pinned"        // the version in force does not hold the egress set that it names
)

// Codes of the streams: what the pump and doctor find.
const (
	StreamFenced Code = "stream_fenced" // a stream holds what the journal does not
	StoreDamage  Code = "store_damage"  // a stream lost what the journal has
	StreamDrift  Code = "stream_drift"  // a stream's settings may lose records
	// StreamsBehind: so many records wait for the streams that no delivery is taken.
	StreamsBehind Code = "streams_behind"
	// StreamsFull: the disk of the embedded NATS store has no space left.
	StreamsFull Code = "streams_full"
	// AuditFull: as many bundles have auditors as may have.
	AuditFull Code = "audit_full"
)

// Codes of the operator API.
const (
	Unauthenticated  Code = "unauthenticated"
	HostNotListed    Code = "host_not_listed"
	OriginNotListed  Code = "origin_not_listed"
	LoginLinkInvalid Code = "login_link_invalid"
)

// Codes of changes that people make.
const (
	CandidateChanged Code = "candidate_changed" // what was approved is not what would come into force
	NeighbourChanged Code = "neighbour_changed" // a bundle that the proposal was judged beside is another one by now
	SelfApproval     Code = "self_approval"     // by who proposed it, or a second time by the same person
	PersonUnknown    Code = "person_unknown"    // nobody vouches for who asks
	NotCovered       Code = "not_covered"       // one person may only take away
	Forbidden        Code = "forbidden"         // the role does not allow it
	LoginAgain       Code = "login_again"       // the step needs a login that is minutes old
	LoginRefused     Code = "login_refused"     // the identity provider's answer does not hold, or gives no role
	PersonChanged    Code = "person_changed"    // the account is known under another name, or the name under another account
)
