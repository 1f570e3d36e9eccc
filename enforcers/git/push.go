package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/gatekeeper/sandbox/quarantine"
	"gatehouse/internal/problem"
)

// Inspector looks into the pack of a push before it goes on.
type Inspector interface {
	Inspect(ctx context.Context, j quarantine.Job) (quarantine.Report, error)
}

// PushOptions say how pushes are read.
type PushOptions struct {
	Dir     string // of the session, closed to agents; packs wait there
	ID      string // begins the names of inspections, as sandbox.Spec.Session
	Inspect Inspector
	Most    int64 // bytes of one pack, and of one large file; 0 = 1 GiB
	Limits  quarantine.Limits
	// Before is told of a permitted push just before its first byte leaves, and
	// After once the host has answered or cannot any more: after a crash between
	// them, Reconcile says what became of it. An error of Before stops the push.
	Before func(ctx context.Context, p Pushing) error
	After  func(p Pushing)
}

// Pushing is a permitted push that is about to leave.
type Pushing struct {
	Receipt    string               `json:"receipt"` // of the decision
	Session    string               `json:"session"`
	Connection string               `json:"connection"`
	Repository string               `json:"repository"` // numeric id
	Commands   []quarantine.Command `json:"commands"`
}

const (
	defaultMost = 1 << 30
	// What a refused push still sends is read to its end: a client that cannot
	// finish sending does not read why.
	maxDrained = 4 << 30
)

var inspections atomic.Uint64

// push reads a push whole, has its pack looked into, asks the gate, and sends
// what was permitted.
func (m *Mediator) push(w http.ResponseWriter, r *door.Request, h *host, repository Repository, t target) {
	answer := func(b []byte) {
		w.Header().Set("Content-Type", "application/x-"+receivePack+"-result")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(b)
	}
	body, err := decoded(r)
	if err != nil || r.Header.Get("Content-Type") != "application/x-"+receivePack+"-request" {
		m.refusePush(w, r, h, repository, t, enforcers.CodeMalformed)
		return
	}
	req, err := readRequest(body)
	if err == nil && len(req.commands) == 0 {
		answer(nil) // how git asks whether it may send a long body; nothing is tried
		return
	}
	// One at a time: what a session can make the node hold and unpack is one pack.
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
	a := r.Gate.Action(enforcers.GitPush)
	a.Connection = h.Connection
	a.Push = &enforcers.Push{To: h.To, Repository: repository.ID, Path: t.path}
	for _, c := range req.commands {
		a.Push.Commands = append(a.Push.Commands, enforcers.RefUpdate{Ref: c.Ref, Old: c.Old, New: c.New})
	}
	dir := ""
	defer func() {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}()
	if err != nil {
		a.HardSet = CodePush
	} else {
		dir, a.HardSet = m.inspect(r, h, repository, t, req, body, a.Push)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(body, maxDrained))
	p, d := r.Decide(a)
	if p == nil {
		code := reason(d)
		unpack := "ok"
		if strings.HasPrefix(code, "pack_") || len(req.commands) == 0 {
			unpack = code
		}
		if d.Receipt.IsZero() {
			refuse(w, d)
			return
		}
		w.Header().Set(door.ReceiptHeader, d.Receipt.String())
		answer(req.report(unpack, code, words(d)))
		return
	}
	if err := m.forward(w, r, p, repository, t, req, dir); err != nil {
		code := string(problem.CodeOf(err))
		said := []string{"not carried out by Gatehouse: " + code}
		if hint := problem.HintOf(err); hint != "" {
			said = append(said, hint)
		}
		answer(req.report("ok", code, said))
	}
}

// refusePush answers a push that cannot be read far enough for a report.
func (m *Mediator) refusePush(w http.ResponseWriter, r *door.Request, h *host, repository Repository, t target, code string) {
	a := r.Gate.Action(enforcers.GitPush)
	a.Connection, a.HardSet = h.Connection, code
	a.Push = &enforcers.Push{To: h.To, Repository: repository.ID, Path: t.path}
	_, d := r.Decide(a)
	refuse(w, d)
}

