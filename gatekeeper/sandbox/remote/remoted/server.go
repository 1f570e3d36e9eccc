//go:build linux

package remoted

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/remote"
	"gatehouse/internal/problem"
)

// Options configure a Server.
type Options struct {
	Provider  sandbox.Provider
	Artifacts *Store
	// Token is what the node shows as a bearer token; at least 32 bytes.
	Token []byte
	// Dir holds one folder per session for its door's socket; closed to agents.
	Dir string
	// Transcripts is the Provider's folder of <session>.log files, which outlive
	// their sandboxes there and not here. "" = it keeps none.
	Transcripts string
	// Program plays the shim when it is started with shim.Role.
	Program string
	// ShimUID is the shim's user when this process is root, and Agents tells
	// whether a user is one that agents run as.
	ShimUID uint32
	Agents  func(uid uint32) bool
	// Sessions at a time, 0 = 64.
	Sessions int
	Log      *slog.Logger
}

// Server is the machine's side of the contract. Close it.
type Server struct {
	o       Options
	mux     *http.ServeMux
	token   [sha256.Size]byte
	version string
	canary  canary

	mu       sync.Mutex
	sessions map[string]*session
	closing  bool
	wg       sync.WaitGroup
}

// routes are the contract, as docs/api/remote-provider.yaml lists it.
var routes = map[string]func(*Server, http.ResponseWriter, *http.Request) error{
	"GET /v1/provider":                            (*Server).about,
	"POST /v1/sessions":                           (*Server).create,
	"GET /v1/sessions/{session}":                  (*Server).status,
	"DELETE /v1/sessions/{session}":               (*Server).remove,
	"POST /v1/sessions/{session}/probe":           (*Server).probe,
	"POST /v1/sessions/{session}/run":             (*Server).run,
	"POST /v1/sessions/{session}/cancel":          (*Server).cancel,
	"GET /v1/sessions/{session}/artifacts/{hash}": (*Server).artifact,
}

// New returns a Server. What an earlier run left in Dir, beside it and in
// Transcripts is removed.
func New(o Options) (*Server, error) {
	if len(o.Token) < 32 {
		return nil, problem.New(problem.ConfigInvalid, "the token has fewer than 32 bytes", "make one with: openssl rand -hex 32")
	}
	if o.Provider == nil || o.Artifacts == nil || o.Dir == "" || o.Program == "" || o.Agents == nil {
		return nil, errors.New("remoted: provider, artifacts, folder, program and the agents' users are needed")
	}
	if o.Sessions == 0 {
		o.Sessions = 64
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if err := errors.Join(os.RemoveAll(o.Dir), os.MkdirAll(o.Dir, 0o700), sweep(filepath.Join(filepath.Dir(o.Dir), canaryPrefix+"*"))); err != nil {
		return nil, fmt.Errorf("remoted: %w", err)
	}
	if o.Transcripts != "" {
		if err := sweep(filepath.Join(o.Transcripts, "*.log")); err != nil {
			return nil, fmt.Errorf("remoted: %w", err)
		}
	}
	s := &Server{o: o, mux: http.NewServeMux(), token: sha256.Sum256(o.Token), sessions: map[string]*session{}}
	var err error
	if s.version, err = version(o.Provider); err != nil {
		return nil, err
	}
	if err := s.canary.plant(o.Dir); err != nil {
		return nil, err
	}
	for pattern, handle := range routes {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(s, w, r); err != nil {
				refuse(w, err)
			}
		})
	}
	return s, nil
}

