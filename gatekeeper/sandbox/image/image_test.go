package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/sandbox/image"
	"gatehouse/internal/problem"
)

// member is one entry of a layer. Content ending in "->" is a symbolic link,
// "=>" a hard link; a name ending in "/" is a folder.
type member struct {
	name, content string
	mode          int64
	kind          byte // 0 = by the above
}

func pack(t testing.TB, members []member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Mode: m.mode, Typeflag: m.kind}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		link, symbolic := strings.CutPrefix(m.content, "->")
		hard, linked := strings.CutPrefix(m.content, "=>")
		switch {
		case m.kind != 0:
		case symbolic:
			h.Typeflag, h.Linkname = tar.TypeSymlink, link
		case linked:
			h.Typeflag, h.Linkname = tar.TypeLink, hard
		case strings.HasSuffix(m.name, "/"):
			h.Typeflag = tar.TypeDir
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(m.content))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(m.content)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// builder collects the blobs of one layout.
type builder struct {
	t     testing.TB
	blobs map[string][]byte // by digest
}

type descriptor map[string]any

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (b *builder) add(kind string, raw []byte) descriptor {
	b.blobs[digestOf(raw)] = raw
	return descriptor{"mediaType": kind, "digest": digestOf(raw), "size": len(raw)}
}

func (b *builder) json(kind string, v any) descriptor {
	b.t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.add(kind, raw)
}

// image adds an image and returns its digest. spoil may change the manifest.
func (b *builder) image(layers [][]member, spoil func(layers []descriptor, diffs []string)) string {
	b.t.Helper()
	var ds []descriptor
	var diffs []string
	for i, l := range layers {
		plain := pack(b.t, l)
		diffs = append(diffs, digestOf(plain))
		if i%2 == 1 {
			ds = append(ds, b.add("application/vnd.oci.image.layer.v1.tar", plain))
			continue
		}
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write(plain); err != nil {
			b.t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.t.Fatal(err)
		}
		ds = append(ds, b.add("application/vnd.oci.image.layer.v1.tar+gzip", z.Bytes()))
	}
	if spoil != nil {
		spoil(ds, diffs)
	}
	config := b.json("application/vnd.oci.image.config.v1+json", map[string]any{"rootfs": map[string]any{"type": "layers", "diff_ids": diffs}})
	m := b.json("application/vnd.oci.image.manifest.v1+json", map[string]any{"schemaVersion": 2, "config": config, "layers": ds})
	return m["digest"].(string)
}

