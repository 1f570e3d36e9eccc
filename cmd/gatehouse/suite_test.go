package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"gatehouse/internal/config"
	"gatehouse/internal/leak"
)

// suite knows every secret that a test of this package put into a store of a
// node, or that a fake gave a node, from the moment at which it was there. What
// the tests leave is searched for all of them when it is about to go: a secret
// that is known later cannot be in it.
var suite leak.Set

// tally is what was searched.
var tally struct {
	sync.Mutex
	folders, files, commands, nodes, pages, processes int
	bytes, memory                                     int64
	took                                              time.Duration
	kinds                                             map[string]map[string]bool // of secrets, the first word of their names: their names
	holders                                           leak.Holders               // which file is the place of which secrets
}

// known makes a secret known, as "kind which".
func known(name string, value []byte) {
	if len(value) == 0 || !suite.Add(name, value) {
		return
	}
	tally.Lock()
	defer tally.Unlock()
	if tally.kinds == nil {
		tally.kinds = map[string]map[string]bool{}
	}
	kind, _, _ := strings.Cut(name, " ")
	if tally.kinds[kind] == nil {
		tally.kinds[kind] = map[string]bool{}
	}
	tally.kinds[kind][name] = true
}

// copied says that the test puts one file's secret into another, which may hold
// that one from now on.
func copied(to, from string) {
	for _, kind := range []string{"file", "key", "mark"} {
		holds(to, kind+" "+from)
	}
}

// stateCopied is backedUp for a copy with the root key too.
func stateCopied(to, state string) {
	backedUp(to, state)
	copied(filepath.Join(to, "keys/root.key"), filepath.Join(state, "keys/root.key"))
}

// holds says that a file is the place of a secret.
func holds(path, name string) {
	tally.Lock()
	defer tally.Unlock()
	if tally.holders == nil {
		tally.holders = leak.Holders{}
	}
	if !slices.Contains(tally.holders[path], name) {
		tally.holders.Add(path, name)
	}
}

// backedUp says that a folder is a backup of a node: it holds the keys that a node
// starts with.
func backedUp(to, state string) {
	for _, name := range []string{"keys/seal.key", "keys/checkpoint.key", "keys/node.key", "mark.key"} {
		copied(filepath.Join(to, name), filepath.Join(state, name))
	}
}

// unique returns a secret that no other store of the suite holds.
func unique(name, prefix string) string {
	v := suite.New(name, prefix)
	known(name, []byte(v))
	return v
}

// tempDir is a folder of a test that is searched when the test is over.
func tempDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	searchedAtEnd(t, dir)
	return dir
}

// shortDir is tempDir for what has sockets: their paths are short.
func shortDir(t testing.TB, prefix string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	searchedAtEnd(t, dir)
	return dir
}

// searchedAtEnd searches a folder before what was registered earlier removes it.
func searchedAtEnd(t testing.TB, dir string) {
	t.Cleanup(func() {
		t.Helper()
		for _, hit := range leaks(t, dir) {
			t.Error(hit)
		}
	})
}

