//go:build linux

package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

const (
	hintPodman  = "install podman 4.3 or newer (Debian, Ubuntu: apt-get install podman; Fedora: dnf install podman)"
	hintRuntime = "install crun, or runc on a machine whose cgroups are not cgroup v2 alone"
)

// podman makes sandboxes as containers: the same gatehouse-init, folders, users
// and channels, with an OCI runtime in bubblewrap's place. It has a storage of
// its own, in which no image ever lies.
type podman struct {
	program string
	runtime string // crun or runc
	dir     string // storage and configuration
	runroot string // what podman knows of running containers; it takes no more than 50 bytes
}

// newPodman checks the machine and writes podman's configuration: nothing of
// the machine's own, which may add environment variables, mounts and devices to
// every container.
func newPodman(program, run string) (*podman, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, missing("podman is not installed", hintPodman)
	}
	if os.Geteuid() != 0 {
		return nil, missing("the oci provider needs a node that runs as root: every session gets a user id of its own", "run gatehouse as root, or use the local provider")
	}
	runtime := "runc"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		if _, err := exec.LookPath("crun"); err == nil {
			runtime = "crun" // which refuses the older cgroups
		}
	}
	if runtime, err = exec.LookPath(runtime); err != nil {
		return nil, missing("podman's runtime is not installed", hintRuntime)
	}
	p := &podman{program: path, runtime: runtime, dir: filepath.Join(filepath.Dir(run), "podman")}
	sum := sha256.Sum256([]byte(p.dir))
	p.runroot = "/run/gatehouse-podman/" + hex.EncodeToString(sum[:6])
	if err := errors.Join(os.MkdirAll(p.dir, 0o700), os.MkdirAll(filepath.Dir(p.runroot), 0o700)); err != nil {
		return nil, fmt.Errorf("oci provider: %w", err)
	}
	if err := p.sweep(); err != nil {
		return nil, fmt.Errorf("oci provider: %w", err)
	}
	storage := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", filepath.Join(p.dir, "root"), p.runroot)
	for name, text := range map[string]string{"containers.conf": "", "storage.conf": storage, "mounts.conf": ""} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("oci provider: %w", err)
		}
	}
	return p, nil
}

// sweep removes what podman knows of containers below folders that are gone, and
// notes whose this provider's is.
func (p *podman) sweep() error {
	all, err := filepath.Glob(filepath.Join(filepath.Dir(p.runroot), "*"))
	if err != nil {
		return err
	}
	for _, at := range all {
		owner, err := os.ReadFile(filepath.Join(at, ownerFile))
		if err != nil {
			continue // being made, or not ours
		}
		if _, err := os.Stat(string(owner)); errors.Is(err, os.ErrNotExist) {
			if err := os.RemoveAll(at); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(p.runroot, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.runroot, ownerFile), []byte(p.dir), 0o600)
}

const ownerFile = ".gatehouse"

// env is podman's own environment; nothing of it reaches a container.
func (p *podman) env() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + p.dir,
		"CONTAINERS_CONF=" + filepath.Join(p.dir, "containers.conf"), "CONTAINERS_STORAGE_CONF=" + filepath.Join(p.dir, "storage.conf"),
	}
}

func (p *podman) global() []string {
	at := func(name string) string { return filepath.Join(p.dir, name) }
	return []string{
		"--root", at("root"), "--runroot", p.runroot, "--tmpdir", p.runroot + "/tmp", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs",
		"--events-backend", "none", "--default-mounts-file", at("mounts.conf"), "--runtime", p.runtime,
	}
}

// nameOf is a session's container.
func nameOf(session string) string { return "gatehouse-" + session }

// pidfileOf is where podman writes the process id of PID 1.
func (l layout) pidfile() string { return filepath.Join(l.dir, "pid") }

// skeleton is the container's root: mount points and links, owned by the
// session's user, who is root in the container, and read-only there.
func (l layout) skeleton() string { return filepath.Join(l.dir, "rootfs") }

