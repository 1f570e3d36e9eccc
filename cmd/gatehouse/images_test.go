package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// show prints a file of its own root file system and one of a cache, and tries
// to change the cache.
const show = `package main

import ("fmt"; "os")

func main() {
	for _, name := range os.Args[1:] {
		b, err := os.ReadFile(name)
		fmt.Printf("%s: %s %v\n", name, b, err)
	}
	fmt.Println("write:", os.WriteFile("/cache/page", []byte("poison"), 0o644))
	_, err := os.Stat("/usr/bin/env")
	fmt.Println("host:", err)
}
`

// TestImageRootfs runs an agent in the root file system of an image that is
// unpacked by its digest, with a read-only cache of the node.
func TestImageRootfs(t *testing.T) {
	dir := nodeDir(t)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	source, program := filepath.Join(dir, "show.go"), filepath.Join(dir, "show")
	write(t, source, show)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	digest := saveImage(t, filepath.Join(dir, "state", "images", "tools"), program)
	cache := filepath.Join(dir, "state", "caches", "go")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(cache, "page"), "cached")
	if err := os.Chmod(filepath.Join(cache, "page"), 0o666); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "gatehouse.yaml"), "state: ./state\nsandbox: {unlimited: accepted}\n")
	bundle := func(digest, cache string) {
		write(t, filepath.Join(dir, "bundle.yaml"), `apiVersion: gatehouse/v1
kind: Bundle
name: image
mode: hard
accepts: operator
session:
  agent: {command: {argv: [/bin/show, /opt/marker, /cache/page]}}
  task: go
  rootfs: {oci: "example.com/tools@`+digest+`"}
  caches: [{name: `+cache+`, path: /cache}]
`)
	}
	run := func() (string, int) {
		cmd := hear(t, exec.CommandContext(t.Context(), binary, "-c", filepath.Join(dir, "gatehouse.yaml"), "run", "-b", filepath.Join(dir, "bundle.yaml")))
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	bundle(digest, "go")
	out, code := run()
	for _, want := range []string{"/opt/marker: from the image <nil>", "/cache/page: cached <nil>", "write: open /cache/page: read-only file system", "host: stat /usr/bin/env: no such file"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in (exit %d)\n%s", want, code, out)
		}
	}
	if b, err := os.ReadFile(filepath.Join(cache, "page")); err != nil || string(b) != "cached" {
		t.Errorf("SB-46: the cache is now %q, %v", b, err)
	}
	bundle("sha256:"+strings.Repeat("0", 64), "go")
	if out, code := run(); code != exitNegative || !strings.Contains(out, "provider_capability_missing") || !strings.Contains(out, "no image layout has") {
		t.Errorf("an image that is not there: exit %d\n%s", code, out)
	}
	bundle(digest, "npm")
	if out, code := run(); code != exitNegative || !strings.Contains(out, "does not have every cache") {
		t.Errorf("a cache that is not there: exit %d\n%s", code, out)
	}
}

// saveImage writes an OCI layout with one layer and returns the digest of its
// manifest.
func saveImage(t *testing.T, dir, program string) string {
	t.Helper()
	code, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for name, b := range map[string][]byte{"bin/show": code, "opt/marker": []byte("from the image")} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(b)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	blobs := filepath.Join(dir, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(kind string, b []byte) map[string]any {
		sum := sha256.Sum256(b)
		name := hex.EncodeToString(sum[:])
		if err := os.WriteFile(filepath.Join(blobs, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
		return map[string]any{"mediaType": kind, "digest": "sha256:" + name, "size": len(b)}
	}
	document := func(kind string, v any) map[string]any {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return put(kind, b)
	}
	l := put("application/vnd.oci.image.layer.v1.tar", layer.Bytes())
	config := document("application/vnd.oci.image.config.v1+json", map[string]any{"rootfs": map[string]any{"diff_ids": []any{l["digest"]}}})
	m := document("application/vnd.oci.image.manifest.v1+json", map[string]any{"schemaVersion": 2, "config": config, "layers": []any{l}})
	return m["digest"].(string)
}
