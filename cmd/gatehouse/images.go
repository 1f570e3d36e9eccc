package main

import (
	"os"
	"path/filepath"

	"gatehouse/gatekeeper/sandbox/image"
	"gatehouse/internal/config"
)

// Folders of the state folder that an operator fills: images/ with OCI layouts
// or their archives, caches/ with one folder for each package cache. rootfs/
// holds what was unpacked.
const (
	imagesFolder = "images"
	rootfsFolder = "rootfs"
	cachesFolder = "caches"
)

func imagesOf(cfg *config.Config) *image.Store {
	dir := cfg.StateDir()
	return image.NewStore(filepath.Join(dir, imagesFolder), filepath.Join(dir, rootfsFolder))
}

// cachesOf lists the node's package caches by name.
func cachesOf(cfg *config.Config) map[string]string {
	dir := filepath.Join(cfg.StateDir(), cachesFolder)
	out := map[string]string{}
	entries, _ := os.ReadDir(dir) // none is what a node without the folder has
	for _, e := range entries {
		if e.IsDir() {
			out[e.Name()] = filepath.Join(dir, e.Name())
		}
	}
	return out
}
