//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

func TestMissingBubblewrap(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := New(Options{Run: filepath.Join(t.TempDir(), "run")})
	if problem.CodeOf(err) != problem.ProviderCapabilityMissing || !strings.Contains(problem.HintOf(err), "apt-get install bubblewrap") {
		t.Errorf("got %v; %s", err, problem.HintOf(err))
	}
}

// fakeBwrap is a bubblewrap that fails as machines make it fail.
func fakeBwrap(t *testing.T, says string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bwrap")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+says+"' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(path); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestWhatBubblewrapSays(t *testing.T) {
	cases := map[string]struct {
		says string
		code problem.Code
		hint string
	}{
		"namespace_refused": {"bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces.", problem.ProviderCapabilityMissing, "user namespaces"},
		"apparmor":          {"bwrap: setting up uid map: Permission denied", problem.ProviderCapabilityMissing, "namespaces"},
		"loopback":          {"bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", problem.ProviderCapabilityMissing, "namespaces"},
		"too_old":           {"bwrap: Unknown option --size", problem.ProviderCapabilityMissing, "0.8 or newer"},
		"something_else":    {"bwrap: Can't bind mount /oldroot/x on /newroot/x", problem.SandboxFailed, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			p, err := New(Options{Run: filepath.Join(t.TempDir(), "run"), Bwrap: fakeBwrap(t, strings.ReplaceAll(c.says, "'", "`"), 0o755), InitPath: exe})
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.Start(context.Background(), sandbox.Spec{Session: "s", Argv: []string{"x"}, Unlimited: true}, nil)
			if problem.CodeOf(err) != c.code || !strings.Contains(problem.HintOf(err), c.hint) {
				t.Errorf("got %v; %s", err, problem.HintOf(err))
			}
			if entries, _ := os.ReadDir(p.o.Run); len(entries) != 2 { // .lock and the program
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

func TestSetuidBubblewrapIsRefused(t *testing.T) {
	_, err := New(Options{Run: filepath.Join(t.TempDir(), "run"), Bwrap: fakeBwrap(t, "", 0o755|os.ModeSetuid)})
	if problem.CodeOf(err) != problem.ProviderCapabilityMissing {
		t.Errorf("got %v", err)
	}
}

func TestFaultsNameWhatIsMissing(t *testing.T) {
	cases := map[string]struct {
		code problem.Code
		hint string
	}{
		sandbox.StepVersion:  {problem.SandboxFailed, "make build"},
		sandbox.StepSetup:    {problem.SandboxFailed, ""},
		sandbox.StepLoopback: {problem.ProviderCapabilityMissing, ""},
		sandbox.StepCapture:  {problem.ProviderCapabilityMissing, "nft_redir"},
		sandbox.StepUserns:   {problem.ProviderCapabilityMissing, "max_user_namespaces"},
		sandbox.StepDrop:     {problem.ProviderCapabilityMissing, "SECCOMP"},
		sandbox.StepFilter:   {problem.ProviderCapabilityMissing, "SECCOMP"},
		sandbox.StepExec:     {problem.AgentNotFound, "install it"},
	}
	for step, c := range cases {
		t.Run(step, func(t *testing.T) {
			err := (&faultError{sandbox.Fault{Step: step, Text: "why"}}).explain()
			if problem.CodeOf(err) != c.code || !strings.Contains(problem.HintOf(err), c.hint) || !strings.Contains(err.Error(), "why") {
				t.Errorf("got %v; %s", err, problem.HintOf(err))
			}
		})
	}
}

func TestNoLimitsMustBeAccepted(t *testing.T) {
	p := &Provider{}
	_, err := p.Start(context.Background(), sandbox.Spec{Session: "s", Argv: []string{"x"}}, nil)
	if problem.CodeOf(err) != problem.ProviderCapabilityMissing || !strings.Contains(problem.HintOf(err), "unlimited: accepted") {
		t.Errorf("got %v; %s", err, problem.HintOf(err))
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	good := func() sandbox.Spec { return sandbox.Spec{Session: "s-1", Argv: []string{"x"}} }
	cases := map[string]func(*sandbox.Spec){
		"no_session":      func(s *sandbox.Spec) { s.Session = "" },
		"climbing":        func(s *sandbox.Spec) { s.Session = "../x" },
		"capitals":        func(s *sandbox.Spec) { s.Session = "S1" },
		"long":            func(s *sandbox.Spec) { s.Session = strings.Repeat("a", 65) },
		"no_command":      func(s *sandbox.Spec) { s.Argv = nil },
		"empty_command":   func(s *sandbox.Spec) { s.Argv = []string{""} },
		"nul_in_command":  func(s *sandbox.Spec) { s.Argv = []string{"x", "a\x00b"} },
		"env_name":        func(s *sandbox.Spec) { s.Env = map[string]string{"A=B": "c"} },
		"env_value":       func(s *sandbox.Spec) { s.Env = map[string]string{"A": "b\x00c"} },
		"file_climbs":     func(s *sandbox.Spec) { s.Files = map[string][]byte{"../x": nil} },
		"file_is_out":     func(s *sandbox.Spec) { s.Files = map[string][]byte{"out": nil} },
		"file_is_hidden":  func(s *sandbox.Spec) { s.Files = map[string][]byte{".x": nil} },
		"negative_quota":  func(s *sandbox.Spec) { s.Quota = -1 },
		"relative_rootfs": func(s *sandbox.Spec) { s.Rootfs = "here" },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			s := good()
			spoil(&s)
			if err := validate(&s); problem.CodeOf(err) != problem.ConfigInvalid {
				t.Errorf("got %v", err)
			}
		})
	}
	s := good()
	if err := validate(&s); err != nil {
		t.Error(err)
	}
}

func TestUserIDs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's sessions take no ids")
	}
	base := uint32(700_000 + os.Getpid()%10_000*10)
	p := newUIDPool(UIDRange{base, base + 2})
	other := newUIDPool(UIDRange{base, base + 2}) // another node with the same range
	taken := make(map[uint32]bool)
	var locks []*uidLock
	for _, pool := range []*uidPool{p, other, p} {
		uid, lock, err := pool.take()
		if err != nil {
			t.Fatal(err)
		}
		if taken[uid] || uid < base || uid > base+2 {
			t.Errorf("uid %d", uid)
		}
		taken[uid] = true
		locks = append(locks, lock)
	}
	if _, _, err := other.take(); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("a fourth of three: %v", err)
	}
	locks[1].Close()
	if _, lock, err := p.take(); err != nil {
		t.Errorf("after one was given back: %v", err)
	} else {
		lock.Close()
	}
	locks[0].Close()
	locks[2].Close()
	if left, _ := filepath.Glob(filepath.Join(uidLocks, strconv.Itoa(int(base/10))+"?")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestUserIDLocksAreRoots: nobody but root can hold an id, so nobody can keep
// sessions from starting.
func TestUserIDLocksAreRoots(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"writable_for_all": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)) },
		"somebody_elses": func(dir string) error {
			if os.Geteuid() != 0 {
				return os.Mkdir(dir, 0o700) // this user's, not root's
			}
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 4711, 4711))
		},
		"a_link": func(dir string) error { return os.Symlink(t.TempDir(), dir) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "uids")
			if err := make(dir); err != nil {
				t.Fatal(err)
			}
			if err := closedFolder(dir); err == nil {
				t.Error("the folder was taken")
			}
		})
	}
}

