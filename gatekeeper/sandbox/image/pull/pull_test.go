package pull

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper/sandbox/image"
	"gatehouse/internal/authority"
	"gatehouse/internal/outside"
	"gatehouse/internal/problem"
)

// store is a registry with one image, and what it does before it answers.
type store struct {
	plain http.Handler
	t     *testing.T

	mu    sync.Mutex
	first func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	asked []string
}

func newStore(t *testing.T) *store {
	return &store{t: t, plain: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	first := s.first
	s.mu.Unlock()
	if first != nil && first(w, r) {
		return
	}
	s.plain.ServeHTTP(w, r)
}

// keep puts something into the registry by a road of its own.
func (s *store) keep(write func(ref name.Reference) error) {
	s.t.Helper()
	srv := httptest.NewServer(s.plain)
	defer srv.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://")+"/tools/go:1", name.Insecure)
	if err == nil {
		err = write(ref)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) image(layers int64) (v1.Image, string) {
	s.t.Helper()
	img, err := random.Image(2000, layers)
	if err != nil {
		s.t.Fatal(err)
	}
	// What random makes says nothing of a machine.
	img = mutate.MediaType(img, types.OCIManifestSchema1)
	digest, err := img.Digest()
	if err != nil {
		s.t.Fatal(err)
	}
	s.keep(func(ref name.Reference) error { return remote.Write(ref, img) })
	return img, digest.String()
}

// world is an outside with a registry, and the exits of a node.
type world struct {
	t       *testing.T
	outside *outside.World
	up      *upstream.Client
	dir     string
	calls   int
}

func newWorld(t *testing.T, sites map[string]http.Handler) (*world, map[string]*outside.Site) {
	t.Helper()
	o, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	counts := map[string]*outside.Site{}
	next := netip.MustParseAddr("93.184.216.40")
	for host, h := range sites {
		if counts[host], err = o.HTTPS(host, next, h); err != nil {
			t.Fatal(err)
		}
		next = next.Next()
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(o.CA())
	dev := &upstream.Dev{Upstreams: map[netip.AddrPort]netip.AddrPort{}, DNS: netip.MustParseAddrPort(o.DNS.Addr()), Roots: roots}
	for from, to := range o.Upstreams() {
		dev.Upstreams[netip.MustParseAddrPort(from)] = netip.MustParseAddrPort(to)
	}
	up, err := upstream.New(upstream.Options{Dev: dev})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	return &world{t: t, outside: o, up: up, dir: t.TempDir()}, counts
}

// pull fetches an image through upstream, with an exit for each host.
func (w *world) pull(ref string, most int64, hosts ...string) (Pulled, error) {
	w.t.Helper()
	img, err := Parse(ref)
	if err != nil {
		return Pulled{}, err
	}
	exits := map[string]http.RoundTripper{}
	for _, host := range hosts {
		to, err := authority.ParseHostHeader(authority.HTTPS, host)
		if err != nil {
			w.t.Fatal(err)
		}
		exits[host], err = w.up.Node(upstream.NodeOptions{Purpose: "image.pull", To: to, Begin: func(context.Context, string) (func(enforcers.Outcome), error) {
			w.calls++
			return func(enforcers.Outcome) {}, nil
		}})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return Pull(w.t.Context(), Options{Image: img, Exits: exits, Folder: w.dir, Most: most})
}

// nothing fails when a pull that was refused left something behind.
func (w *world) nothing() {
	w.t.Helper()
	if left, _ := filepath.Glob(filepath.Join(w.dir, "*")); len(left) != 0 {
		w.t.Errorf("left behind: %q", left)
	}
	if left, _ := filepath.Glob(filepath.Join(w.dir, ".*")); len(left) != 0 {
		w.t.Errorf("left behind: %q", left)
	}
}

const host = "registry.example.com"

// TestPull fetches an image, and one through an index, and unpacks both.
func TestPull(t *testing.T) {
	s := newStore(t)
	img, digest := s.image(3)
	other, err := random.Image(10, 1)
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "other"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	s.keep(func(ref name.Reference) error { return remote.WriteIndex(ref, index) })
	top, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	w, _ := newWorld(t, map[string]http.Handler{host: s})
	for what, d := range map[string]string{"image": digest, "index": top.String()} {
		t.Run(what, func(t *testing.T) {
			for range 2 { // a second time replaces the first
				w.calls = 0
				got, err := w.pull(host+"/tools/go@"+d, 0, host)
				if err != nil {
					t.Fatal(err)
				}
				if got.Layers != 3 || got.Bytes == 0 || got.Image != host+"/tools/go@"+d || w.calls < 5 {
					t.Errorf("%+v after %d calls", got, w.calls)
				}
			}
			rootfs, err := image.NewStore(w.dir, t.TempDir()).Rootfs(t.Context(), host+"/tools/go@"+d)
			if err != nil {
				t.Fatal(err)
			}
			if files, err := os.ReadDir(rootfs); err != nil || len(files) != 3 {
				t.Errorf("%d files, %v", len(files), err)
			}
		})
	}
}

// TestPullRefuses is what no registry may bring about.
func TestPullRefuses(t *testing.T) {
	blob := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }
	for id, c := range map[string]struct {
		first func(evil string) func(w http.ResponseWriter, r *http.Request) bool
		ref   string // "" = the image's
		most  int64
		code  problem.Code
		says  string
	}{
		"IM-01_tag":         {ref: host + "/tools/go:1", code: problem.Usage, says: "look up its digest"},
		"IM-01_no_registry": {ref: "tools/go@sha256:" + strings.Repeat("0", 64), code: problem.Usage, says: "REGISTRY/NAME"},
		"IM-01_short":       {ref: host + "/tools/go@sha256:00", code: problem.Usage, says: "REGISTRY/NAME"},
		"IM-02_blob_redirected": {first: func(evil string) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if blob(r) {
					http.Redirect(w, r, "https://"+evil+r.URL.Path+"?signature=canary", http.StatusTemporaryRedirect)
				}
				return blob(r)
			}
		}, code: problem.Forbidden, says: "not declared: evil.example.com"},
		"IM-02_token_elsewhere": {first: func(evil string) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+evil+`/token",service="canary"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
		}, code: problem.Forbidden, says: "not declared: evil.example.com"},
		"IM-03_other_manifest": {first: func(string) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/manifests/") {
					return false
				}
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				_, _ = io.WriteString(w, `{"schemaVersion":2}`)
				return true
			}
		}, code: problem.Unreachable},
		"IM-03_other_layer": {first: func(string) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if blob(r) {
					_, _ = io.WriteString(w, "canary")
				}
				return blob(r)
			}
		}, code: problem.Unreachable},
		"IM-04_too_large": {most: 1000, code: problem.Usage, says: "larger than"},
		"IM-04_endless_manifest": {first: func(string) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/manifests/") {
					return false
				}
				for range 2 * maxDocument >> 16 {
					_, _ = w.Write(bytes.Repeat([]byte(" "), 1<<16))
				}
				return true
			}
		}, code: problem.Usage, says: "more than may be taken"},
		"unknown": {ref: host + "/tools/go@sha256:" + strings.Repeat("0", 64), code: problem.Unreachable, says: "answered 404"},
	} {
		t.Run(id, func(t *testing.T) {
			const evil = "evil.example.com"
			s := newStore(t)
			_, digest := s.image(2)
			if c.first != nil {
				s.first = c.first(evil)
			}
			w, sites := newWorld(t, map[string]http.Handler{host: s, evil: http.NotFoundHandler()})
			ref := c.ref
			if ref == "" {
				ref = host + "/tools/go@" + digest
			}
			_, err := w.pull(ref, c.most, host)
			if problem.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err, problem.HintOf(err)), c.says) {
				t.Errorf("%v (%s)", err, problem.HintOf(err))
			}
			if strings.Contains(fmt.Sprint(err), "canary") {
				t.Errorf("it repeats the registry's words: %v", err)
			}
			if n := sites[evil].Accepts() + int64(w.outside.DNS.Queries(evil)); n != 0 {
				t.Errorf("the other host was reached %d times", n)
			}
			w.nothing()
		})
	}
}

// TestPullDeclared follows a registry to a host that somebody declared, without
// what was said to the registry (IM-05).
func TestPullDeclared(t *testing.T) {
	const layers = "layers.example.com"
	s := newStore(t)
	_, digest := s.image(1)
	away := newStore(t)
	away.plain = s.plain
	s.first = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/token":
			_, _ = io.WriteString(w, `{"token":"canary-token"}`)
		case r.Header.Get("Authorization") != "Bearer canary-token":
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, "/blobs/"):
			http.Redirect(w, r, "https://"+layers+r.URL.Path, http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	}
	w, _ := newWorld(t, map[string]http.Handler{host: s, layers: away})
	if _, err := w.pull(host+"/tools/go@"+digest, 0, host, layers); err != nil {
		t.Fatal(err)
	}
	if len(away.asked) == 0 {
		t.Error("the declared host was not asked")
	}
	for _, a := range away.asked {
		if strings.Contains(a, "canary") {
			t.Errorf("IM-05: it got %q", a)
		}
	}
}
