package pull

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"gatehouse/gatekeeper/sandbox/image"
	"gatehouse/internal/problem"
)

// Bounds of what is taken.
const (
	// Most is what an image's layers may take together when Options say nothing.
	Most        = 8 << 30
	maxDocument = 4 << 20 // a manifest, a configuration, an answer with a token
	maxLayers   = 128
)

// Options say what is fetched and how.
type Options struct {
	Image  Image
	Exits  map[string]http.RoundTripper // by host as URLs write it, the registry's among them; no other is asked
	Folder string                       // of layouts
	Most   int64                        // bytes of all layers, 0 = Most
}

// Image is one image by its digest.
type Image struct{ ref name.Digest }

// Parse reads REGISTRY/NAME@sha256:DIGEST. No registry is built in.
func Parse(s string) (Image, error) {
	wrong := func(hint string) error {
		return problem.New(problem.Usage, "the image is not named by its registry and digest", hint)
	}
	at, digest, ok := strings.Cut(s, "@")
	if !ok { // IM-01
		return Image{}, wrong("a tag may name another image tomorrow; look up its digest and write REGISTRY/NAME@sha256:DIGEST")
	}
	ref, err := name.NewDigest(at+"@"+digest, name.StrictValidation)
	if host, _, found := strings.Cut(at, "/"); err != nil || !found || ref.Context().RegistryStr() != host || !strings.HasPrefix(digest, "sha256:") {
		return Image{}, wrong("write REGISTRY/NAME@sha256:DIGEST, for example registry.example.com/tools/go@sha256:0123...")
	}
	return Image{ref}, nil
}

// Host is the registry's, with its port when it is written.
func (i Image) Host() string { return i.ref.Context().RegistryStr() }

// Pulled is what was fetched.
type Pulled struct {
	Image  string `json:"image"`  // as a bundle names it
	Layout string `json:"layout"` // the folder it lies in
	Layers int    `json:"layers"`
	Bytes  int64  `json:"bytes"`
}

// Pull fetches an image into a layout that is named after its digest, through an
// index for this machine when the digest names one.
func Pull(ctx context.Context, o Options) (Pulled, error) {
	if o.Most == 0 {
		o.Most = Most
	}
	way := &way{exits: o.Exits, registry: o.Image.Host()}
	way.left.Store(o.Most + 2*maxDocument)
	opts := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(way), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}), remote.WithJobs(1),
		remote.WithRetryPredicate(func(error) bool { return false }), remote.WithRetryStatusCodes(),
	}
	p, err := pull(o, opts)
	if err != nil {
		return Pulled{}, way.explain(err)
	}
	return p, nil
}

func pull(o Options, opts []remote.Option) (Pulled, error) {
	got, err := remote.Get(o.Image.ref, opts...) // held against the digest there
	if err != nil {
		return Pulled{}, err
	}
	img, err := got.Image()
	if err != nil {
		return Pulled{}, err
	}
	m, err := img.Manifest()
	if err != nil {
		return Pulled{}, err
	}
	size, err := check(m, o.Most)
	if err != nil {
		return Pulled{}, err
	}
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return Pulled{}, err
	}
	fresh, err := os.MkdirTemp(o.Folder, ".pull-*")
	if err != nil {
		return Pulled{}, err
	}
	defer os.RemoveAll(fresh)
	l, err := layout.Write(fresh, empty.Index)
	if err != nil {
		return Pulled{}, err
	}
	if err := l.AppendImage(img); err != nil { // every blob is held against its digest and size
		return Pulled{}, err
	}
	if got.MediaType.IsIndex() {
		if err := l.WriteBlob(got.Digest, io.NopCloser(bytes.NewReader(got.Manifest))); err != nil {
			return Pulled{}, err
		}
	}
	at := filepath.Join(o.Folder, got.Digest.Hex)
	if err := os.RemoveAll(at); err != nil { // a damaged one, perhaps
		return Pulled{}, err
	}
	if err := os.Rename(fresh, at); err != nil {
		return Pulled{}, err
	}
	return Pulled{Image: o.Image.ref.Context().Name() + "@" + got.Digest.String(), Layout: at, Layers: len(m.Layers), Bytes: size}, nil
}

// check refuses, before any layer is asked for, what could not be unpacked.
func check(m *v1.Manifest, most int64) (int64, error) {
	if len(m.Layers) > maxLayers || m.Config.Size > maxDocument || m.Config.Size < 0 {
		return 0, problem.New(problem.Usage, "the image has too many layers or too large a configuration", "")
	}
	var size int64
	for _, l := range m.Layers {
		if !image.Unpacks(string(l.MediaType)) {
			return 0, problem.New(problem.Usage, "the image has a layer that is neither plain nor gzip", "save it again with gzip layers")
		}
		if size += l.Size; l.Size < 0 || l.Size > most || size > most { // IM-04
			return 0, tooLarge(most)
		}
	}
	return size, nil
}

func tooLarge(most int64) error {
	return problem.New(problem.Usage, fmt.Sprintf("the image is larger than %d MiB", most>>20), "take a smaller image, or raise --max-mib")
}

// way is the http.RoundTripper of one pull: it knows the exits and counts.
type way struct {
	exits    map[string]http.RoundTripper
	registry string
	left     atomic.Int64
	refused  atomic.Pointer[string] // host that nobody declared
	spent    atomic.Bool
}

func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	exit := w.exits[r.URL.Host]
	if exit == nil || r.URL.Scheme != "https" { // IM-02
		host := r.URL.Host
		w.refused.CompareAndSwap(nil, &host)
		return nil, errors.New("this host is not declared")
	}
	resp, err := exit.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	most := w.left.Load()
	if r.URL.Host == w.registry && !strings.Contains(r.URL.Path, "/blobs/") {
		most = min(most, maxDocument) // it is held in memory
	}
	resp.Body = &counted{ReadCloser: resp.Body, w: w, left: most}
	return resp, nil
}

// counted cuts an answer that is longer than what may be taken.
type counted struct {
	io.ReadCloser
	w    *way
	left int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.left -= int64(n)
	if c.w.left.Add(-int64(n)) < 0 || c.left < 0 { // IM-04
		c.w.spent.Store(true)
		return 0, errors.New("the answer is longer than what may be taken")
	}
	return n, err
}

// explain says what went wrong. URLs of answers may carry signatures, and words
// of a registry are its own: neither is repeated.
func (w *way) explain(err error) error {
	if host := w.refused.Load(); host != nil {
		return problem.New(problem.Forbidden, "the registry sends to a host that is not declared: "+printable(*host), "name it with --also HOST when you trust it with these requests")
	}
	if w.spent.Load() {
		return problem.New(problem.Usage, "the registry sends more than may be taken", "take a smaller image, or raise --max-mib")
	}
	var p *problem.Error
	if errors.As(err, &p) {
		return problem.New(p.Code, p.Msg, p.Hint)
	}
	var status *transport.Error
	if errors.As(err, &status) {
		return problem.New(problem.Unreachable, fmt.Sprintf("the registry answered %d", status.StatusCode), "check the name and the digest, and give --connection when the image is not public")
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if strings.Contains(err.Error(), "://") || strings.Contains(err.Error(), "\n") {
		err = errors.New("its answers do not hold")
	}
	return problem.New(problem.Unreachable, "the image could not be fetched: "+printable(err.Error()), "")
}

// printable keeps what a host name or a digest may be made of.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), 200)]
}
