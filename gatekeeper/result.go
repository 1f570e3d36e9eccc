package gatekeeper

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Files of a session's folder. They are kept beside the receipts and never in
// them: what an agent printed is untrusted.
const (
	resultFile     = "result.json"
	transcriptFile = "transcript"
)

// Result is what a session left.
type Result struct {
	Session   string            `json:"session"`
	Event     string            `json:"event"`
	Parent    string            `json:"parent,omitempty"`
	Children  []string          `json:"children,omitempty"` // sessions it started
	Bundle    string            `json:"bundle"`
	Mode      string            `json:"mode"`
	State     string            `json:"state"`  // ended | refused
	Reason    string            `json:"reason"` // as in session.close
	Code      string            `json:"code,omitempty"`
	Detail    string            `json:"detail,omitempty"`
	Exit      *int              `json:"exit,omitempty"`
	Opened    time.Time         `json:"opened"`
	WallMS    int64             `json:"wall_ms"`
	Final     string            `json:"untrusted_final,omitempty"` // the agent's last message
	Artifacts map[string]string `json:"artifacts,omitempty"`       // name -> lower-hex SHA-256
	Skipped   []string          `json:"untrusted_skipped,omitempty"`
	Dropped   int64             `json:"transcript_dropped,omitempty"` // bytes beyond the transcript's cap
	Counts    Counts            `json:"counts"`
}

// Counts are what the door decided.
type Counts struct {
	Allowed    uint64 `json:"allowed"`
	Denied     uint64 `json:"denied"`
	WouldBlock uint64 `json:"would_block"`
	Effects    uint64 `json:"effects"` // forwarded pushes, operations and writing requests
}

func (s *session) result(e ending) Result {
	r := Result{
		Session: s.id, Event: s.event.ID, Parent: s.parentID(), Children: s.childIDs(), Bundle: s.choice.Bundle.Name, Mode: string(s.choice.Bundle.Mode),
		State: e.state, Reason: e.reason, Code: string(e.code), Detail: e.detail, Opened: s.opened.UTC(), Counts: s.recorder.counts(),
	}
	if x := e.sandbox; x != nil {
		r.Exit, r.WallMS, r.Final, r.Artifacts, r.Skipped, r.Dropped = &x.Exit, x.Wall.Milliseconds(), x.Final, x.Artifacts, x.Skipped, x.Dropped
	}
	return r
}

var idForm = regexp.MustCompile(`^[0-9a-z]{26}$`)

// open opens a file of a session's folder.
func (g *Gatekeeper) open(id, name string) (*os.File, error) {
	if !idForm.MatchString(id) {
		return nil, problem.New(problem.NotFound, strconv.Quote(id)+" is not a session's id", "gatehouse session list shows them")
	}
	f, err := os.Open(filepath.Join(g.folder(id), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.New(problem.NotFound, "session "+id+" left no "+name, "")
	}
	return f, err
}

// Result returns what an ended session left.
func (g *Gatekeeper) Result(id string) (Result, error) {
	f, err := g.open(id, resultFile)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	var r Result
	if err := json.NewDecoder(f).Decode(&r); err != nil {
		return Result{}, fmt.Errorf("couldn't read the result of session %s: %w", id, err)
	}
	return r, nil
}

// Transcript opens what the agent of an ended session printed. It is
// untrusted: show it boxed.
func (g *Gatekeeper) Transcript(id string) (io.ReadCloser, error) { return g.open(id, transcriptFile) }

// maxLabelled is how many artifacts session.close lists one by one: below what
// a receipt's map holds.
const maxLabelled = 200

// artifactDigests labels artifacts by their digests: their names are the agent's
// words, and receipts hold none of those. More than maxLabelled stand together
// under "artifacts", the SHA-256 of their sorted digests, one a line; an agent
// must not be able to keep its session open by leaving many files (RC-12). The
// result, whose digest is in the state before, lists them all.
func artifactDigests(artifacts map[string]string) map[string]receipts.Hash {
	out := map[string]receipts.Hash{}
	if len(artifacts) > maxLabelled {
		digests := slices.Sorted(maps.Values(artifacts))
		out["artifacts"] = sha256.Sum256([]byte(strings.Join(digests, "\n") + "\n"))
		return out
	}
	for _, digest := range artifacts {
		if h := decodeHash(digest); !h.IsZero() {
			out["artifact."+digest[:16]] = h
		}
	}
	return out
}

// move renames a file, or copies it when the two folders are on different file
// systems.
func move(from, to string) error {
	if os.Rename(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Remove(from)
}

// recorder passes receipts on and counts what the session did, for its result.
// The level at which the door observes is known only after the probe, so the
// recorder behind it is swapped then. A nil recorder has seen nothing.
type recorder struct {
	to atomic.Pointer[enforcers.Recorder]

	mu      sync.Mutex
	seen    Counts
	before  uint64                 // effects that the agent had no part in
	writing map[receipts.Hash]bool // decisions whose forwarding is an effect
}

func newRecorder(to enforcers.Recorder) *recorder {
	r := &recorder{writing: map[receipts.Hash]bool{}}
	r.to.Store(&to)
	return r
}

func (r *recorder) swap(to enforcers.Recorder) { r.to.Store(&to) }

// Decision implements enforcers.Recorder.
func (r *recorder) Decision(ctx context.Context, a *enforcers.Action, d *enforcers.Decision, durable bool) (receipts.Hash, error) {
	leaf, err := (*r.to.Load()).Decision(ctx, a, d, durable)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case d.Effect == enforcers.Allow:
		r.seen.Allowed++
	case d.Passed:
		r.seen.WouldBlock++
	default:
		r.seen.Denied++
	}
	if err == nil && d.Passed && writes(a) {
		r.writing[leaf] = true
	}
	return leaf, err
}

// writes reports whether a permitted action can change something outside.
func writes(a *enforcers.Action) bool {
	switch a.Kind {
	case enforcers.GitPush, enforcers.OperationCall:
		return true
	case enforcers.HTTPRequest:
		return a.HTTP.Method != "GET" && a.HTTP.Method != "HEAD" && a.HTTP.Method != "OPTIONS"
	}
	return false
}

// Outcome implements enforcers.Recorder.
func (r *recorder) Outcome(of receipts.Hash, o enforcers.Outcome) {
	r.mu.Lock()
	if r.writing[of] {
		delete(r.writing, of)
		if o.Effect != enforcers.NotForwarded {
			r.seen.Effects++
		}
	}
	r.mu.Unlock()
	(*r.to.Load()).Outcome(of, o)
}

// Progress implements enforcers.Recorder.
func (r *recorder) Progress(ctx context.Context, of receipts.Hash, o enforcers.Outcome, durable bool) error {
	return (*r.to.Load()).Progress(ctx, of, o, durable)
}

func (r *recorder) counts() Counts {
	if r == nil {
		return Counts{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// begin counts what was done so far as nothing of the agent's.
func (r *recorder) begin() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = r.seen.Effects
}

func (r *recorder) effect() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen.Effects > r.before
}
