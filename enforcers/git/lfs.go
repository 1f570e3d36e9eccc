package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/internal/problem"
)

// Reason codes of Git LFS.
const (
	CodeLFS       = "lfs_request"    // something that is not passed on
	CodeLFSLocks  = "lfs_locks"      // the locking API
	CodeLFSHref   = "lfs_href"       // the host points to a place that is not one of its stores
	CodeLFSObject = "lfs_object"     // its bytes are not what its name says
	CodeLFSMoved  = "lfs_redirected" // the host answered with a redirect: it is never followed
	CodeLFSAsked  = "lfs_not_asked"  // no batch has named it
	CodeLFSClosed = "lfs_not_served" // this node carries out none
)

// LFSOptions say how large files are carried.
type LFSOptions struct {
	// Call carries out one call of the node's own, outside: to the connection's
	// host, under its credential for a repository and access; or, with no access,
	// to the one place that r names and without any. nil: there is no LFS.
	Call func(ctx context.Context, connection, repository string, a Access, r *http.Request) (*http.Response, error)
	// Total bounds the bytes that one session uploads, 0 = 4 GiB. One object has
	// at most PushOptions.Most.
	Total int64
}

const defaultLFSTotal = 4 << 30

// offers are what the host offered one session, by repository, object and
// operation. They are the only way to an object.
type offers struct {
	mu       sync.Mutex
	by       map[offerKey]offer
	uploaded int64
}

type offerKey struct{ repository, oid, operation string }

type offer struct {
	lfsAction
	size int64
	ref  string // that it is uploaded for
}

// maxOffers bounds what is remembered. A client that goes beyond asks again.
const maxOffers = 10_000

func (o *offers) put(k offerKey, one offer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil || len(o.by) >= maxOffers {
		o.by = make(map[offerKey]offer)
	}
	o.by[k] = one
}

func (o *offers) get(k offerKey) (offer, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one, ok := o.by[k]
	return one, ok
}

// take counts an upload, unless it is more than may be uploaded in all.
func (o *offers) take(n, total int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n > total-o.uploaded {
		return false
	}
	o.uploaded += n
	return true
}

// lfs handles Git LFS: its batch API, and the objects at the addresses that this
// package gave in place of the host's. A download is a git.fetch, an upload a
// git.push of the objects for the reference they are for.
func (m *Mediator) lfs(w http.ResponseWriter, r *door.Request, h *host, repository Repository, t target, code string) {
	if code == "" && m.o.LFS.Call == nil {
		code = CodeLFSClosed
	}
	oid, rest, _ := strings.Cut(strings.TrimPrefix(t.rest, "objects/"), "/")
	switch {
	case code == "" && r.Query == "" && r.Method == http.MethodPost && t.rest == "objects/batch":
		m.lfsBatch(w, r, h, repository, t)
	case code == "" && r.Query == "" && strings.HasPrefix(t.rest, "objects/") && lfsOID(oid):
		m.lfsObject(w, r, h, repository, t, oid, rest)
	default:
		if code == "" {
			code = CodeLFS
			if t.rest == "locks" || strings.HasPrefix(t.rest, "locks/") {
				code = CodeLFSLocks
			}
		}
		a := fetchAction(r.Gate, h, repository, t, 0)
		a.HardSet = code
		_, d := r.Decide(a)
		refuseLFS(w, d)
	}
}

// lfsActionFor builds the action of a transfer.
func lfsActionFor(g *enforcers.Gate, h *host, repository Repository, t target, operation, ref string, objects ...lfsObject) *enforcers.Action {
	if operation == "download" {
		return fetchAction(g, h, repository, t, 0)
	}
	a := g.Action(enforcers.GitPush)
	a.Connection = h.Connection
	a.Push = &enforcers.Push{To: h.To, Repository: repository.ID, Path: t.path}
	for _, o := range objects {
		a.Push.Commands = append(a.Push.Commands, enforcers.RefUpdate{Ref: ref, Old: none, New: o.OID})
	}
	return a
}

func accessFor(operation string) Access {
	if operation == "download" {
		return Read
	}
	return Write
}

// lfsBatch asks the host about objects, and answers with addresses of its own.
func (m *Mediator) lfsBatch(w http.ResponseWriter, r *door.Request, h *host, repository Repository, t target) {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	body, err := decoded(r)
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(io.LimitReader(body, maxLFSRequest+1))
	}
	var asked lfsBatch
	if err == nil {
		asked, err = parseLFSBatch(raw)
	}
	ref := ""
	if asked.Ref != nil {
		ref = asked.Ref.Name
	}
	a := lfsActionFor(r.Gate, h, repository, t, asked.Operation, ref, asked.Objects...)
	most := m.most()
	switch {
	case err != nil, strings.TrimSpace(kind) != lfsType:
		a.HardSet = CodeLFS
	case slices.ContainsFunc(asked.Objects, func(o lfsObject) bool { return o.Size > most }):
		a.HardSet = CodePushSize
	}
	p, d := r.Decide(a)
	if p == nil {
		refuseLFS(w, d)
		return
	}
	answer, err := m.askLFS(r, p, h, repository, asked)
	if err != nil {
		failLFS(w, d, err)
		return
	}
	objects := make([]any, 0, len(answer))
	for _, o := range answer {
		one := map[string]any{"oid": o.OID, "size": o.Size, "authenticated": true}
		switch {
		case o.missing:
			one["error"] = map[string]any{"code": http.StatusNotFound, "message": "the host does not have it, or does not take it"}
		case o.refused:
			one["error"] = map[string]any{"code": http.StatusForbidden, "message": "refused by Gatehouse: " + CodeLFSHref + ": " + hints[CodeLFSHref]}
		default:
			// EG-84: the addresses that the host gave work by themselves.
			actions := map[string]any{}
			for name, act := range o.actions {
				m.offers.put(offerKey{repository.ID, o.OID, name}, offer{act, o.Size, ref})
				path := "/" + repository.Name + ".git/info/lfs/objects/" + o.OID
				if name == "verify" {
					path += "/verify"
				}
				actions[name] = map[string]any{"href": "https://" + h.To.HostHeader() + path}
			}
			if len(actions) > 0 {
				one["actions"] = actions
			}
		}
		objects = append(objects, one)
	}
	w.Header().Set(door.ReceiptHeader, d.Receipt.String())
	writeJSON(w, http.StatusOK, lfsType, map[string]any{"transfer": "basic", "hash_algo": "sha256", "objects": objects})
}

