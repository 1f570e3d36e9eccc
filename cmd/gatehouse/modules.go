package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/wasm"
	"gatehouse/wasm/conform"
)

// modules is the node's folder of added enforcers. A module is <sha256>.wasm,
// beside <sha256>.json with what the operator said of it. A file is only ever
// used under the digest of its bytes, whatever its name says.
type modules struct {
	dir    string
	tested sync.Map // digest -> struct{}: passed its own vectors in this process
}

// modulesOf returns the modules of the node that cfg describes.
func modulesOf(cfg *config.Config) *modules {
	return &modules{dir: filepath.Join(cfg.StateDir(), "modules")}
}

// moduleSettings is what an operator says of a module.
type moduleSettings struct {
	Name          string `json:"name"`
	FuelInit      int64  `json:"fuel_init,omitempty"`
	FuelConfigure int64  `json:"fuel_configure,omitempty"`
	FuelDecide    int64  `json:"fuel_decide,omitempty"`
	Untrusted     bool   `json:"untrusted,omitempty"`
}

func (s moduleSettings) limits() wasm.Limits {
	return wasm.Limits{FuelInit: s.FuelInit, FuelConfigure: s.FuelConfigure, FuelDecide: s.FuelDecide, Untrusted: s.Untrusted}
}

// moduleBytes is the largest file that is read; docs/enforcer-abi.md.
const moduleBytes = 8 << 20

// moduleName is what a reference may call a module: gatekeeper/bundle has the
// same rule.
var moduleName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// readModule reads a module's file.
func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, problem.Wrap(err, problem.Usage, "couldn't open "+path, "")
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, moduleBytes+1))
	if err != nil {
		return nil, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	if len(b) > moduleBytes {
		return nil, problem.New(problem.Usage, fmt.Sprintf("%s is larger than %d bytes", path, moduleBytes), "")
	}
	return b, nil
}

// reference is how a bundle names a module.
func reference(name string, digest [32]byte) string { return fmt.Sprintf("%s@sha256:%x", name, digest) }

func (m *modules) path(digest, ext string) string { return filepath.Join(m.dir, digest+ext) }

// has reports whether the node has the module that a bundle names.
func (m *modules) has(ref string) bool {
	_, _, err := m.open(ref)
	return err == nil
}

// open returns the bytes and the settings of the module that a bundle names.
func (m *modules) open(ref string) ([]byte, moduleSettings, error) {
	var s moduleSettings
	name, digest, _ := strings.Cut(ref, "@sha256:")
	missing := func(err error) error {
		return problem.Wrap(err, problem.NotFound, "the node does not have the module "+ref, "add it with gatehouse enforcer add FILE")
	}
	about, err := os.ReadFile(m.path(digest, ".json"))
	if err != nil {
		return nil, s, missing(err)
	}
	if err := json.Unmarshal(about, &s); err != nil {
		return nil, s, fmt.Errorf("settings of module %s: %w", ref, err)
	}
	if s.Name != name {
		return nil, s, missing(fmt.Errorf("it is called %s here", s.Name))
	}
	code, err := readModule(m.path(digest, ".wasm"))
	if err != nil {
		return nil, s, missing(err)
	}
	if sum := sha256.Sum256(code); hex.EncodeToString(sum[:]) != digest {
		return nil, s, missing(errors.New("its file holds other bytes"))
	}
	return code, s, nil
}

// byDigest returns a module by its digest alone.
func (m *modules) byDigest(digest [32]byte) ([]byte, moduleSettings, error) {
	refs, err := m.list()
	if err != nil {
		return nil, moduleSettings{}, err
	}
	for _, ref := range refs {
		if strings.HasSuffix(ref, hex.EncodeToString(digest[:])) {
			return m.open(ref)
		}
	}
	return nil, moduleSettings{}, problem.New(problem.NotFound, fmt.Sprintf("the node does not have the module %x", digest), "name its file with --module")
}

// list returns the references of all modules in the folder, by digest.
func (m *modules) list() ([]string, error) {
	entries, err := os.ReadDir(m.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read the modules: %w", err)
	}
	var out []string
	for _, e := range entries {
		digest, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		var s moduleSettings
		b, err := os.ReadFile(m.path(digest, ".json"))
		if err != nil {
			return nil, fmt.Errorf("couldn't read the modules: %w", err)
		}
		if err := json.Unmarshal(b, &s); err != nil {
			return nil, fmt.Errorf("settings of module %s: %w", digest, err)
		}
		out = append(out, s.Name+"@sha256:"+digest)
	}
	return out, nil
}

// add checks a module, runs the vectors it carries, and keeps it.
func (m *modules) add(ctx context.Context, h *wasm.Host, code []byte, s moduleSettings) (string, error) {
	if !moduleName.MatchString(s.Name) {
		return "", usage(fmt.Sprintf("%q cannot be a module's name", s.Name), "name it with --name: a-z, 0-9, - and _")
	}
	mod, err := h.LoadLimited(ctx, s.Name, code, s.limits())
	if err != nil {
		return "", err
	}
	defer mod.Close(ctx)
	if err := conform.SelfTest(ctx, code, mod); err != nil {
		return "", fmt.Errorf("the module fails its own vectors: %w", err)
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return "", fmt.Errorf("couldn't make the modules' folder: %w", err)
	}
	about, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	digest := fmt.Sprintf("%x", mod.Digest())
	// The settings come last: a module is there when they are.
	if err := replaceFile(m.path(digest, ".wasm"), code); err != nil {
		return "", err
	}
	return reference(s.Name, mod.Digest()), replaceFile(m.path(digest, ".json"), append(about, '\n'))
}

// replaceFile puts a file into place in one step.
func replaceFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("couldn't write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("couldn't write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("couldn't write %s: %w", path, err)
	}
	return nil
}

// selfTest runs a module's vectors once in a process: they cannot turn out
// otherwise the second time.
func (m *modules) selfTest(ctx context.Context, code []byte, mod *wasm.Module) error {
	if _, passed := m.tested.Load(mod.Digest()); passed {
		return nil
	}
	if err := conform.SelfTest(ctx, code, mod); err != nil {
		return err
	}
	m.tested.Store(mod.Digest(), struct{}{})
	return nil
}