// leaks learns what secrets the nodes below a folder have and searches all of it.
func leaks(t testing.TB, dir string) []leak.Hit {
	t.Helper()
	start := time.Now()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".yaml") {
			learn(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	tally.Lock()
	holders := maps.Clone(tally.holders)
	tally.Unlock()
	found, err := suite.Tree(dir, holders)
	if err != nil {
		t.Error(err)
	}
	for _, path := range found.Cores {
		t.Errorf("%s is a core", path)
	}
	tally.Lock()
	defer tally.Unlock()
	tally.folders++
	tally.files += found.Files
	tally.bytes += found.Bytes
	tally.took += time.Since(start)
	return found.Hits
}

var (
	secretRef = regexp.MustCompile(`^\$\{(env|file|secret):([^}]+)\}$`)
	natsSeed  = regexp.MustCompile(`\bSU[A-Z2-7]{56}\b`)
)

// learn makes every secret known that the node of a configuration has: what its
// references name, everything in its encrypted store, its keys. What is no
// configuration, or a wrong one, has none.
func learn(path string) {
	cfg, err := config.Check(path)
	if err != nil {
		return
	}
	file := func(kind, path string) {
		if b, err := os.ReadFile(path); err == nil {
			name := kind + " " + path
			known(name, b)
			for _, seed := range natsSeed.FindAll(b, -1) {
				known(name, seed)
			}
			holds(path, name)
		}
	}
	for _, s := range secretsIn(reflect.ValueOf(*cfg)) {
		m := secretRef.FindStringSubmatch(s.Ref())
		switch {
		case m == nil:
		case m[1] == "file":
			file("file", cfg.Path(m[2]))
		case m[1] == "env":
			known("env "+m[2], []byte(os.Getenv(m[2])))
		}
	}
	file("file", identityFile(cfg))
	if cfg.ResolveIdentity() == nil {
		if store, err := openSecrets(cfg); err == nil {
			entries, _ := store.List(context.Background())
			for _, e := range entries {
				if v, err := store.Get(context.Background(), e.Name); err == nil {
					known("store "+e.Name, v.Reveal())
				}
			}
		}
	}
	if cfg.TLS != nil {
		file("tls", cfg.Path(cfg.TLS.Key))
	}
	if cfg.NATS.Creds != "" {
		file("nats", cfg.Path(cfg.NATS.Creds))
	}
	s := stateOf(cfg)
	file("mark", filepath.Join(s.dir, "mark.key"))
	for _, keys := range append(earlierKeys(s), s.keys) {
		for _, name := range []string{"root.key", "seal.key", "checkpoint.key", "node.key"} {
			file("key", filepath.Join(keys, name))
		}
	}
}

// earlierKeys are the key folders of the logs that a node went on from.
func earlierKeys(s state) []string {
	dirs, _ := filepath.Glob(filepath.Join(s.dir, "archive", "*", "keys")) // fails on a wrong pattern alone
	return dirs
}

// secretsIn returns every reference of a configuration, wherever it stands, so
// that a new one is not forgotten here.
func secretsIn(v reflect.Value) (all []config.Secret) {
	if s, ok := v.Interface().(config.Secret); ok {
		return []config.Secret{s}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			all = secretsIn(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				all = append(all, secretsIn(v.Field(i))...)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, secretsIn(v.Index(i))...)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			all = append(all, secretsIn(v.MapIndex(k))...)
		}
	}
	return all
}

// heard is a command whose output is searched.
type heard struct {
	*exec.Cmd
	t testing.TB
}

func hear(t testing.TB, cmd *exec.Cmd) *heard { return &heard{cmd, t} }

// search looks at what a command printed, also for the secrets that it made.
func (c *heard) search(out []byte) {
	c.t.Helper()
	c.learn()
	for _, hit := range suite.In("what "+strings.Join(c.Args[:min(len(c.Args), 6)], " ")+" printed", out) {
		c.t.Error(hit)
	}
	tally.Lock()
	defer tally.Unlock()
	tally.commands++
	tally.bytes += int64(len(out))
}

// learn makes what the command's node has known, whatever the command does to it.
func (c *heard) learn() {
	path := filepath.Join(c.Dir, "gatehouse.yaml")
	if i := slices.Index(c.Args, "-c"); i >= 0 && i+1 < len(c.Args) {
		path = c.Args[i+1]
	}
	learn(path)
}

func (c *heard) CombinedOutput() ([]byte, error) {
	c.t.Helper()
	c.learn()
	b, err := c.Cmd.CombinedOutput()
	c.search(b)
	return b, err
}

// Output also searches what went to another place than what it returns.
func (c *heard) Output() ([]byte, error) {
	c.t.Helper()
	also := c.tee()
	b, err := c.Cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		also.Write(exit.Stderr)
	}
	also.Write(b)
	c.search(also.all())
	return b, err
}

func (c *heard) Run() error {
	c.t.Helper()
	also := c.tee()
	err := c.Cmd.Run()
	c.search(also.all())
	return err
}

// Start searches when the test is over, but before what was registered earlier.
func (c *heard) Start() error {
	also := c.tee()
	c.t.Cleanup(func() { c.search(also.all()) })
	return c.Cmd.Start()
}

// tee copies what goes to buffers; what goes to files is searched there.
func (c *heard) tee() *ear {
	c.learn()
	also, same := &ear{}, c.Stdout == c.Stderr
	if c.Stdout != nil && !isFile(c.Stdout) {
		c.Stdout = io.MultiWriter(c.Stdout, also)
	}
	switch {
	case same:
		c.Stderr = c.Stdout
	case c.Stderr != nil && !isFile(c.Stderr):
		c.Stderr = io.MultiWriter(c.Stderr, also)
	}
	return also
}

