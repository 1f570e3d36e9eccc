package enforcers

// Reason codes that the gate, the door and upstream write into decisions,
// outcomes and refusals. Enforcers have codes of their own; these are the ones
// no policy can produce.
const (
	// The gate.
	CodeNotListed          = "not_listed"                  // every enforcer abstained
	CodeNeedsAuthority     = "would_block_needs_authority" // denied in shadow, and it would use authority
	CodeReceiptUnavailable = "receipt_unavailable"         // the decision receipt could not be written
	CodeNameBudget         = "name_budget"                 // too many distinct names under one wildcard
	CodeSessionMismatch    = "session_mismatch"            // the action names another session
	CodeMalformedAction    = "malformed_action"            // a mediator built an action without its body
	CodeRevoked            = "session_revoked"
	CodeGeneration         = "generation_changed"
	CodeIPLiteral          = "ip_literal"      // hard set unless listed
	CodePort               = "port_not_listed" // hard set unless listed: neither 80 nor 443
	CodeRelay              = "relay_host"      // hard set unless listed: paste, tunnel, OAST

	// The door.
	CodeMalformed         = "malformed_request"  // refused before net/http saw it
	CodeBadAuthority      = "bad_authority"      // host grammar
	CodeBadPath           = "bad_path"           // path grammar
	CodeMisdirected       = "misdirected"        // SNI, Host or :authority differ from the Authority
	CodeMethodRefused     = "method_refused"     // TRACE and its kin
	CodeForeignCredential = "foreign_credential" // a credential from inside on a host that has a connection
	CodeUpgradeRefused    = "upgrade_refused"    // a protocol switch nothing allows
	CodeNotHTTP           = "not_http"           // a tunnel that speaks neither TLS nor HTTP
	CodeBodyNotInspected  = "body_not_inspectable"
	CodePlaceholderHost   = "placeholder_wrong_host" // a placeholder on a host it is not for
	CodePlaceholder       = "placeholder_unknown"    // no placeholder of this session, or one whose rule is gone
	CodePlaceholderSpent  = "placeholder_spent"      // used as often as it may be
	CodePlaceholderPlace  = "placeholder_misplaced"  // not where the credential belongs
	CodeDoorURL           = "door_url_unknown"       // no door URL of this session, or one that has ended
	CodeDoorURLUse        = "door_url_read_only"     // used otherwise than to read what it leads to

	// Upstream, and the hard set.
	CodeAddressNotPublic = "address_not_public"
	CodeAddressNotListed = "address_not_listed" // the rule has addresses, and this is none of them
	CodeMetadata         = "metadata_name"
	CodeSpecialName      = "special_name"
	CodeLoop             = "loop"
	CodeDNS              = "dns"
	CodeDNSName          = "dns_no_such_name"
	CodeDNSAnswers       = "dns_too_many_answers"
	CodeConnect          = "connect"
	CodePeer             = "peer_address"
	CodeTLS              = "tls_unverified"
	CodeTimeout          = "timeout"
	CodeProtocol         = "protocol"
	CodeUpCap            = "upload_cap"
	CodeDownCap          = "download_cap"
	CodeClientGone       = "client_gone"
	CodeClientSlow       = "client_slow" // a body that stopped coming
	CodeClientTLS        = "client_tls"  // the client gave up the TLS handshake: usually it does not trust the session's CA
	CodePermit           = "permit_invalid"
	CodeCredential       = "credential_unavailable"
	CodeWrongHost        = "credential_wrong_host"   // a credential is bound to another host
	CodeReflected        = "credential_reflected"    // the answer held the credential: the session ends
	CodeAnswerCredential = "answer_holds_credential" // the answer held a token or a signed URL
	CodeAnswerEncoding   = "answer_not_inspectable"  // the answer is encoded in a way that hides what it holds
	CodeNotUsed          = "not_used"                // the Permit was dropped unused
	CodeTerminated       = "terminated"              // a tunnel opened at the door: its requests have their own receipts
	CodeAnswered         = "answered_by_door"        // the door answered itself: DNS, reserved host
)

// Rule ids for decisions that no enforcer's rule made.
const (
	RuleDefault = "gate.default_deny"
	RuleHardSet = "gate.hard_set"
	RuleGate    = "gate"
)
