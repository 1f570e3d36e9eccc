package receipts

import "time"

// Version is the only receipt version this package writes and accepts.
const Version = 1

// Type is the closed list of receipt types (docs/receipts-spec.md).
type Type string

// The receipt types of format v1.
const (
	TypeSessionOpen      Type = "session.open"
	TypeSessionState     Type = "session.state"
	TypeSessionClose     Type = "session.close"
	TypeDecision         Type = "decision"
	TypeOutcome          Type = "outcome"
	TypeProgress         Type = "progress"
	TypeHeartbeat        Type = "heartbeat"
	TypeManifest         Type = "manifest"
	TypeLoss             Type = "loss"
	TypePolicyChange     Type = "policy.change"
	TypeModeChange       Type = "mode.change"
	TypeBundleApply      Type = "bundle.apply"
	TypeApproval         Type = "approval"
	TypeCredentialIssue  Type = "credential.issue"
	TypeCredentialRevoke Type = "credential.revoke"
	TypeKeyAdd           Type = "key.add"
	TypeKeyRetire        Type = "key.retire"
	TypeKeyRevoke        Type = "key.revoke"
	TypeExport           Type = "export"
	TypeReveal           Type = "reveal"
)

// Receipt is one decoded receipt. The exact stored bytes, not this struct, are
// what is hashed and sealed; Encode and Decode convert between them. Exactly
// the body that belongs to Type is set (see bodyOf); every other body is nil.
type Receipt struct {
	V       int       // always Version
	Type    Type      //
	Log     string    // origin of the node's log, C2SP form, for example "gatehouse.example/node-1"
	Session string    // ULID; the node's control chain uses ControlSession
	Seq     uint64    // 0,1,2... contiguous within the session
	Prev    Hash      // leaf hash of Seq-1; Genesis for Seq 0
	Epoch   uint64    // constant 1 in v1: a session never changes its node
	T       time.Time // asserted wall time, UTC, written with nine decimals
	Mono    uint64    // nanoseconds since the session opened, asserted

	Open   *Open        // session.open
	State  *State       // session.state
	Close  *Close       // session.close
	Act    *Act         // decision
	Dec    *Dec         // decision
	Out    *Out         // outcome, progress
	Change *Change      // policy.change, mode.change, bundle.apply, approval
	Cred   *Credential  // credential.issue, credential.revoke
	Key    *KeyEvent    // key.add, key.retire, key.revoke
	Loss   *Loss        // loss
	Man    *ManifestDoc // manifest
	Beat   *Heartbeat   // heartbeat
	Disc   *Disclosure  // export, reveal

	Obs *Obs              // who saw it; required on decision and session.open
	In  Hash              // keyed commitment to the exact decision input; zero = absent
	Red map[string]uint64 // redactions by class
	X   map[string]string // extensions, prefixed keys; a key that starts with "!" is critical
}

// ControlSession is the Session of a node's control chain.
const ControlSession = "control"

// Verdict is the outcome of judging one action.
type Verdict string

// Verdicts. A would-block is Deny with Dec.Passed true.
const (
	Allow   Verdict = "allow"
	Deny    Verdict = "deny"
	Abstain Verdict = "abstain"
)

// Mode says whether a deny stops the action.
type Mode string

// Modes: DESIGN.md section 2.
const (
	Shadow Mode = "shadow"
	Hard   Mode = "hard"
)

// Open is the body of session.open.
type Open struct {
	State      string            // admitted | refused
	Code       string            // refusal code when State is refused
	Event      string            // CloudEvents id of the admitted event
	EventLeaf  Hash              // leaf hash of the sealed event record
	Bundle     string            // bundle name, "" when none matched
	Digest     Hash              // SHA-256 of the bundle's canonical bytes
	Mode       Mode              //
	Policy     string            // credential_free | required | compatibility
	Provider   string            // provider name, "" when refused
	Contract   Hash              // digest of the provider capability statement, zero if none
	Parent     string            // parent session, "" for a root
	Floor      string            // lowest origin of the delivered text
	FloorAt    string            // JSON pointer that set Floor
	Modules    map[string]Hash   // enforcer name -> module digest
	Sets       map[string]Hash   // egress set name -> digest
	Points     []string          // enforcement points expected to report
	NotSeen    []string          // paths known to be outside (not_observed)
	Dev        bool              // dev.upstreams in force
	Facts      map[string]string // closed-form facts a human needs: repository.id, kind, run_id
	Unlimited  bool              // sandbox.unlimited: accepted
	Keyset     Hash              // digest of the keyset in force (the genesis hash binds it too)
	Text       string            // fixed sentence: "text read later through the door is not rated"
	Deliveries []string          // JSON pointers delivered, the first 256
}

// State is the body of session.state.
type State struct {
	From, To string // DESIGN.md section 7 states
	Reason   string // code
	Evidence Hash   // digest of a report (probe) that justified the change, zero if none
	Level    int    // observation level from here on
}

// Close is the body of session.close.
type Close struct {
	Reason   string            // completed | no_effect | failed | timeout | cancelled | revoked | lost | refused | receipt_flood
	Exit     *int64            // agent exit code if it ran (0..255; 128+n for a signal)
	Count    uint64            // receipts in the chain including this one
	Verdicts map[string]uint64 // totals: allow, deny, would_block, fault
	Spent    int64             // nanodollars
	Unknown  uint64            // decisions whose outcome is unknown
	Out      map[string]Hash   // artifact name commitment label -> digest
}