// inspect stores the pack and has it looked into. It fills in what the policy
// judges a push by, or returns the code of why that cannot be known. The folder
// with the pack is the caller's to remove.
func (m *Mediator) inspect(r *door.Request, h *host, repository Repository, t target, req *request, body io.Reader, push *enforcers.Push) (dir, code string) {
	if repository.ID == "" {
		return "", "" // the policy denies it as it stands; nothing of it is unpacked
	}
	if m.o.Push.Inspect == nil {
		return "", CodeInspection
	}
	dir, err := os.MkdirTemp(m.o.Push.Dir, "push-")
	if err != nil {
		return "", CodeInspection
	}
	job := quarantine.Job{
		ID: fmt.Sprintf("%s-q%d", m.o.Push.ID, inspections.Add(1)), Dir: dir,
		Question: quarantine.Question{Commands: req.commands, Limits: m.o.Push.Limits, Pack: req.pack()},
		Base: func(ctx context.Context, n quarantine.Need, to string) error {
			return m.base(ctx, r, h, repository, t, n, to)
		},
	}
	if !m.o.Placeholder.Empty() {
		// A value that stands for a credential has no business in a repository.
		job.Canaries = []string{string(m.o.Placeholder.Reveal())}
	}
	if code := m.store(filepath.Join(dir, quarantine.PackFile), body, req.pack()); code != "" {
		return dir, code
	}
	if job.Known, err = m.known(r, h, repository, t); err != nil {
		m.o.Log.WarnContext(r.Context(), "the references of a repository could not be read for an inspection", slog.String("session", r.Gate.Session()), slog.Any("err", err))
		return dir, CodeInspection
	}
	// The answer waits for it, and the client for the answer.
	report, err := m.o.Push.Inspect.Inspect(r.Context(), job)
	if err != nil {
		m.o.Log.WarnContext(r.Context(), "a push could not be inspected", slog.String("session", r.Gate.Session()), slog.Any("err", err))
		return dir, CodeInspection
	}
	if report.Refused != "" {
		m.o.Log.InfoContext(r.Context(), "a push was refused", slog.String("session", r.Gate.Session()), slog.String("code", report.Refused), slog.String("untrusted_detail", report.Detail))
		return dir, report.Refused
	}
	for i, forced := range report.Forced {
		push.Commands[i].Forced = forced
	}
	push.Changed = report.Changed
	return dir, ""
}

// most is how many bytes one pack, or one large file, may have.
func (m *Mediator) most() int64 {
	if m.o.Push.Most == 0 {
		return defaultMost
	}
	return m.o.Push.Most
}

// store writes the pack to a file that another user may read.
func (m *Mediator) store(path string, body io.Reader, wanted bool) (code string) {
	most := m.most()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return CodeInspection
	}
	n, err := io.Copy(f, io.LimitReader(body, most+1))
	if cerr := f.Close(); cerr != nil {
		return CodeInspection
	}
	switch {
	case n > most:
		return CodePushSize
	case err != nil, wanted == (n == 0):
		return CodePush
	}
	return ""
}

// forward sends a permitted push: the commands as they were read and judged,
// and the pack as it was looked into.
func (m *Mediator) forward(w http.ResponseWriter, r *door.Request, p *enforcers.Permit, repository Repository, t target, req *request, dir string) error {
	going := Pushing{Receipt: p.Receipt().String(), Session: p.Session(), Connection: p.Action().Connection, Repository: repository.ID, Commands: req.commands}
	if m.o.Push.Before != nil {
		if err := m.o.Push.Before(r.Context(), going); err != nil {
			p.Void(enforcers.CodeReceiptUnavailable)
			return err
		}
	}
	if m.o.Push.After != nil {
		defer m.o.Push.After(going)
	}
	head := req.encode()
	pack, err := os.Open(filepath.Join(dir, quarantine.PackFile))
	if err != nil {
		p.Void(CodeInspection)
		return err
	}
	defer pack.Close()
	info, err := pack.Stat()
	if err != nil {
		p.Void(CodeInspection)
		return err
	}
	out := outgoing(r.Context(), repository, t, 0, nil)
	out.ContentLength = int64(len(head)) + info.Size()
	out.Body = io.NopCloser(io.MultiReader(bytes.NewReader(head), pack))
	resp, err := send(r, p, out, opService, receivePack)
	if err != nil {
		return err
	}
	door.Relay(w, resp)
	return nil
}