// askLFS sends a batch to the host as it was read.
func (m *Mediator) askLFS(r *door.Request, p *enforcers.Permit, h *host, repository Repository, asked lfsBatch) ([]lfsAnswered, error) {
	out := jsonRequest(http.MethodPost, "https://"+h.To.HostHeader()+"/"+repository.Name+".git/info/lfs/objects/batch", asked)
	resp, err := m.callLFS(r.Context(), p, h, repository, accessFor(asked.Operation), out)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxLFSAnswer+1))
	if err != nil {
		return nil, problem.Wrap(err, CodeAnswer, "the host's answer broke off", "Try again later.")
	}
	if resp.StatusCode != http.StatusOK {
		return nil, answerFault(resp.StatusCode)
	}
	answer, err := h.parseLFSAnswer(raw, asked, repository)
	if err != nil || len(raw) > maxLFSAnswer {
		return nil, problem.Wrap(err, CodeAnswer, "the answer is not one of Git LFS", "The host did not speak the batch API with basic transfers.")
	}
	return answer, nil
}

// callLFS carries out one call under a permit, which it uses up. The outcome is
// written when the answer's body is closed, or with the error.
func (m *Mediator) callLFS(ctx context.Context, p *enforcers.Permit, h *host, repository Repository, a Access, out *http.Request) (*http.Response, error) {
	if err := p.Use(); err != nil {
		p.Void(string(problem.CodeOf(err)))
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.Context(), cancel) // the session's end cuts it
	body := &carried{p: p, ctx: ctx, release: func() { stop(); cancel() }}
	body.out.Up = uint64(max(0, out.ContentLength))
	resp, err := m.o.LFS.Call(ctx, h.Connection, repository.ID, a, out.WithContext(ctx))
	if err != nil {
		body.out.Effect, body.out.Up = enforcers.Unknown, 0
		body.end(string(problem.CodeOf(err)))
		return nil, err
	}
	body.out.Effect, body.out.Status = enforcers.Forwarded, resp.StatusCode
	body.ReadCloser, resp.Body = resp.Body, body
	return resp, nil
}

// carried is the body of an answer that a call of the node's own brought.
type carried struct {
	io.ReadCloser
	p        *enforcers.Permit
	ctx      context.Context
	release  func()
	out      enforcers.Outcome
	reported uint64
}

// progressBytes is how much moves before a progress receipt says so.
const progressBytes = 1 << 20

func (c *carried) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	if c.out.Down += uint64(n); c.out.Down-c.reported >= progressBytes {
		if perr := c.p.Progress(c.ctx, c.out); perr != nil {
			c.out.Code = enforcers.CodeReceiptUnavailable
			return 0, problem.Wrap(perr, enforcers.CodeReceiptUnavailable, "the progress receipt could not be written", "")
		}
		c.reported = c.out.Down
	}
	return n, err
}

func (c *carried) Close() error {
	err := c.ReadCloser.Close()
	c.end(c.out.Code)
	return err
}

func (c *carried) end(code string) {
	c.release()
	c.out.Code = code
	c.p.Done(c.out)
}

// refuseLFS answers a denied request. git lfs prints the message. There is no
// locking API: a client that is told so goes on without.
func refuseLFS(w http.ResponseWriter, d enforcers.Decision) {
	status := http.StatusForbidden
	switch d.Reason {
	case CodeLFSLocks:
		status = http.StatusNotFound
	case enforcers.CodeMalformed, CodeLFS:
		status = http.StatusUnprocessableEntity
	}
	said := map[string]any{"message": strings.Join(words(d), "\n"), "code": reason(d)}
	if !d.Receipt.IsZero() {
		w.Header().Set(door.ReceiptHeader, d.Receipt.String())
		said["request_id"] = d.Receipt.String()
	}
	writeJSON(w, status, lfsType, said)
}

// failLFS answers a permitted request that could not be carried out.
func failLFS(w http.ResponseWriter, d enforcers.Decision, err error) {
	code := string(problem.CodeOf(err))
	said := fmt.Sprintf("not carried out by Gatehouse: %s", code)
	var p *problem.Error
	if errors.As(err, &p) && p.Hint != "" {
		said += ": " + p.Hint
	}
	w.Header().Set(door.ReceiptHeader, d.Receipt.String())
	writeJSON(w, http.StatusBadGateway, lfsType, map[string]any{"message": said, "code": code, "request_id": d.Receipt.String()})
}
