package main

import (
	"path/filepath"
	"strings"
)

// touches returns whether a path holds one of these, or lies in one, links
// followed. A path that cannot be followed is taken as it stands.
func touches(private []string) func(path string) bool {
	real := func(path string) string {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		if p, err := filepath.EvalSymlinks(path); err == nil {
			return p
		}
		return path
	}
	within := func(path, dir string) bool {
		return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	}
	return func(path string) bool {
		path = real(path)
		for _, p := range private {
			if p = real(p); within(p, path) || within(path, p) {
				return true
			}
		}
		return false
	}
}