// podmanArgs builds podman's command line, as bwrapArgs does bubblewrap's.
func (p *podman) args(b *box, init string, src *sources) ([]string, error) {
	l, user := b.layout, strconv.FormatUint(uint64(b.user), 10)
	var files, processes unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_NOFILE, &files), unix.Getrlimit(unix.RLIMIT_NPROC, &processes)); err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	// A container's user cannot raise what the node itself has.
	ulimit := func(name string, n uint64) string {
		v := strconv.FormatUint(n, 10)
		return name + "=" + v + ":" + v
	}
	masked := []string{"/sys"}
	for _, name := range slices.Concat(maskedFiles, maskedFolders) {
		masked = append(masked, "/proc/"+name)
	}
	a := append(p.global(), "run", "--rm", "--replace", "--pull", "never", "--name", nameOf(b.spec.Session), "--network", "none",
		// SB-31: one user, who is not the kernel's root.
		"--uidmap", "0:"+user+":1", "--gidmap", "0:"+user+":1",
		"--cap-drop", "all", "--cap-add", "NET_ADMIN,SETPCAP,SETFCAP",
		"--security-opt", "seccomp=unconfined", // gatehouse-init has a filter of its own, which is narrower
		"--security-opt", "mask="+strings.Join(masked, ":"),
		"--read-only", "--read-only-tmpfs=false", "--tmpfs", "/dev:ro,nosuid,noexec,size=64k,mode=0755", "--shm-size", strconv.Itoa(shmBytes), "--systemd", "false",
		"--hostname", "gatehouse", "--no-hosts", "--pid", "private", "--ipc", "private", "--uts", "private", "--cgroupns", "private",
		"--unsetenv-all", "--env-host=false", "--http-proxy=false", // SB-01, SB-02
		"--ulimit", ulimit("nofile", min(files.Max, maxFiles)), "--ulimit", ulimit("nproc", min(processes.Cur, 1<<15)), "--ulimit", "core=1:1",
		"--log-driver", "none", "--stop-timeout", "0", "--pidfile", l.pidfile(), "--workdir", "/",
	)
	if b.spec.Memory > 0 {
		m := strconv.FormatInt(b.spec.Memory, 10)
		a = append(a, "--memory", m, "--memory-swap", m)
	}
	if b.spec.CPUs > 0 {
		a = append(a, "--cpus", strconv.FormatFloat(b.spec.CPUs, 'f', -1, 64))
	}
	a = append(a, "--pids-limit", strconv.FormatInt(b.spec.Pids+pidsOfInit, 10))
	bind := func(source, at, options string) { a = append(a, "-v", source+":"+at+":"+options+",nosuid,nodev") }
	root, err := p.root(b, bind, src)
	if err != nil {
		return nil, err
	}
	for _, m := range []struct{ source, at, options string }{
		{l.etc, "/etc", "ro"}, {l.tmp, "/tmp", "rw"}, {l.home, sandbox.Home, "rw"}, {l.workspace, sandbox.Workspace, "rw"},
		{l.files, sandbox.Delivered, "ro"}, {l.out, sandbox.Out, "rw"},
	} {
		bind(src.add(m.source), m.at, m.options)
	}
	rootfs := b.spec.Rootfs
	for _, dir := range etcFolders {
		if at, err := folderIn(rootfs, "etc/"+dir); err != nil {
			return nil, err
		} else if at != "" {
			bind(src.add(at), "/etc/"+dir, "ro")
		}
	}
	for _, path := range maskedConfigs {
		if _, err := os.Stat(filepath.Join(rootOf(rootfs), path)); err == nil {
			bind(src.add(filepath.Join(l.etc, emptyFile)), path, "ro")
		}
	}
	for _, store := range javaHomes(rootfs) {
		bind(src.add(filepath.Join(l.etc, javaPaths[0])), store, "ro")
	}
	for _, m := range b.spec.Mounts {
		bind(src.add(m.Source), m.Path, "ro")
	}
	bind(src.add(init), sandbox.InitPath, "ro")
	if b.socket != "" {
		bind(src.add(b.socket), sandbox.DoorPath, "ro") // SB-17
	}
	bind(src.add(l.call()), sandbox.CallPath, "ro")
	return append(a, "--rootfs", src.add(root), sandbox.InitPath, "init", "calls"), nil
}

