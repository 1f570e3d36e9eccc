//go:build linux

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// stage is where a root node shows its sessions their sources, in a mount
// namespace of the launching thread. Nothing in a sandbox uses /sys, and its
// parents are open to every user.
const stage = "/sys"

// podmanStage is the same for podman, whose runtime needs /sys.
const podmanStage = "/media"

// sources are the host paths that bubblewrap binds. An ordinary user's sessions
// reach them as they are. A session of a root node runs under a bare user that
// may not walk through, say, /root: there each source is bound to /sys/<n>
// first, in a mount namespace that only the launching thread and bubblewrap
// ever see.
type sources struct {
	staged bool
	stage  string
	paths  []string
}

// add returns the name under which bubblewrap finds path.
func (s *sources) add(path string) string {
	if !s.staged {
		return path
	}
	s.paths = append(s.paths, path)
	return filepath.Join(s.stage, strconv.Itoa(len(s.paths)-1))
}

// launch is one bubblewrap, or podman, to start.
type launch struct {
	program        string
	args           []string
	env            []string // nothing for bubblewrap
	asRoot         bool     // podman: what it starts is not
	sources        sources
	uid            uint32 // 0: stay the user that Gatehouse is, who is not root
	stdout, stderr *os.File
	extra          []*os.File // descriptors 3 and up
	cgroup         *os.File   // nil: none
}

// start runs bubblewrap and returns once it runs. done receives the result of
// waiting for it.
//
// The parent-death signal belongs to the thread that made the child, so the
// thread is locked and lives until the child's end. It is never unlocked: a
// thread with a mount namespace of its own must not run anything else.
func (l *launch) start() (p *os.Process, done <-chan error, err error) {
	type started struct {
		p   *os.Process
		err error
	}
	up, down := make(chan started, 1), make(chan error, 1)
	go onOwnThread(func() {
		cmd, err := l.run()
		if err != nil {
			up <- started{err: err}
			return
		}
		up <- started{p: cmd.Process}
		down <- cmd.Wait()
	})
	s := <-up
	return s.p, down, s.err
}

// onOwnThread runs f on a locked thread that ends with it, and never on the
// process's first thread, which cannot end.
func onOwnThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return // still locked: the runtime ends the thread
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // cannot be the first thread, which is held above
		f()
	}()
	<-done
	runtime.UnlockOSThread()
}

func (l *launch) run() (*exec.Cmd, error) {
	// The node's umask is closed. That of the agent, and of what bubblewrap makes
	// for it, is what programs expect; it belongs to the thread from here on.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return nil, fmt.Errorf("umask of its own: %w", err)
	}
	unix.Umask(0o022)
	if l.sources.staged {
		if err := l.sources.mount(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(l.program, l.args...)
	cmd.Env = append([]string{}, l.env...) // not nil, which would mean this process's own
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = l.stdout, l.stderr
	cmd.ExtraFiles = l.extra
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	switch {
	case l.asRoot:
	case l.uid != 0:
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: l.uid, Gid: l.uid} // and no groups
	case os.Geteuid() == 0:
		return nil, errors.New("refusing to start a sandbox as root")
	}
	if l.cgroup != nil {
		cmd.SysProcAttr.UseCgroupFD = true
		cmd.SysProcAttr.CgroupFD = int(l.cgroup.Fd())
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// readable opens what the node wrote for a sandbox to the user inside, who is
// another one; links stay as they are. The modes given when files are made do not
// do that under a closed umask.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.Chmod(path, 0o755)
		case d.Type().IsRegular():
			return os.Chmod(path, 0o644)
		}
		return nil
	})
}

// mount gives the calling thread a mount namespace in which the stage holds the
// sources.
func (s *sources) mount() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("private mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("gatehouse", s.stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0711,size=1m"); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	for i, path := range s.paths {
		at := filepath.Join(s.stage, strconv.Itoa(i))
		fi, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("stage: %w", err)
		}
		if fi.IsDir() {
			err = os.Mkdir(at, 0o711)
		} else {
			err = os.WriteFile(at, nil, 0o600)
		}
		if err != nil {
			return fmt.Errorf("stage: %w", err)
		}
		if err := unix.Mount(path, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("stage %s: %w", filepath.Base(path), err)
		}
		// bubblewrap adds these by itself; an OCI runtime takes its root as it finds it.
		if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("stage %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}
