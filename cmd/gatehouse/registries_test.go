package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// registry is a fake of every package registry at once, at one host. What it
// was asked with is kept, so that a test can tell who put a credential there.
type registry struct {
	host  string
	token string // "" = open to anyone
	files map[string]file
	also  func(*http.Request) bool // lets a request in under another credential

	mu   sync.Mutex
	seen []string // Authorization of every request, "" for none
}

type file struct {
	kind string
	body []byte
}

// newRegistry serves acme-util, @acme/util, acme_tool, acme.test/lib and
// acme-dep, all empty but for a word that says where it came from.
func newRegistry(t testing.TB, host, token string) *registry {
	r := &registry{host: host, token: token, files: map[string]file{}}
	r.npm(t, "acme-util")
	r.npm(t, "@acme/util")
	r.python(t)
	r.golang(t)
	r.crate(t)
	r.files["/api/v3/repos/acme/shop"] = file{"application/json", []byte(`{"full_name":"acme/shop","id":1}`)}
	r.files["/maven/acme/lib.txt"] = file{"text/plain", []byte("java from " + host + "\n")}
	return r
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	sent := q.Header.Get("Authorization")
	r.mu.Lock()
	r.seen = append(r.seen, sent)
	r.mu.Unlock()
	if r.also != nil && r.also(q) {
		_, _ = io.WriteString(w, "let in")
		return
	}
	if r.token != "" && sent != "Bearer "+r.token {
		http.Error(w, "no credential", http.StatusUnauthorized)
		return
	}
	f, ok := r.files[strings.ReplaceAll(q.URL.EscapedPath(), "%2f", "%2F")]
	if !ok {
		http.NotFound(w, q)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	_, _ = w.Write(f.body)
}

// sent returns what the registry was sent as Authorization so far.
func (r *registry) sent() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.seen...)
}

func (r *registry) npm(t testing.TB, name string) {
	t.Helper()
	tgz := tarball(t, map[string]string{
		"package/package.json": fmt.Sprintf(`{"name":%q,"version":"1.0.0","main":"index.js"}`, name),
		"package/index.js":     fmt.Sprintf("module.exports = 'npm from %s'\n", r.host),
	})
	short, weak := sha512.Sum512(tgz), sha1.Sum(tgz)
	at := "/npm/" + name + "/-/util-1.0.0.tgz"
	r.files[at] = file{"application/octet-stream", tgz}
	meta, err := json.Marshal(map[string]any{
		"name": name, "dist-tags": map[string]string{"latest": "1.0.0"},
		"versions": map[string]any{"1.0.0": map[string]any{
			"name": name, "version": "1.0.0",
			"dist": map[string]any{
				"tarball": "https://" + r.host + at, "shasum": hex.EncodeToString(weak[:]),
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(short[:]),
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// A scoped name is asked for with its slash encoded.
	r.files["/npm/"+strings.ReplaceAll(name, "/", "%2F")] = file{"application/json", meta}
}

func (r *registry) python(t testing.TB) {
	t.Helper()
	const info = "acme_tool-1.0.dist-info/"
	wheel := zipped(t, []entry{
		{"acme_tool.py", fmt.Sprintf("WHERE = 'pip from %s'\n", r.host)},
		{info + "METADATA", "Metadata-Version: 2.1\nName: acme-tool\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", "acme_tool.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	})
	sum := sha256.Sum256(wheel)
	const name = "acme_tool-1.0-py3-none-any.whl"
	r.files["/simple/acme-tool/"] = file{"text/html", fmt.Appendf(nil, `<!DOCTYPE html><a href="../../files/%s#sha256=%x">%s</a>`, name, sum, name)}
	r.files["/files/"+name] = file{"application/zip", wheel}
}

func (r *registry) golang(t testing.TB) {
	t.Helper()
	const module, version = "acme.test/lib", "v1.0.0"
	mod := "module " + module + "\n\ngo 1.21\n"
	root := module + "@" + version + "/"
	at := "/go/" + module + "/@v/"
	r.files[at+"list"] = file{"text/plain", []byte(version + "\n")}
	r.files[at+version+".info"] = file{"application/json", []byte(`{"Version":"` + version + `","Time":"2026-01-01T00:00:00Z"}`)}
	r.files[at+version+".mod"] = file{"text/plain", []byte(mod)}
	r.files[at+version+".zip"] = file{"application/zip", zipped(t, []entry{{root + "go.mod", mod}, {root + "lib.go", "package lib\n\n// go from " + r.host + "\n"}})}
}

func (r *registry) crate(t testing.TB) {
	t.Helper()
	crate := tarball(t, map[string]string{
		"acme-dep-1.0.0/Cargo.toml": "[package]\nname = \"acme-dep\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
		"acme-dep-1.0.0/src/lib.rs": "// cargo from " + r.host + "\n",
	})
	sum := sha256.Sum256(crate)
	r.files["/cargo/config.json"] = file{"application/json", fmt.Appendf(nil, `{"dl":"https://%s/crates/{crate}/{version}"}`, r.host)}
	r.files["/cargo/ac/me/acme-dep"] = file{"text/plain", fmt.Appendf(nil, `{"name":"acme-dep","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sum)}
	r.files["/crates/acme-dep/1.0.0"] = file{"application/x-tar", crate}
}

func tarball(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type entry struct{ name, text string }

func zipped(t testing.TB, files []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		e, err := w.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(e, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
