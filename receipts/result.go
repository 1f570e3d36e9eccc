package receipts

import "time"

// Exit is the verifier's exit status (docs/receipts-spec.md, "Exits").
type Exit int

// Exits. A status is stable for ever; scripts depend on it.
const (
	ExitComplete    Exit = 0 // intact, trusted, and the end is proven
	ExitTampered    Exit = 1 // changed, or two signed histories disagree
	ExitUsage       Exit = 2 // the input cannot be read as an export, or the options are wrong
	ExitUnproven    Exit = 3 // an intact prefix whose end is not proven
	ExitUntrusted   Exit = 4 // a key is not trusted
	ExitAdmitted    Exit = 5 // complete, but the record itself admits losses or open questions
	ExitUnsupported Exit = 6 // newer than this verifier
)

// Class names what decided an exit. The list is closed.
type Class string

// Classes by exit.
const (
	ClassComplete Class = "complete" // 0

	ClassPayload        Class = "payload"         // 1: bytes differ from the sealed ones
	ClassChain          Class = "chain"           // 1: a receipt does not follow the one before it
	ClassSplice         Class = "splice"          // 1: something of another session or log
	ClassOrder          Class = "order"           // 1: out of order, or behind the end
	ClassDuplicate      Class = "duplicate"       // 1: the same thing twice
	ClassGap            Class = "gap"             // 1: something inside is missing; 5: no heartbeat while sessions were open
	ClassSessionMissing Class = "session_missing" // 1 or 3: a whole session is not there
	ClassFork           Class = "fork"            // 1: two signed statements contradict each other
	ClassRollback       Class = "rollback"        // 1: a log that is shorter than it was
	ClassSeal           Class = "seal"            // 1: a seal, head or proof that does not hold
	ClassCanonical      Class = "canonical"       // 1: sealed bytes that are not canonical
	ClassSchema         Class = "schema"          // 1: sealed bytes that are no receipt of format v1
	ClassRedaction      Class = "redaction"       // 1: an opening that opens nothing, or a known secret in the bytes

	ClassUnreadable Class = "unreadable" // 2
	ClassUsage      Class = "usage"      // 2

	ClassEmpty       Class = "empty"        // 3: no receipts
	ClassTruncation  Class = "truncation"   // 3: the end was cut off
	ClassEndUnproven Class = "end_unproven" // 3: nothing says where the end is
	ClassEndAsOf     Class = "end_as_of"    // 3: the end is proven as of an older checkpoint only
	ClassTime        Class = "time"         // 3: the outside checkpoint is from the future; 5: clocks ran backwards

	ClassKey Class = "key" // 4

	ClassLoss      Class = "loss"      // 5: loss receipts
	ClassUnmatched Class = "unmatched" // 5: a decision without outcome, or outcome unknown

	ClassUnsupported Class = "unsupported" // 6
)

// Finding is one thing the verifier has to say about the file.
type Finding struct {
	Exit    Exit   `json:"exit"`
	Class   Class  `json:"class"`
	Session string `json:"session,omitempty"`
	Index   *int64 `json:"index,omitempty"` // log index
	Offset  int64  `json:"offset"`          // byte in the file
	Message string `json:"message"`
}

// Result is what Verify found. Its JSON form has closed enums where Go has
// named types.
type Result struct {
	Exit     Exit      `json:"exit"`
	Class    Class     `json:"class"`
	FirstBad *Finding  `json:"first_bad,omitempty"` // the finding that decided Exit
	Findings []Finding `json:"findings,omitempty"`  // in file order, at most MaxFindings
	More     int       `json:"more,omitempty"`      // findings beyond those

	Integrity    Integrity    `json:"integrity"`
	Authenticity Authenticity `json:"authenticity"`
	Completeness Completeness `json:"completeness"`
	Observation  Observation  `json:"observation"`
	Sessions     []Session    `json:"sessions,omitempty"` // by first receipt in the file, at most MaxSessions
	Period       *Period      `json:"period,omitempty"`   // with Options.Since or Until
	NotShown     []string     `json:"does_not_show"`
}

