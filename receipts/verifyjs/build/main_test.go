package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPageIsCurrent: a rebuild, also one in another folder, gives the bytes that
// are checked in.
func TestPageIsCurrent(t *testing.T) {
	if err := run("..", true); err != nil {
		t.Error(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "verifyjs")
	if err := os.CopyFS(elsewhere, os.DirFS("..")); err != nil {
		t.Fatal(err)
	}
	if err := run(elsewhere, true); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "page.css"), []byte("body { margin: 0 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(elsewhere, true); err == nil {
		t.Error("a changed style went unnoticed")
	}
}

// TestPageReachesNothing: one file, a policy that allows its own script and style
// by digest and nothing else, and no address of anything.
func TestPageReachesNothing(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	policy := regexp.MustCompile(`content="([^"]+)"`).FindStringSubmatch(text)[1]
	script := text[strings.Index(text, "<script>")+len("<script>") : strings.LastIndex(text, "</script>")]
	style := text[strings.Index(text, "<style>")+len("<style>") : strings.Index(text, "</style>")]
	for _, want := range []string{"default-src 'none'", "script-src '" + digest([]byte(script)) + "'", "style-src '" + digest([]byte(style)) + "'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("policy %q lacks %q", policy, want)
		}
	}
	if m := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}|unsafe|src=|href=|\burl\(|import\(|fetch\(|innerHTML|eval\(`).FindString(strings.ReplaceAll(text, "// src/", "")); m != "" {
		t.Errorf("the page has %q", m)
	}
	for i := range b {
		if b[i] >= 0x80 {
			t.Fatalf("byte %d is not ASCII: the page would depend on its charset", i)
		}
	}
}
