//go:build linux

package local_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
	_ "gatehouse/gatekeeper/sandbox/initd" // a change of what runs inside outdates cached results
	"gatehouse/gatekeeper/sandbox/local"
	_ "gatehouse/gatekeeper/sandbox/probe"
	"gatehouse/gatekeeper/sandbox/programtest"
	"gatehouse/internal/problem"
)

// ordinaryUser is the environment variable under which TestAsOrdinaryUser runs
// this test binary again.
const ordinaryUser = "GATEHOUSE_TEST_ORDINARY_USER"

// delegatedCgroup is the environment variable that names a delegated cgroup v2
// folder, for machines whose test run does not sit in one.
const delegatedCgroup = "GATEHOUSE_TEST_CGROUP"

// initPath is the real gatehouse-init, built once.
var initPath string

func TestMain(m *testing.M) {
	initPath = os.Getenv(ordinaryUser)
	// Every test runs under the umask that serve sets; what was built before, agents may run.
	os.Exit(programtest.Main(m, &initPath, func() { unix.Umask(0o077) }))
}

// TestAsOrdinaryUser runs the whole suite once more under a user that is not
// root. A run that is not root to begin with already is that.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("already an ordinary user")
	}
	const uid = 64321 // no account needed
	dir, err := os.MkdirTemp("", "gatehouse-ordinary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{self: "suite", initPath: "gatehouse-init"} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "tmp"), 0o700), os.Chown(filepath.Join(dir, "tmp"), uid, uid)); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.timeout=10m"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(filepath.Join(dir, "suite"), args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + filepath.Join(dir, "tmp"), "HOME=" + dir,
		ordinaryUser + "=" + filepath.Join(dir, "gatehouse-init"),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as uid %d: %v\n%s", uid, err, failures(string(out)))
	}
	t.Logf("as uid %d: %d tests ran", uid, strings.Count(string(out), "--- PASS"))
}

// open lets every user read what a test has made: sessions run under another one.
func open(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		return os.Chmod(path, 0o755)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// failures leaves out of a verbose run what passed: a log that is cut would
// hide the one test that did not.
func failures(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		said := strings.TrimSpace(line)
		if !strings.HasPrefix(said, "=== ") && !strings.HasPrefix(said, "--- PASS") && !strings.Contains(said, ": passed: ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// provider returns a provider with its own folders, or skips, loudly, when and
// only when the machine lacks what a provider needs.
func provider(t *testing.T, change ...func(*local.Options)) (*local.Provider, local.Options) {
	t.Helper()
	o := local.Options{Run: filepath.Join(t.TempDir(), "run"), InitPath: initPath, Cgroup: os.Getenv(delegatedCgroup)}
	o.Transcripts = filepath.Join(filepath.Dir(o.Run), "transcripts")
	for _, c := range change {
		c(&o)
	}
	p, err := local.New(o)
	if problem.CodeOf(err) == problem.ProviderCapabilityMissing {
		t.Skipf("NOT TESTED on this machine: %v; %s", err, problem.HintOf(err))
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, o
}

// start starts a sandbox that is closed with the test.
func start(t *testing.T, p *local.Provider, s sandbox.Spec, door net.Listener) sandbox.Sandbox {
	t.Helper()
	if s.Session == "" {
		s.Session = "s-1"
	}
	s.Unlimited = true
	if s.Timeout == 0 {
		s.Timeout = time.Minute
	}
	b, err := p.Start(t.Context(), s, door)
	if err != nil {
		t.Fatalf("start: %v; hint: %s", err, problem.HintOf(err))
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// result is what one run left.
type result struct {
	sandbox.End
	out string
}

// run runs a shell script in a sandbox of its own.
func run(t *testing.T, s sandbox.Spec, door net.Listener, script string) result {
	t.Helper()
	p, _ := provider(t)
	s.Argv = []string{"/bin/sh", "-c", script}
	return finish(t, start(t, p, s, door))
}

// needs skips, loudly, a script in Python on a machine without it.
func needs(t *testing.T, script string) {
	t.Helper()
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil && strings.Contains(script, python) {
		t.Skip("NOT TESTED on this machine: no " + python)
	}
}

func finish(t *testing.T, b sandbox.Sandbox) result {
	t.Helper()
	end, err := b.Run(context.Background())
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	out, err := os.ReadFile(end.Transcript)
	if err != nil {
		t.Fatal(err)
	}
	return result{end, string(out)}
}

// fakeDoor is a door that answers every CONNECT as answer says.
type fakeDoor struct {
	net.Listener
	answer func(target string, c net.Conn)
	mu     sync.Mutex
	seen   []string
	wg     sync.WaitGroup
}

func openDoor(t testing.TB, answer func(target string, c net.Conn)) *fakeDoor {
	t.Helper()
	l, err := sandbox.ListenDoor(filepath.Join(t.TempDir(), "door.sock"))
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDoor{Listener: l, answer: answer}
	d.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.wg.Go(func() { d.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); d.wg.Wait() })
	return d
}

func (d *fakeDoor) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	br := bufio.NewReader(c)
	line, err := br.ReadString('\n')
	if err != nil {
		return
	}
	d.mu.Lock()
	d.seen = append(d.seen, strings.TrimSpace(line))
	d.mu.Unlock()
	fields := strings.Fields(line)
	if len(fields) != 3 || fields[0] != "CONNECT" {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		return
	}
	for {
		if line, err = br.ReadString('\n'); err != nil {
			return
		} else if strings.TrimSpace(line) == "" {
			break
		}
	}
	d.answer(fields[1], &buffered{c, br})
}

// lines returns the first lines of all connections so far.
func (d *fakeDoor) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.seen...)
}

// saw reports whether a CONNECT for target came in.
func (d *fakeDoor) saw(target string) bool {
	for _, l := range d.lines() {
		if strings.HasPrefix(l, "CONNECT "+target+" ") {
			return true
		}
	}
	return false
}

type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// refuse answers as a door that lets nothing through.
func refuse(_ string, c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n") }

// echo answers as a far side that greets, and then repeats what it is told.
func echo(target string, c net.Conn) {
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello from "+target+"\n")
	_, _ = io.Copy(c, c)
}

func ownerOf(fi os.FileInfo) uint32 { return fi.Sys().(*syscall.Stat_t).Uid }