// MaxFindings and MaxSessions bound the lists of a Result.
const (
	MaxFindings = 100
	MaxSessions = 1000
)

// Integrity answers: are the bytes the sealed ones, in their order?
type Integrity struct {
	State    State3 `json:"state"`
	Receipts uint64 `json:"receipts"`
	Matching uint64 `json:"matching"` // receipts whose bytes are the sealed ones
	Events   uint64 `json:"events"`
	Hidden   uint64 `json:"hidden"` // leaves that stand by their hash alone
	Seals    uint64 `json:"seals"`
	First    uint64 `json:"first"` // log index
	Last     uint64 `json:"last"`
}

// Authenticity answers: who signed?
type Authenticity struct {
	State  State3 `json:"state"`
	Origin string `json:"origin"`
	Root   string `json:"root"`   // fingerprint of the root in the file
	Pinned bool   `json:"pinned"` // it is the one that was asked for
	Serial uint64 `json:"keyset"`
}

// Completeness answers: is the end the end?
type Completeness struct {
	State   End        `json:"state"`
	Through uint64     `json:"through"`          // log size up to which the end is proven, 0 = not
	AsOf    *time.Time `json:"as_of,omitempty"`  // time of the checkpoint that proves it
	Outside bool       `json:"outside"`          // by a checkpoint that did not come with the file
	Opened  *uint64    `json:"opened,omitempty"` // sessions the log had opened by then
	InFile  uint64     `json:"in_file"`          // sessions in the file
}

// Observation answers: who saw it, and what does that prove?
type Observation struct {
	Level       int      `json:"level"` // lowest level of the decisions, -1 if none was observed
	Expected    []string `json:"expected"`
	Reported    []string `json:"reported"`
	Missing     []string `json:"missing"`
	NotObserved []string `json:"not_observed"` // paths the record itself names as outside
}

// State3 is the answer to integrity and authenticity.
type State3 string

// Answers.
const (
	Yes     State3 = "yes"
	No      State3 = "no"
	Unknown State3 = "unknown" // the file gave no occasion to find out
)

// End says how much is known about the end.
type End string

// Ends.
const (
	EndClosed   End = "closed"   // every session has its session.close
	EndCurrent  End = "current"  // proven by a fresh outside checkpoint
	EndAsOf     End = "as_of"    // proven as of an older checkpoint
	EndUnproven End = "unproven" //
	EndCut      End = "cut"      // proven to be missing
	EndEmpty    End = "empty"    // there is nothing
	EndUnknown  End = "unknown"  // not judged
)

// Session is one session as its receipts tell it.
type Session struct {
	ID       string            `json:"id"`
	Receipts uint64            `json:"receipts"`
	State    string            `json:"state"` // open | closed | refused
	Bundle   string            `json:"bundle,omitempty"`
	Mode     Mode              `json:"mode,omitempty"`
	Policy   string            `json:"policy,omitempty"`
	Event    string            `json:"event,omitempty"`
	Code     string            `json:"code,omitempty"`   // of a refusal
	Reason   string            `json:"reason,omitempty"` // of session.close
	ExitCode *int64            `json:"exit_code,omitempty"`
	Verdicts map[string]uint64 `json:"verdicts,omitempty"`
	Spent    int64             `json:"spent_nanodollars"`
	Unknown  uint64            `json:"unknown_outcomes"`
	Pending  uint64            `json:"unmatched_decisions"`
	Losses   uint64            `json:"losses"`
	Head     string            `json:"head"` // leaf hash of the last receipt
	From     time.Time         `json:"from"` // asserted
	To       time.Time         `json:"to"`
}

// Period compares the sessions that the log opened between two manifests with
// those in the file.
type Period struct {
	Asked  [2]*time.Time `json:"asked"` // since, until; null = not given
	Found  [2]time.Time  `json:"found"` // times of the manifests used
	Opened uint64        `json:"opened"`
	InFile uint64        `json:"in_file"`
}
