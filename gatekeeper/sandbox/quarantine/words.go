package quarantine

// Why a pack is refused: Report.Refused.
const (
	Broken    = "pack_broken"         // it is not a pack, or an object of it fails fsck
	TooMany   = "pack_too_many"       // objects, ancestors or paths
	TooLarge  = "pack_too_large"      // one object, or all of them, unpacked
	TooDeep   = "pack_too_deep"       // a chain of deltas
	Colliding = "pack_names_collide"  // two names in one folder that some file systems take for one
	Missing   = "pack_incomplete"     // an object that must be in it is not
	Canary    = "pack_holds_canary"   // a value that was planted to be found
	Unfit     = "pack_tip_not_commit" // a branch or tag would point at something else than a commit
	Unheld    = "pack_on_unheld"      // it builds on more commits that no branch or tag holds than are looked into
)

// Command is one reference that the push would change. Object ids are lower
// hex, zeros for none.
type Command struct {
	Ref string `json:"ref"`
	Old string `json:"old"`
	New string `json:"new"`
}

// Limits bound what a pack may unpack to. Zero fields take the defaults.
type Limits struct {
	Objects int   `json:"objects"` // 1,000,000
	Object  int64 `json:"object"`  // bytes of one: 512 MiB
	Total   int64 `json:"total"`   // bytes of all: 4 GiB
	Depth   int   `json:"depth"`   // deltas upon deltas: 4,095, the most that git writes
	Paths   int   `json:"paths"`   // changed paths: 10,000
}

func (l Limits) or() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Objects, 1_000_000)
	def(&l.Depth, 4095)
	def(&l.Paths, 10_000)
	if l.Object == 0 {
		l.Object = 512 << 20
	}
	if l.Total == 0 {
		l.Total = 4 << 30
	}
	return l
}

// Question is what the program inside is asked.
type Question struct {
	Commands []Command `json:"commands"`
	Limits   Limits    `json:"limits"`
	Canaries []string  `json:"canaries"` // values that no object may hold; never a secret: they are read inside
	Pack     bool      `json:"pack"`     // there is one: a push that only deletes has none
	// Known are objects that branches and tags of the repository point at. What
	// they lead to is the repository's own; any other commit that the push makes
	// part of a branch counts as new, whether or not its host has it.
	Known []string `json:"known"`
}

// Need asks for objects that the repository has already.
type Need struct {
	// Want are commits: with their folders when History is not set; with what
	// leads from them towards Have, folders left out, when it is.
	Want    []string `json:"want"`
	Have    []string `json:"have"`
	History bool     `json:"history"`
	// Unheld stands inside for Have = Question.Known with History.
	Unheld bool `json:"unheld"`
}

// Report is what was found.
type Report struct {
	Refused string   `json:"refused"` // "" or one of the constants above
	Detail  string   `json:"detail"`  // for the node's log; holds words of the push
	Forced  []bool   `json:"forced"`  // by command: the update would lose commits
	Changed []string `json:"changed"` // paths that the new commits change, sorted
	Objects int      `json:"objects"` //
	Bytes   int64    `json:"bytes"`   // unpacked
}

// message is one line of what the program prints.
type message struct {
	Need   *Need   `json:"need,omitempty"`
	Report *Report `json:"report,omitempty"`
}

// Files in the folder that both sides see, and where it is inside.
const (
	mount        = "/quarantine"
	questionFile = "question.json"
	// PackFile is the pack of the push in Job.Dir.
	PackFile = "push.pack"
)
