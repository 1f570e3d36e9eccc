package quarantine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// Runner starts a sandbox without an exit for each inspection.
type Runner struct {
	Provider sandbox.Provider
	Timeout  time.Duration // of one inspection; 0 = 5 minutes
}

// Job is one inspection.
type Job struct {
	ID  string // as sandbox.Spec.Session; no other sandbox has it
	Dir string // a folder for this inspection alone, with PackFile in it
	Question
	// Base writes a pack with what is needed of the repository to a file.
	Base func(ctx context.Context, n Need, to string) error
}

const (
	defaultTimeout = 5 * time.Minute
	inspectMemory  = 4 << 30  // of everything inside, where a cgroup can hold it to that
	inspectQuota   = 2 << 30  // indexes
	inspectPids    = 64       // git and its threads
	maxLine        = 16 << 20 // a Report with its paths
)

// Inspect looks into a pack. An error says that it could not be looked into;
// a pack that must not go on is a Report that says so.
func (q *Runner) Inspect(ctx context.Context, j Job) (Report, error) {
	raw, err := json.Marshal(j.Question)
	if err != nil {
		return Report{}, err
	}
	// Read inside by a user that is not this one.
	question, pack := filepath.Join(j.Dir, questionFile), filepath.Join(j.Dir, PackFile)
	if err := os.WriteFile(question, raw, 0o644); err != nil {
		return Report{}, err
	}
	if err := errors.Join(os.Chmod(question, 0o644), os.Chmod(j.Dir, 0o755)); err != nil {
		return Report{}, err
	}
	if err := os.Chmod(pack, 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Report{}, err
	}
	timeout := q.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	said := &lines{messages: make(chan message, 1)}
	box, err := q.Provider.Start(ctx, sandbox.Spec{
		Session: j.ID, Argv: []string{sandbox.InitPath, role}, Mounts: []sandbox.Mount{{Source: j.Dir, Path: mount}},
		Timeout: timeout, Memory: inspectMemory, Quota: inspectQuota, Pids: inspectPids, Output: said,
		Unlimited: true, // each git is bounded by itself, and the sandbox has no exit
	}, nil)
	if err != nil {
		return Report{}, fmt.Errorf("start an inspection: %w", err)
	}
	var end sandbox.End
	var ran error
	done := make(chan struct{})
	go func() {
		defer close(done)
		end, ran = box.Run(ctx)
	}()
	report, err := j.converse(ctx, said.messages, done)
	if err != nil {
		cancel()
	}
	<-done
	err = errors.Join(err, box.Close())
	if end.Transcript != "" {
		_ = os.Remove(end.Transcript)
	}
	switch {
	case ran != nil && err == nil:
		return Report{}, ran
	case err != nil:
		return Report{}, err
	case report == nil:
		return Report{}, fmt.Errorf("the inspection ended %s (%d) without a report: %s", end.Reason, end.Exit, end.Detail)
	}
	return *report, report.check(len(j.Commands))
}

// converse answers what is asked from inside until there is a report or the
// sandbox is gone.
func (j *Job) converse(ctx context.Context, messages <-chan message, done <-chan struct{}) (*Report, error) {
	asked := 0
	for {
		var m message
		select {
		case m = <-messages:
		case <-done:
			// What was said before the end counts.
			select {
			case m = <-messages:
			default:
				return nil, nil
			}
		}
		if m.Report != nil {
			return m.Report, nil
		}
		if m.Need == nil {
			continue
		}
		if asked++; asked > 2+len(j.Commands) {
			return nil, errors.New("the inspection asks for more than it may need")
		}
		if err := j.bring(ctx, *m.Need, asked); err != nil {
			return nil, err
		}
	}
}

func (j *Job) bring(ctx context.Context, n Need, asked int) error {
	if len(n.Want) == 0 || len(n.Want) > maxBoundaryAsked || len(n.Have) > 1 {
		return errors.New("the inspection asks for what it may not need")
	}
	for _, ids := range [][]string{n.Want, n.Have} {
		for _, id := range ids {
			if !ObjectID(id) {
				return errors.New("the inspection asks for something that is no object")
			}
		}
	}
	if n.Unheld {
		n = Need{Want: n.Want, Have: j.Known, History: true}
	}
	name := filepath.Join(j.Dir, fmt.Sprintf("base-%d", asked))
	if err := j.Base(ctx, n, name+".pack"); err != nil {
		return err
	}
	if err := os.Chmod(name+".pack", 0o644); err != nil {
		return err
	}
	return os.WriteFile(name+".ready", nil, 0o644)
}

const maxBoundaryAsked = 256

// check refuses a report whose shape is not the one asked for: it comes from a
// program that read hostile bytes.
func (r *Report) check(commands int) error {
	if r.Refused == "" && (len(r.Forced) != commands || r.Objects < 0 || r.Bytes < 0) {
		return errors.New("the inspection's report is malformed")
	}
	return nil
}

// ObjectID reports whether s is the id of an object: SHA-1 in lower hex.
func ObjectID(s string) bool {
	if len(s) != 40 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// lines decodes what the program prints. What is no message is left out.
type lines struct {
	mu       sync.Mutex
	buf      []byte
	messages chan message
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	for {
		line, rest, found := bytes.Cut(l.buf, []byte("\n"))
		if !found {
			break
		}
		l.buf = rest
		var m message
		if json.Unmarshal(line, &m) == nil && (m.Need != nil || m.Report != nil) {
			select {
			case l.messages <- m:
			default:
				return 0, errors.New("the inspection says more than one thing at a time")
			}
		}
	}
	if len(l.buf) > maxLine {
		return 0, errors.New("the inspection says too much")
	}
	return len(b), nil
}
