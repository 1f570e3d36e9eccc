//go:build linux

package sandboxtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// outward is SB-34: an agent leaves links, climbing names and a file that is
// swapped for a link while the session ends, all of which point at one file of
// the host. What is collected must hold none of it.
func outward(ctx context.Context, s *Suite) (string, error) {
	const content = "a file of the host that no session may read"
	target := filepath.Join(s.Dir, "host-file")
	if err := os.WriteFile(target, []byte(content), 0o644); err != nil {
		return "", err
	}
	defer os.Remove(target)
	spec := s.spec(sh(`cd /gatehouse/out
echo control > control
ln -s ` + target + ` link
ln -s ../../../../../../../..` + target + ` climb
ln ` + target + ` hard 2>/dev/null
ln -s / tree
(while :; do echo x > swapped; rm -f swapped; ln -s ` + target + ` swapped; rm -f swapped; done) >/dev/null 2>&1 &
mkdir d && echo deep > d/..x
sleep 0.2; exit 0`)...)
	end, _, err := s.run(ctx, spec)
	if err != nil {
		return "", err
	}
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	for name, got := range end.Artifacts {
		if got == digest(content) {
			return "", fmt.Errorf("%q of the host was collected", name)
		}
	}
	if end.Artifacts["control"] != digest("control\n") {
		return "", fmt.Errorf("could not run: the control was not collected: %d artifacts", len(end.Artifacts))
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != content {
		return "", errors.New("the host's file was changed")
	}
	return fmt.Sprintf("%d files collected, none through a link", len(end.Artifacts)), nil
}

// poisonedCache is SB-46: a folder that every user could write is mounted as a
// cache; one session tries to change a file in it, the next one reads it. The
// same attempts in the agent's own workspace are the control.
func poisonedCache(ctx context.Context, s *Suite) (string, error) {
	const inside = "/opt/conformance-cache"
	dir := filepath.Join(s.Dir, "cache")
	page := []byte(strings.Repeat("clean page of a cache\n", 1000))
	file := filepath.Join(dir, "page")
	err := errors.Join(os.MkdirAll(dir, 0o777), os.Chmod(dir, 0o777), os.WriteFile(file, page, 0o666), os.Chmod(file, 0o666))
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	session := func(script string) (string, error) {
		spec := s.spec(sh(script)...)
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: dir, Path: inside})
		_, out, err := s.run(ctx, spec)
		return out, err
	}
	poison := func(path string) string { return sandbox.InitPath + " attempt poison " + path }
	out, err := session("cat " + inside + "/page > /workspace/page; " + poison("/workspace/page") + "; " + poison(inside+"/page"))
	if problem.CodeOf(err) == problem.ProviderCapabilityMissing {
		// No session reads a folder of the host, so none reads a changed one.
		return "", fmt.Errorf("caches: %w", errAbsent)
	}
	if err != nil {
		return "", err
	}
	own, cache, found := strings.Cut(out, "\n")
	switch {
	case !found || !strings.HasPrefix(own, "poisoned [open_rdwr, "):
		return "", fmt.Errorf("could not run: the control changed nothing: %.200q", out)
	case !strings.HasPrefix(cache, "poisoned [] "):
		return "", fmt.Errorf("the cache took: %.300q", cache)
	}
	read, err := session("cat " + inside + "/page; ls " + inside + " | wc -l")
	if err != nil {
		return "", err
	}
	if want := string(page) + "1\n"; read != want {
		return "", fmt.Errorf("the next session reads %d bytes, want %d as they were", len(read), len(want))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != string(page) || len(entries) != 1 {
		return "", errors.New("the host's cache was changed")
	}
	return "nothing written; the next session reads what was there: " + strings.TrimSpace(strings.TrimPrefix(cache, "poisoned [] ")), nil
}

// tools is SB-47: what the agent's own tools hand to their children, a shell
// script and a git hook where there is git.
func tools(ctx context.Context, s *Suite) (string, error) {
	spec := s.spec(sh(`cd /workspace
printf '#!/bin/sh\nenv\necho ran-script\n' > child && chmod +x child && ./child
if command -v git >/dev/null; then
  git init -q r && cd r && printf '#!/bin/sh\nenv\necho ran-hook\n' > .git/hooks/post-commit && chmod +x .git/hooks/post-commit
  git -c user.name=t -c user.email=t@example.com commit -q --allow-empty -m one 2>&1
fi`)...)
	spec.Env = map[string]string{"GATEHOUSE_CONFORMANCE_MARK": "given"}
	_, out, err := s.run(ctx, spec)
	if err != nil {
		return "", err
	}
	if !strings.Contains(out, "GATEHOUSE_CONFORMANCE_MARK=given") || !strings.Contains(out, "ran-script") {
		return "", fmt.Errorf("could not run: %.200q", out)
	}
	for _, canary := range s.Canaries {
		if strings.Contains(out, canary) {
			return "", errors.New("a child was given a canary of the host")
		}
	}
	ran := "a script"
	if strings.Contains(out, "ran-hook") {
		ran = "a script and a git hook"
	}
	return ran + " saw no canary", nil
}