// base brings objects that the repository has already, for an inspection, by a
// git.fetch action of its own. Folders come without files where the host can
// leave those out.
func (m *Mediator) base(ctx context.Context, r *door.Request, h *host, repository Repository, t target, n quarantine.Need, to string) error {
	t.service = uploadPack
	filter := "blob:none"
	if n.History {
		filter = "tree:0"
	}
	var refused *answerError
	err := m.fetchPack(ctx, r, h, repository, t, fetchWants(n, filter), to)
	if errors.As(err, &refused) {
		err = m.fetchPack(ctx, r, h, repository, t, fetchWants(n, ""), to)
	}
	return err
}

// maxKnown bounds how many branches and tags a push is held against. What is
// left out can only make more commits count as new.
const maxKnown = 50_000

// known returns what the repository's branches and tags point at, branches
// first, by a git.fetch action of its own.
func (m *Mediator) known(r *door.Request, h *host, repository Repository, t target) ([]string, error) {
	t.op, t.service = opRefs, uploadPack
	p, d := r.Gate.Decide(r.Context(), fetchAction(r.Gate, h, repository, t, 0))
	if p == nil {
		return nil, problem.New(problem.Code(d.Reason), "the repository may not be read for the inspection", "")
	}
	resp, err := send(r, p, outgoing(r.Context(), repository, t, 0, nil), opRefs, uploadPack)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	refs, err := readRefs(resp.Body)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, prefix := range []string{"refs/heads/", "refs/tags/"} {
		for _, ref := range slices.Sorted(maps.Keys(refs)) {
			if strings.HasPrefix(ref, prefix) && len(ids) < maxKnown {
				ids = append(ids, refs[ref])
			}
		}
	}
	return ids, nil
}

// fetchWants is a fetch request of protocol version 2.
func fetchWants(n quarantine.Need, filter string) []byte {
	b := appendPkt(nil, "command=fetch\n")
	b = appendPkt(b, "agent=git/gatehouse\n")
	b = append(b, "0001"...)
	for _, line := range []string{"ofs-delta", "no-progress"} {
		b = appendPkt(b, line+"\n")
	}
	for _, id := range n.Want {
		b = appendPkt(b, "want "+id+"\n")
	}
	for _, id := range n.Have {
		b = appendPkt(b, "have "+id+"\n")
	}
	if !n.History {
		b = appendPkt(b, "deepen 1\n")
	}
	if filter != "" {
		b = appendPkt(b, "filter "+filter+"\n")
	}
	b = appendPkt(b, "done\n")
	return appendFlush(b)
}

// answerError is what a host says against a fetch request.
type answerError struct{ said string }

func (e *answerError) Error() string { return "the host refused: " + e.said }

func (m *Mediator) fetchPack(ctx context.Context, r *door.Request, h *host, repository Repository, t target, request []byte, to string) error {
	t.op = opService
	p, d := r.Gate.Decide(ctx, fetchAction(r.Gate, h, repository, t, 2))
	if p == nil {
		return problem.New(problem.Code(d.Reason), "the repository may not be read for the inspection", "")
	}
	resp, err := send(r, p, outgoing(ctx, repository, t, 2, request), opService, uploadPack)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return copyPack(f, &packets{r: resp.Body, left: maxBase})
}

// maxBase bounds what is fetched for one inspection.
const maxBase = 1 << 30

// copyPack writes the pack out of an answer of protocol version 2.
func copyPack(w io.Writer, in *packets) error {
	inPack := false
	for {
		p, err := in.next()
		switch {
		case errors.Is(err, io.EOF) && inPack:
			return nil
		case err != nil:
			return err
		case len(p.data) == 0:
			continue
		case !inPack:
			if said, ok := strings.CutPrefix(p.text(), "ERR "); ok {
				return &answerError{said}
			}
			inPack = p.text() == "packfile"
		case p.data[0] == 1:
			if _, err := w.Write(p.data[1:]); err != nil {
				return err
			}
		case p.data[0] == 3:
			return &answerError{string(p.data[1:])}
		}
	}
}