// folder writes the layout as a folder, archive as one file.
func (b *builder) folder(dir string) {
	b.t.Helper()
	at := filepath.Join(dir, "layout", "blobs", "sha256")
	if err := os.MkdirAll(at, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for digest, raw := range b.blobs {
		if err := os.WriteFile(filepath.Join(at, strings.TrimPrefix(digest, "sha256:")), raw, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *builder) archive(dir string) {
	b.t.Helper()
	var members []member
	for digest, raw := range b.blobs {
		members = append(members, member{name: "./blobs/sha256/" + strings.TrimPrefix(digest, "sha256:"), content: string(raw), kind: 0})
	}
	if err := os.WriteFile(filepath.Join(dir, "image.tar"), pack(b.t, members), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// tree lists what is below a folder: mode, and content or link.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			out[name+"/"] = fi.Mode().Perm().String()
		case fi.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			out[name] = "->" + to
			return err
		case !fi.Mode().IsRegular():
			out[name] = fi.Mode().String()
		default:
			b, err := os.ReadFile(path)
			out[name] = (fi.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid)).String() + " " + string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ordinary is an image of three layers with everything that ordinary ones have.
var ordinary = [][]member{
	{
		{name: "usr/"}, {name: "usr/bin/"}, {name: "usr/bin/tool", content: "v1"}, {name: "usr/bin/su", content: "x", mode: 0o4755},
		{name: "bin", content: "->usr/bin"}, {name: "lib", content: "->/usr/lib"}, {name: "etc/", mode: 0o700}, {name: "etc/secret", content: "s", mode: 0o600},
		{name: "old/", mode: 0o555}, {name: "old/a", content: "a"}, {name: "old/b", content: "b"}, {name: "gone", content: "g"},
		{name: "dev/null", kind: tar.TypeChar}, {name: "run/pipe", kind: tar.TypeFifo},
	},
	{
		{name: "./bin/tool", content: "v2"}, {name: "lib/libx.so", content: "x"}, {name: ".wh.gone"}, {name: "old/.wh.a"},
		{name: "usr/bin/twin", content: "=>usr/bin/tool"},
	},
	{{name: "old/.wh..wh..opq"}, {name: "old/c", content: "c"}, {name: "etc", content: "now a file", mode: 0o644}},
}

var unpacked = map[string]string{
	"usr/": "-rwxr-xr-x", "usr/bin/": "-rwxr-xr-x", "usr/bin/tool": "-rwxr-xr-x v2", "usr/bin/twin": "-rwxr-xr-x v2", "usr/bin/su": "-rwxr-xr-x x",
	"bin": "->usr/bin", "lib": "->/usr/lib", "usr/lib/": "-rwxr-xr-x", "usr/lib/libx.so": "-rwxr-xr-x x",
	"old/": "-rwxr-xr-x", "old/c": "-rwxr-xr-x c", "etc": "-rw-r--r-- now a file", "dev/": "-rwxr-xr-x", "run/": "-rwxr-xr-x",
}

func TestRootfs(t *testing.T) {
	for name, save := range map[string]func(*builder, string){"folder": (*builder).folder, "archive": (*builder).archive} {
		t.Run(name, func(t *testing.T) {
			b := &builder{t: t, blobs: map[string][]byte{}}
			digest := b.image(ordinary, nil)
			other := b.image([][]member{{{name: "other", content: "o"}}}, nil)
			index := b.json("application/vnd.oci.image.index.v1+json", map[string]any{"manifests": []descriptor{
				{"digest": other, "platform": map[string]string{"os": "linux", "architecture": "none"}},
				{"digest": digest, "platform": map[string]string{"os": "linux", "architecture": runtime.GOARCH}},
			}})["digest"].(string)
			layouts, dir := t.TempDir(), filepath.Join(t.TempDir(), "rootfs")
			save(b, layouts)
			s := image.NewStore(layouts, dir)
			var wg sync.WaitGroup
			for _, d := range []string{digest, digest, index} {
				wg.Go(func() {
					at, err := s.Rootfs(t.Context(), "example/tools@"+d)
					if err != nil {
						t.Error(err)
						return
					}
					want := map[string]string{}
					for k, v := range unpacked {
						want[k] = v
					}
					want["old/"] = "-rwxr-xr-x" // 0555, and the node's own way in
					if diff := cmp.Diff(want, tree(t, at)); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				})
			}
			wg.Wait()
			// Once unpacked, the layout is not needed.
			if _, err := image.NewStore(t.TempDir(), dir).Rootfs(t.Context(), "any/name@"+digest); err != nil {
				t.Errorf("the second time: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestHostileImages: nothing is written outside, and no image is used whose
// bytes are not what its digest says.
func TestHostileImages(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o666); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 20)
	cases := map[string]struct {
		layers  [][]member
		spoil   func([]descriptor, []string)
		refused bool
		want    map[string]string // of what is unpacked, when it is
	}{
		"climbing_name":            {layers: [][]member{{{name: up + outside[1:], content: "poison"}}}},
		"absolute_name":            {layers: [][]member{{{name: outside, content: "poison"}}}},
		"through_a_link":           {layers: [][]member{{{name: "out", content: "->" + filepath.Dir(outside)}, {name: "out/outside", content: "poison"}}}},
		"through_a_climbing_link":  {layers: [][]member{{{name: "out", content: "->" + up + filepath.Dir(outside)[1:]}, {name: "out/outside", content: "poison"}}}},
		"hard_link_out":            {layers: [][]member{{{name: "hard", content: "=>" + up + outside[1:]}}}, refused: true},
		"whiteout_through_a_link":  {layers: [][]member{{{name: "out", content: "->" + filepath.Dir(outside)}, {name: "out/.wh.outside"}}}},
		"opaque_through_a_link":    {layers: [][]member{{{name: "out", content: "->" + filepath.Dir(outside)}, {name: "out/.wh..wh..opq"}}}},
		"whiteout_of_the_root":     {layers: [][]member{{{name: ".wh...", content: ""}}}, refused: true},
		"links_in_a_circle":        {layers: [][]member{{{name: "a", content: "->b"}, {name: "b", content: "->a"}, {name: "a/x", content: "x"}}}, refused: true},
		"a_file_as_a_folder":       {layers: [][]member{{{name: "f", content: "x"}, {name: "f/x", content: "x"}}}, refused: true},
		"other_bytes_in_a_layer":   {layers: [][]member{{{name: "a", content: "x"}}}, spoil: func(_ []descriptor, diffs []string) { diffs[0] = digestOf(nil) }, refused: true},
		"a_layer_of_another_image": {layers: [][]member{{{name: "a", content: "x"}}, {{name: "b", content: "x"}}}, spoil: func(l []descriptor, _ []string) { l[0]["digest"] = l[1]["digest"] }, refused: true},
		"a_layer_that_is_not_there": {layers: [][]member{{{name: "a", content: "x"}}}, spoil: func(l []descriptor, _ []string) {
			l[0]["digest"] = digestOf([]byte("nothing"))
		}, refused: true},
		"a_digest_with_a_path": {layers: [][]member{{{name: "a", content: "x"}}}, spoil: func(l []descriptor, _ []string) {
			l[0]["digest"] = "sha256:../../../../etc/passwd"
		}, refused: true},
		"an_unknown_compression": {layers: [][]member{{{name: "a", content: "x"}}}, spoil: func(l []descriptor, _ []string) {
			l[0]["mediaType"] = "application/vnd.oci.image.layer.v1.tar+zstd"
		}, refused: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := &builder{t: t, blobs: map[string][]byte{}}
			digest := b.image(c.layers, c.spoil)
			layouts, dir := t.TempDir(), filepath.Join(t.TempDir(), "rootfs")
			b.folder(layouts)
			_, err := image.NewStore(layouts, dir).Rootfs(t.Context(), "example/hostile@"+digest)
			if (err != nil) != c.refused || (err != nil && problem.CodeOf(err) != problem.ProviderCapabilityMissing) {
				t.Errorf("got %v", err)
			}
			if got, err := os.ReadFile(outside); err != nil || string(got) != "untouched" {
				t.Errorf("a file outside is now %q, %v", got, err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); c.refused && len(left) != 0 {
				t.Errorf("a refused image left %v", left)
			}
		})
	}
}

func TestImageNames(t *testing.T) {
	s := image.NewStore(t.TempDir(), t.TempDir())
	for name, code := range map[string]problem.Code{
		"example/tools:latest": problem.ConfigInvalid, "example/tools@sha256:abc": problem.ConfigInvalid, "": problem.ConfigInvalid,
		"example/tools@sha256:" + strings.Repeat("a", 64): problem.ProviderCapabilityMissing,
	} {
		if _, err := s.Rootfs(t.Context(), name); problem.CodeOf(err) != code {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// FuzzLayer: whatever a layer holds, nothing is written outside.
func FuzzLayer(f *testing.F) {
	f.Add(pack(f, ordinary[0]))
	f.Add(pack(f, []member{{name: "../../x", content: "x"}, {name: "l", content: "->/"}, {name: "l/x", content: "y"}}))
	f.Fuzz(func(t *testing.T, layer []byte) {
		top := t.TempDir()
		b := &builder{t: t, blobs: map[string][]byte{}}
		config := b.json("c", map[string]any{"rootfs": map[string]any{"diff_ids": []string{digestOf(layer)}}})
		m := b.json("m", map[string]any{"config": config, "layers": []descriptor{b.add("application/vnd.oci.image.layer.v1.tar", layer)}})
		layouts := filepath.Join(top, "layouts")
		b.folder(layouts)
		_, _ = image.NewStore(layouts, filepath.Join(top, "rootfs")).Rootfs(t.Context(), "f@"+m["digest"].(string))
		entries, err := os.ReadDir(top)
		if err != nil || len(entries) > 2 {
			t.Errorf("%d entries beside the store: %v", len(entries), err)
		}
	})
}