// Act is what the session tried, in a closed form per Kind. Paths, queries and
// bodies appear only as keyed commitments.
type Act struct {
	ID         string // action id, unique within the session
	Kind       string // net.connect http.request dns.query git.fetch git.push model.call operation.call telemetry.emit session.spawn
	Scheme     string
	Host       string
	Port       uint16
	Method     string
	Connection string            // named connection, "" if none
	Repository string            // numeric id
	Name       string            // model, operation, bundle (spawn), qtype (dns.query)
	Authority  bool              // the action uses authority (credential, token, push, operation, model, child)
	Blind      bool              // tcp: or passthrough
	Args       map[string]Hash   // label -> keyed commitment: path, query, ref, body
	Units      map[string]uint64 // counters: bytes, tokens, count
}

// Dec is the judgement.
type Dec struct {
	Verdict Verdict
	Mode    Mode
	Passed  bool   // the action went on: always equals verdict==allow in hard
	Fault   string // enforcer fault code, "" if none
	Rule    string // stable rule id
	Reason  string // reason code
	Policy  Hash   // bundle digest
	Module  Hash   // digest of the module that decided
	By      string // enforcer name
	Gen     uint64 // policy generation
	Fuel    uint64
	Dur     uint64 // microseconds
	Held    int64  // nanodollars held for this action
	Count   uint64 // identical refusals folded into this receipt; 0 and 1 mean one
	Dev     bool   // dev.upstreams in force for this authority
}

// Out is the body of outcome and progress.
type Out struct {
	Ref     Hash   // leaf hash of the decision
	Effect  string // forwarded | not_forwarded | unknown
	Code    string // why not forwarded, or the protocol's error class
	Address string // pinned IP address, or address_not_public
	Status  int    // HTTP status, 0 if none
	Up      uint64 // bytes sent outside
	Down    uint64 // bytes received
	Spent   int64  // nanodollars
}

// Obs says who saw the action and how much that proves.
type Obs struct {
	Point     string // enforcement point id
	Kind      string // egress-proxy git-proxy secret-broker spend-meter gatekeeper ...
	Build     Hash   // digest of the observing build, zero if unknown
	Level     int    // 0..3, DESIGN.md section 7
	Mediation string // sole | partial | unknown
	Contract  Hash   // provider capability statement, zero if none
}

// Change is the body of policy.change, mode.change, bundle.apply and approval.
type Change struct {
	Bundle    string
	Digest    Hash   // new version
	Old       Hash   // version it replaces, zero if none
	From, To  Mode   // mode.change
	By        string // person or token id; "config" for serve's start-up apply
	Via       string // config | cli | api | ui
	Result    string // applied | waiting | rejected | rolled_back | paused
	Approvers uint64
	Single    bool // single_approver
	Enforcer  string
}

// Credential is the body of credential.issue and credential.revoke. It names
// the credential and never holds it.
type Credential struct {
	Name     string // connection
	Delivery string // mediated | placeholder | absent | raw
	Host     string
	Scope    map[string]string // repository id, access, permissions
	Expires  time.Time         // zero = none
	Result   string            // issued | revoked | pending
}

// KeyEvent is the body of key.add, key.retire and key.revoke.
type KeyEvent struct {
	Purpose string // seal | checkpoint | root
	ID      string // C2SP key id, name+8 hex
	Public  Hash   // Ed25519 public key
	From    uint64 // first log index
	Until   uint64 // last log index + 1, 0 = open
}

// Loss is the body of loss: the node admits that receipts are missing.
type Loss struct {
	Cause string // code
	First uint64 // log index
	Count uint64
	Head  Hash // last head seen
}

// ManifestDoc is the body of manifest. It fixes the head of every session as of
// log index Size, so that one session's end can be proven without the others'
// data: Heads is the RFC 6962 root over one line for each session that is open
// at Size or was closed since the previous manifest (HeadsRoot, HeadProof). The
// manifest is the last leaf of the checkpoint that covers it: a checkpoint of
// size n ends in the manifest leaf with index n-1.
type ManifestDoc struct {
	Size     uint64 // leaves with index < Size are accounted for in Heads and in the totals
	Heads    Hash   // HeadsRoot of the heads, sorted by session
	Tree     uint64 // number of heads under Heads
	Sessions uint64 // sessions opened so far, refused ones included, the control chain not
	Closed   uint64 // sessions closed so far
	Receipts uint64 // receipt leaves so far
	Losses   uint64 // loss receipts so far
}

// Head is one session's head: a line of the tree under ManifestDoc.Heads.
type Head struct {
	Session string
	Seq     uint64 // of the last receipt
	Leaf    Hash   // of the last receipt
	Closed  bool
}

// Heartbeat is the body of heartbeat.
type Heartbeat struct {
	Open uint64 // open sessions
	Head Hash   // previous checkpoint root
	Size uint64 // log size
}

// Disclosure is the body of export and reveal.
type Disclosure struct {
	By      string
	What    string   // session id or filter
	Classes []string // paths, refs, people
	Digest  Hash     // SHA-256 of the file handed out
}