func isFile(w io.Writer) bool { _, ok := w.(*os.File); return ok }

// ear keeps what was written to it.
type ear struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (e *ear) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.buf.Write(b)
}

func (e *ear) all() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return bytes.Clone(e.buf.Bytes())
}

// scripts is a test of scripts whose folders, and all that their commands print,
// are searched when a script has ended.
type scripts struct {
	*testing.T
	dir string // of the script
}

func (s *scripts) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(&scripts{T: t}) })
}

// Verbose keeps the whole log; testing shows it when it is asked to.
func (s *scripts) Verbose() bool { return true }

// scriptCopies are the secrets that scripts copy themselves.
var scriptCopies = map[string]map[string]string{
	"secret":  {"kept": "state/secrets/identity"},
	"connect": {"before.key": "fresh/main.key", "fresh/app.pem": "app.pem"},
}

// scriptSecret is how a script puts a secret into the environment of its node.
var scriptSecret = regexp.MustCompile(`^> env (\w*(?:SECRET|KEY|TOKEN|PASSWORD)\w*)=(\S+)\n$`)

// Log gets the log of the script. A line that begins with "> " is the script's
// own: it is how some give a node its secrets. The line after one that says so is
// a new secret, shown to its owner this once.
func (s *scripts) Log(args ...any) {
	s.Helper()
	var said strings.Builder
	shown := false
	for l := range strings.Lines(fmt.Sprint(args...)) {
		if m := scriptSecret.FindStringSubmatch(l); m != nil {
			known("env "+m[1], []byte(m[2]))
		}
		if !shown && !strings.HasPrefix(l, "> ") {
			said.WriteString(l)
		}
		shown = strings.HasSuffix(l, "It is shown here once:\n")
	}
	for to, from := range scriptCopies[path.Base(s.Name())] {
		copied(filepath.Join(s.dir, to), filepath.Join(s.dir, from))
	}
	for _, hit := range append(leaks(s.T, s.dir), suite.In("the log of the script", []byte(said.String()))...) {
		s.T.Error(hit)
	}
	tally.Lock()
	tally.commands++
	tally.Unlock()
	s.T.Log(args...)
}

// wholeSuite says what was searched and fails a run of all tests in which
// something of what there is was never looked at.
func wholeSuite(m *testing.M) int {
	code := m.Run()
	tally.Lock()
	defer tally.Unlock()
	secrets, short := suite.Len()
	for _, name := range slices.Sorted(maps.Keys(short)) {
		fmt.Printf("canaries: too short to be told from chance: %s\n", name)
	}
	kinds := map[string]int{}
	for kind, names := range tally.kinds {
		kinds[kind] = len(names)
	}
	fmt.Printf("canaries: %d secrets %v, %d too short; searched %d folders with %d files, %d commands, %d nodes with %d pages and %d processes inside: %d MB of files, %d MB of memory in %s\n",
		secrets, kinds, len(short), tally.folders, tally.files, tally.commands, tally.nodes, tally.pages, tally.processes,
		tally.bytes>>20, tally.memory>>20, tally.took.Round(time.Millisecond))
	set := func(name string) string { return flag.Lookup("test." + name).Value.String() }
	if code != 0 || set("run")+set("skip")+set("list")+set("fuzz") != "" || set("fuzzworker") == "true" || testing.Short() || os.Geteuid() != 0 {
		return code
	}
	for _, kind := range []string{"file", "env", "store", "key", "mark", "nats", "minted", "login", "token"} {
		if kinds[kind] == 0 {
			fmt.Printf("no test of the suite has a secret of kind %s\n", kind)
			code = 1
		}
	}
	// About a quarter of what there is when this was written.
	for what, n := range map[string][2]int{"folders": {tally.folders, 300}, "commands": {tally.commands, 60}, "nodes": {tally.nodes, 20}, "pages": {tally.pages, 300}, "processes inside": {tally.processes, 4}} {
		if n[0] < n[1] {
			fmt.Printf("only %d %s were searched in a run of all tests, want %d\n", n[0], what, n[1])
			code = 1
		}
	}
	return code
}