// version is the digest of this program and of what the provider runs.
func version(p sandbox.Provider) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("remoted: %w", err)
	}
	f, err := os.Open(self)
	if err != nil {
		return "", fmt.Errorf("remoted: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("remoted: %w", err)
	}
	if v, ok := p.(sandbox.Versioned); ok {
		runs, err := v.Version()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "\n%s %s\n", p.Name(), runs)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// canary is what this machine plants where a secret of it could lie: a readable
// file, and its own environment. Each probe looks for it.
type canary struct{ value, file string }

const (
	canaryVariable = "GATEHOUSE_REMOTE_CANARY"
	canaryPrefix   = "gatehouse-remote-canary-"
)

// sweep removes the files that match a pattern.
func sweep(pattern string) error {
	all, err := filepath.Glob(pattern)
	for _, path := range all {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (c *canary) plant(dir string) error {
	c.value = "gatehouse-remote-" + rand.Text()
	f, err := os.CreateTemp(filepath.Dir(dir), canaryPrefix)
	if err != nil {
		return fmt.Errorf("remoted: %w", err)
	}
	c.file = f.Name()
	_, err = f.WriteString(c.value)
	if err := errors.Join(err, f.Chmod(0o644), f.Close(), os.Setenv(canaryVariable, c.value)); err != nil {
		return fmt.Errorf("remoted: %w", err)
	}
	return nil
}

// Close ends every session and returns when nothing of them is left.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closing = true
	all := make([]*session, 0, len(s.sessions))
	for _, x := range s.sessions {
		all = append(all, x)
	}
	s.mu.Unlock()
	for _, x := range all {
		x.end()
	}
	s.wg.Wait()
	_ = os.Unsetenv(canaryVariable)
	return os.Remove(s.canary.file)
}

// ServeHTTP answers the one node that has the token.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	shown, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(shown))
	if !bearer || subtle.ConstantTimeCompare(sum[:], s.token[:]) != 1 {
		refuse(w, problem.New(problem.Unauthenticated, "no token of this machine", ""))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// refuse writes an error. Only the node that has the token reads its words.
func refuse(w http.ResponseWriter, err error) {
	f := remote.Fault{Code: string(problem.CodeOf(err)), Title: err.Error(), Hint: problem.HintOf(err)}
	switch problem.CodeOf(err) {
	case problem.Unauthenticated:
		f.Status = http.StatusUnauthorized
	case problem.NotFound:
		f.Status = http.StatusNotFound
	case problem.Conflict:
		f.Status = http.StatusConflict
	case problem.ConfigInvalid:
		f.Status = http.StatusBadRequest
	case problem.ProviderCapabilityMissing, problem.AgentNotFound:
		f.Status = http.StatusUnprocessableEntity
	default:
		f.Status, f.Code = http.StatusInternalServerError, string(problem.SandboxFailed)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(f)
}

func answer(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a node that is gone reads nothing
	return nil
}

func (s *Server) about(w http.ResponseWriter, _ *http.Request) error {
	a := remote.About{Contract: remote.Contract, Version: s.version, Capabilities: []sandbox.Capability{}}
	for c, has := range s.o.Provider.Capabilities() {
		if has {
			a.Capabilities = append(a.Capabilities, c)
		}
	}
	slices.Sort(a.Capabilities)
	return answer(w, http.StatusOK, a)
}

var sessionForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

func (s *Server) create(w http.ResponseWriter, r *http.Request) error {
	var c remote.Create
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, remote.MaxBody))
	d.DisallowUnknownFields() // what this machine does not know it cannot honour
	if err := d.Decode(&c); err != nil {
		return problem.Wrap(err, problem.ConfigInvalid, "the request is not of this contract", "run the same release on both machines")
	}
	if !sessionForm.MatchString(c.Session) {
		return problem.New(problem.ConfigInvalid, "malformed session", "")
	}
	x, err := s.enter(c.Session)
	if err != nil {
		return err
	}
	if err := x.start(r.Context(), &c); err != nil {
		x.end()
		return err
	}
	return answer(w, http.StatusCreated, x.said())
}

// enter takes the session's place.
func (s *Server) enter(id string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return nil, problem.New(problem.SandboxFailed, "the machine is shutting down", "")
	case s.sessions[id] != nil:
		return nil, problem.New(problem.Conflict, "a sandbox of this session exists already", "")
	case len(s.sessions) >= s.o.Sessions:
		return nil, problem.New(problem.SandboxFailed, fmt.Sprintf("%d sandboxes run already", len(s.sessions)), "")
	}
	x := &session{s: s, id: id, state: remote.StateCreated, gone: make(chan struct{})}
	x.life, x.stop = context.WithCancel(context.Background())
	x.lease = time.AfterFunc(remote.Lease, func() {
		s.o.Log.Warn("a sandbox's lease ended", slog.String("session", id))
		x.end()
	})
	s.sessions[id] = x
	s.wg.Add(1)
	return x, nil
}

func (s *Server) find(r *http.Request) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sessions[r.PathValue("session")]
	if x == nil {
		return nil, problem.New(problem.NotFound, "no such session", "")
	}
	return x, nil
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	x, err := s.find(r)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, x.said())
}

// remove is idempotent: a session that is not there is removed.
func (s *Server) remove(w http.ResponseWriter, r *http.Request) error {
	if x, err := s.find(r); err == nil {
		if err := x.end(); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request) error {
	x, err := s.find(r)
	if err != nil {
		return err
	}
	x.stop()
	return answer(w, http.StatusAccepted, x.said())
}

func (s *Server) artifact(w http.ResponseWriter, r *http.Request) error {
	x, err := s.find(r)
	if err != nil {
		return err
	}
	sum := r.PathValue("hash")
	if !x.holds(sum) {
		return problem.New(problem.NotFound, "no such artifact of this session", "")
	}
	f, err := s.o.Artifacts.open(sum)
	if err != nil {
		return problem.New(problem.NotFound, "no such artifact of this session", "")
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.Copy(w, f)
	return nil
}
