//go:build linux

package local

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gatehouse/internal/problem"
)

// Hints name the next step on the machine, by what is missing.
const (
	hintBwrap    = "install bubblewrap 0.8 or newer (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"
	hintSysctl   = "allow user namespaces: sysctl -w user.max_user_namespaces=15000, and on older Debian kernels sysctl -w kernel.unprivileged_userns_clone=1"
	hintAppArmor = "Ubuntu restricts user namespaces by AppArmor: load a profile for bwrap that allows userns (see docs/sandbox.md), or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	hintNft      = "the kernel needs nf_tables with nft_nat and nft_redir: modprobe nf_tables nft_chain_nat nft_redir nft_nat"
	hintSeccomp  = "the kernel needs CONFIG_SECCOMP_FILTER and Linux 5.9 or newer"
)

func missing(msg, hint string) error {
	return problem.New(problem.ProviderCapabilityMissing, msg, hint)
}

// checkMachine finds bubblewrap and reads the switches that close user
// namespaces. What they do not show, the first Start does.
func checkMachine(bwrap string) (string, error) {
	if bwrap == "" {
		bwrap = "bwrap"
	}
	path, err := exec.LookPath(bwrap)
	if err != nil {
		return "", missing("bubblewrap is not installed", hintBwrap)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	fi, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("bubblewrap: %w", err)
	}
	if fi.Mode()&os.ModeSetuid != 0 {
		return "", missing("bubblewrap is setuid root, and then refuses the capabilities that gatehouse-init needs", "remove the setuid bit of "+path+" and allow user namespaces")
	}
	if v := sysctl("user/max_user_namespaces"); v == "0" {
		return "", missing("user namespaces are switched off", hintSysctl)
	}
	if v := sysctl("kernel/unprivileged_userns_clone"); v == "0" {
		return "", missing("user namespaces are closed to unprivileged users", hintSysctl)
	}
	return path, nil
}

func sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// explainStart turns what bubblewrap said before gatehouse-init answered into a
// problem.
func explainStart(said string, err error) error {
	said = strings.TrimSpace(said)
	cause := err
	if said != "" {
		cause = fmt.Errorf("%w: %s", err, said)
	}
	switch {
	case strings.Contains(said, "uid map") || strings.Contains(said, "loopback") || strings.Contains(said, "user namespace") ||
		strings.Contains(said, "namespace") && strings.Contains(said, "ermi"):
		hint := hintSysctl
		if sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" {
			hint = hintAppArmor
		}
		return problem.Wrap(cause, problem.ProviderCapabilityMissing, "bubblewrap may not make its namespaces", hint)
	case strings.Contains(said, "Unknown option"):
		return problem.Wrap(cause, problem.ProviderCapabilityMissing, "bubblewrap is too old", hintBwrap)
	}
	return problem.Wrap(cause, problem.SandboxFailed, "the sandbox did not start", "")
}

// program is gatehouse-init as the sandboxes see it.
type program struct {
	path   string
	static bool
	held   *os.File // shared lock, so that another node's sweep leaves the file alone
}

const (
	initPrefix    = ".init-"
	placingPrefix = ".placing-"
)

// placeInit copies gatehouse-init into the run folder, under its digest, so
// that every session's user can reach it and an upgrade of the node does not
// change it under running sessions.
func placeInit(path, run string) (program, error) {
	if path == "" {
		exe, err := os.Executable()
		if err != nil {
			return program{}, fmt.Errorf("gatehouse-init: %w", err)
		}
		path = exe
		beside := filepath.Join(filepath.Dir(exe), "gatehouse-init")
		if fi, err := os.Stat(beside); err == nil && fi.Mode().IsRegular() {
			path = beside
		}
	}
	src, err := os.Open(path)
	if err != nil {
		return program{}, problem.Wrap(err, problem.SandboxFailed, "gatehouse-init cannot be read", "run make build")
	}
	defer src.Close()
	static, err := isStatic(src)
	if err != nil {
		return program{}, problem.Wrap(err, problem.SandboxFailed, "gatehouse-init is not a program", "run make build")
	}
	h := sha256.New()
	if _, err := io.Copy(h, src); err != nil {
		return program{}, fmt.Errorf("gatehouse-init: %w", err)
	}
	dst := filepath.Join(run, initPrefix+hex.EncodeToString(h.Sum(nil)[:16]))
	guard, err := lockRun(run, unix.LOCK_SH)
	if err != nil {
		return program{}, fmt.Errorf("gatehouse-init: %w", err)
	}
	defer guard.Close()
	if _, err := os.Stat(dst); errors.Is(err, os.ErrNotExist) {
		err = placeFile(src, dst)
		if err != nil {
			return program{}, fmt.Errorf("gatehouse-init: %w", err)
		}
	}
	held, err := os.Open(dst)
	if err != nil {
		return program{}, fmt.Errorf("gatehouse-init: %w", err)
	}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		held.Close()
		return program{}, fmt.Errorf("gatehouse-init: %w", err)
	}
	return program{dst, static, held}, nil
}

// placeFile copies src to dst in one step.
func placeFile(src io.ReadSeeker, dst string) error {
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(dst), placingPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = io.Copy(tmp, src)
	if err = errors.Join(err, tmp.Chmod(0o555), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), dst)
}

// isStatic reports whether the program needs no loader, and so runs in any root
// file system.
func isStatic(r io.ReaderAt) (bool, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return false, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false, nil
		}
	}
	return true, nil
}
