package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"gatehouse/receipts/verifyjs"
)

//go:embed static
var files embed.FS

// assets are the static files under names that hold their digest: they can be
// cached for good, and a changed file has another name.
type assets struct {
	urls map[string]string // file name -> URL
	by   map[string]asset  // URL -> file
}

type asset struct {
	body []byte
	mime string
}

// mimes are the only kinds of file that are served.
var mimes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

func loadAssets() (*assets, error) {
	a := &assets{urls: map[string]string{}, by: map[string]asset{}}
	// The second verifier, byte for byte the script of verify.html.
	_, script, ok1 := bytes.Cut(verifyjs.Page, []byte("<script>"))
	script, _, ok2 := bytes.Cut(script, []byte("</script>"))
	if !ok1 || !ok2 {
		return nil, errors.New("ui: verify.html holds no script")
	}
	a.add("verify.js", script)
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if mimes[path.Ext(name)] == "" {
			return nil // licences and notes
		}
		body, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		a.add(path.Base(name), body)
		return nil
	})
	return a, err
}

func (a *assets) add(name string, body []byte) {
	sum, ext := sha256.Sum256(body), path.Ext(name)
	url := fmt.Sprintf("/ui/static/%s-%s%s", strings.TrimSuffix(name, ext), base64.RawURLEncoding.EncodeToString(sum[:9]), ext)
	a.urls[name] = url
	a.by[url] = asset{body, mimes[ext]}
}

// ServeHTTP serves one file.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a.by[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.mime)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(f.body)
}
