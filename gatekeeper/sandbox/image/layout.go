package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Limits of what is read from a layout.
const (
	maxDocument = 4 << 20 // of an index, a manifest or a configuration
	maxLayers   = 128
	maxMembers  = 1 << 16 // of a layout's archive
)

// Media types of the OCI image format, and the same in Docker's words.
var (
	plainTypes = []string{"application/vnd.oci.image.layer.v1.tar", "application/vnd.docker.image.rootfs.diff.tar"}
	gzipTypes  = []string{"application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.docker.image.rootfs.diff.tar.gzip"}
)

// Unpacks reports whether a layer of this media type can be unpacked.
func Unpacks(mediaType string) bool {
	return slices.Contains(plainTypes, mediaType) || slices.Contains(gzipTypes, mediaType)
}

// descriptor names a blob.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	Platform  struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// document is an index or a manifest.
type document struct {
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// layout is one image layout.
type layout struct {
	open  func(name string) (io.ReadCloser, error) // of a file below it, fs.ErrNotExist
	close func() error
}

// openLayout opens a folder or an archive.
func openLayout(name string) (*layout, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if fi.IsDir() {
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		return &layout{open: func(n string) (io.ReadCloser, error) { return root.Open(n) }, close: root.Close}, nil
	}
	return openArchive(name)
}

// openArchive indexes the members of a tar archive.
func openArchive(name string) (*layout, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	at := map[string][2]int64{} // offset, size
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && len(at) == maxMembers {
			err = errors.New("too many members")
		}
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		offset, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if h.Typeflag == tar.TypeReg {
			at[path.Clean(h.Name)] = [2]int64{offset, h.Size}
		}
	}
	return &layout{
		open: func(n string) (io.ReadCloser, error) {
			m, ok := at[n]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return io.NopCloser(io.NewSectionReader(f, m[0], m[1])), nil
		},
		close: f.Close,
	}, nil
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// blob opens a blob by its digest. Whoever reads it checks that digest.
func (l *layout) blob(digest string) (io.ReadCloser, error) {
	if !digestForm.MatchString(digest) {
		return nil, fmt.Errorf("%q is no sha256 digest", digest)
	}
	return l.open("blobs/sha256/" + strings.TrimPrefix(digest, "sha256:"))
}

// read returns a small blob whose digest holds.
func (l *layout) read(digest string) ([]byte, error) {
	r, err := l.blob(digest)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); len(b) > maxDocument || "sha256:"+hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("the blob %.19s is not what its digest says", digest)
	}
	return b, nil
}

// manifest returns the manifest that a digest names, through an index for this
// machine when it names one.
func (l *layout) manifest(digest string) (document, error) {
	for range 3 { // an index of an index is as deep as it goes
		raw, err := l.read(digest)
		if err != nil {
			return document{}, err
		}
		var d document
		if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&d); err != nil {
			return document{}, fmt.Errorf("the manifest: %w", err)
		}
		if len(d.Manifests) == 0 {
			if len(d.Layers) > maxLayers {
				return document{}, fmt.Errorf("%d layers", len(d.Layers))
			}
			return d, nil
		}
		digest = ""
		for _, m := range d.Manifests {
			if m.Platform.OS == "linux" && m.Platform.Architecture == runtime.GOARCH {
				digest = m.Digest
				break
			}
		}
		if digest == "" {
			return document{}, fmt.Errorf("the image has no linux/%s", runtime.GOARCH)
		}
	}
	return document{}, errors.New("the image's index leads nowhere")
}
