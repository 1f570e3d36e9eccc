// Command build makes verify.html from the TypeScript, the style and the page
// beside it. With -check it fails when a rebuild differs from the page checked in.
//
// It reads and writes receipts/verifyjs only, runs no program and reaches no
// network: the bundler is a Go library, fixed by go.sum.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

const (
	folder = "receipts/verifyjs"
	page   = "verify.html"
)

func main() {
	check := flag.Bool("check", false, "compare a rebuild with the page checked in")
	flag.Parse()
	if err := run(folder, *check); err != nil {
		fmt.Fprintln(os.Stderr, "verifyjs:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	got, err := build(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, page)
	if !check {
		return os.WriteFile(path, got, 0o644)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("a rebuild differs from the %s checked in: %x, want %x; run `make verifyjs`", page, sha256.Sum256(got), sha256.Sum256(want))
	}
	fmt.Printf("verifyjs: %s rebuilt byte for byte, %d bytes\n", page, len(got))
	return nil
}

// build returns the page. Its policy names the script and the style by their
// digests and allows nothing else: no network, no frame, no form, no plugin.
func build(dir string) ([]byte, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	script, err := bundle(dir)
	if err != nil {
		return nil, err
	}
	style, err := os.ReadFile(filepath.Join(dir, "page.css"))
	if err != nil {
		return nil, err
	}
	template, err := os.ReadFile(filepath.Join(dir, "page.html"))
	if err != nil {
		return nil, err
	}
	if bytes.Contains(script, []byte("</")) || bytes.Contains(style, []byte("</")) {
		return nil, errors.New("the script or the style would end its element")
	}
	policy := fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
		digest(script), digest(style))
	return []byte(strings.NewReplacer("{{csp}}", policy, "{{style}}", string(style), "{{script}}", string(script)).Replace(string(template))), nil
}

func digest(b []byte) string {
	d := sha256.Sum256(b)
	return "sha256-" + base64.StdEncoding.EncodeToString(d[:])
}

// bundle returns the TypeScript as one script, readable, whose exports are the
// members of one name.
func bundle(dir string) ([]byte, error) {
	res := api.Build(api.BuildOptions{
		AbsWorkingDir: dir,
		EntryPoints:   []string{"src/page.ts"},
		Bundle:        true,
		Format:        api.FormatIIFE,
		GlobalName:    "gatehouse",
		Target:        api.ES2022,
		Charset:       api.CharsetASCII,
		LegalComments: api.LegalCommentsNone,
		LogLevel:      api.LogLevelSilent,
		TsconfigRaw:   `{}`, // nothing above or beside the folder steers it
	})
	for _, m := range res.Errors {
		return nil, fmt.Errorf("bundle: %s", m.Text)
	}
	if len(res.OutputFiles) != 1 {
		return nil, fmt.Errorf("bundle: %d files", len(res.OutputFiles))
	}
	return res.OutputFiles[0].Contents, nil
}