// pidsOfInit is what the container's own limit leaves to PID 1 beside the
// agent, whose limit gatehouse-init sets.
const pidsOfInit = 64

// root makes the container's root folder. What gatehouse-init has on its path
// must exist: the root is read-only before anything is mounted over it.
func (p *podman) root(b *box, bind func(source, at, options string), src *sources) (string, error) {
	dir := b.layout.skeleton()
	owned := []string{dir}
	for _, name := range []string{"proc", "sys", "dev", "tmp", "run", "etc", "var", "home", "workspace", "gatehouse"} {
		owned = append(owned, filepath.Join(dir, name))
	}
	root, names := "/", systemFolders
	if b.spec.Rootfs != "host" {
		entries, err := os.ReadDir(b.spec.Rootfs)
		if err != nil {
			return "", problem.Wrap(err, problem.ConfigInvalid, "rootfs cannot be read", "name a folder that holds a root file system")
		}
		root, names = b.spec.Rootfs, nil
		for _, e := range entries {
			if !slices.Contains(ownFolders, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	links := map[string]string{"var/tmp": "/tmp", "var/run": "/run"}
	for _, name := range names {
		path := filepath.Join(root, name)
		fi, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return "", fmt.Errorf("rootfs: %w", err)
		case fi.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return "", fmt.Errorf("rootfs: %w", err)
			}
			links[name] = target
		case fi.IsDir():
			owned = append(owned, filepath.Join(dir, name))
			bind(src.add(path), "/"+name, "ro")
		}
	}
	for _, path := range owned {
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o755), os.Lchown(path, int(b.user), int(b.user))); err != nil {
			return "", fmt.Errorf("root folder: %w", err)
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("root folder: %w", err)
		}
	}
	return dir, nil
}

func (l layout) call() string { return filepath.Join(l.dir, "call.sock") }

// listen opens the socket at which PID 1 calls for its channels. podman and its
// monitor would keep descriptors open that they were asked to hand on, and the
// end of a channel means something here.
func (b *box) listen() (net.Listener, error) {
	l, err := sandbox.ListenDoor(b.layout.call())
	if err != nil {
		return nil, err
	}
	if err := os.Lchown(b.layout.call(), int(b.user), int(b.user)); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("channels: %w", err)
	}
	return l, nil
}

// accept takes exactly the two calls of PID 1, before anything else runs
// inside; the socket is closed then.
func (b *box) accept(l net.Listener) error {
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-b.gone: // podman has given up
		case <-over:
		}
		_ = l.Close()
	}()
	for _, conn := range []**net.UnixConn{&b.control, &b.room} {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("gatehouse-init did not call: %w", err)
		}
		u, ok := c.(*net.UnixConn)
		if !ok {
			return errors.New("channels: not a unix socket")
		}
		b.mu.Lock()
		*conn, b.channels = u, append(b.channels, u)
		b.mu.Unlock()
	}
	b.orders = sandbox.NewReader(b.room)
	return nil
}

// initOf returns the process id of PID 1, once it has said its first line. That
// it is this session's is told by its user: no other session has it.
func (p *podman) initOf(b *box) (pid int, fd int, err error) {
	text, err := os.ReadFile(b.layout.pidfile())
	if err != nil {
		return 0, 0, fmt.Errorf("PID 1: %w", err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, 0, fmt.Errorf("PID 1: %w", err)
	}
	if fd, err = unix.PidfdOpen(pid, 0); err != nil {
		return 0, 0, fmt.Errorf("pidfd of PID 1: %w", err)
	}
	users, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", pid))
	if fields := strings.Fields(string(users)); err != nil || len(fields) != 3 || fields[1] != strconv.FormatUint(uint64(b.user), 10) {
		unix.Close(fd)
		return 0, 0, errors.New("PID 1 is gone")
	}
	return pid, fd, nil
}

// remove takes the container's record away, whatever is left of it.
func (p *podman) remove(session string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, append(p.global(), "rm", "--force", "--ignore", "--time", "0", nameOf(session))...)
	cmd.Env, cmd.Dir = p.env(), "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("remove the container: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

const (
	removeWithin = 30 * time.Second
	drainWithin  = 10 * time.Second // for the end of the output, which podman carries
)