func TestBusyUserIsSkipped(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("as root every process of this test is root's")
	}
	p := newUIDPool(UIDRange{uint32(os.Geteuid()), uint32(os.Geteuid())})
	if _, _, err := p.take(); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("a user with running processes was given out: %v", err)
	}
}

// TestCgroup checks what is written where, on a folder that behaves like
// cgroup v2 as far as files go; the kernel's part is judged by SB-36 and SB-37.
func TestCgroup(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openCgroup(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.leaf("s-1", 1<<30, 64, 1.5); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder without the kernel's files was accepted: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "session-s-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	if _, err := openCgroup(filepath.Join(dir, "nowhere")); problem.CodeOf(err) != problem.ProviderCapabilityMissing {
		t.Errorf("a missing folder: %v", err)
	}
}

func TestMeasure(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write := func(path string, n int) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := watcher{dirs: []string{dir}, limit: 1 << 30}
	empty, err := w.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(outside, "big"), 50<<20)
	write(filepath.Join(dir, "a/b/one"), 1<<20)
	for _, err := range []error{
		os.Link(filepath.Join(dir, "a/b/one"), filepath.Join(dir, "twin")),
		os.Symlink(outside, filepath.Join(dir, "link")),
		os.Symlink("/", filepath.Join(dir, "root")),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	used, err := w.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if grown := used - empty; grown < 1<<20 || grown > 1<<20+64<<10 {
		t.Errorf("%d bytes for one file of 1 MiB", grown)
	}
	deep := dir
	for range 40 {
		deep = filepath.Join(deep, "d/d/d/d/d/d/d/d")
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := w.measure(t.Context()); !errors.Is(err, errTooMany) {
		t.Errorf("deep folders: %v", err) // SB-38
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.run(ctx); err != nil && !errors.Is(err, errTooMany) {
		t.Errorf("run: %v", err)
	}
}

func TestSweepSparesTheLiving(t *testing.T) {
	run := t.TempDir()
	for _, name := range []string{"dead", "alive"} {
		if err := os.MkdirAll(filepath.Join(run, name, "workspace/x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := lockFolder(filepath.Join(run, "alive"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for _, name := range []string{initPrefix + "old", initPrefix + "held", placingPrefix + "x"} {
		if err := os.WriteFile(filepath.Join(run, name), nil, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	held, err := os.Open(filepath.Join(run, initPrefix+"held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if err := sweep(run); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(run)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if got, want := fmt.Sprint(left), fmt.Sprint([]string{initPrefix + "held", ".lock", "alive"}); got != want {
		t.Errorf("left %s, want %s", got, want)
	}
}

func TestStaticProgram(t *testing.T) {
	sh, err := os.Open("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	if static, err := isStatic(sh); err != nil || static {
		t.Errorf("/bin/sh: static %v, %v", static, err)
	}
	if _, err := isStatic(strings.NewReader("#!/bin/sh\n")); err == nil {
		t.Error("a script passes for a program")
	}
}
