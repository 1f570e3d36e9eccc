//go:build linux

package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

var files = []attempt{
	{"SB-05", "paths of the host", sandbox.FilesystemPrivate, hostPaths},
	{"SB-05", "canaries in readable files", sandbox.FilesystemPrivate, canaries},
	{"SB-31", "write kernel settings", sandbox.Unprivileged, kernelSettings},
	{"SB-32", "devices", sandbox.Unprivileged, devices},
	{"SB-33", "write what is read-only", sandbox.FilesystemPrivate, readOnly},
	{"SB-35", "other sessions' folders", sandbox.FilesystemPrivate, otherSessions},
	{"SB-45", "the host's /proc", sandbox.ProcessesPrivate, maskedProc},
	{"SB-48", "credential files", sandbox.FilesystemPrivate, credentialFiles},
}

// mount is one line of mountinfo.
type mount struct {
	at      string
	options []string
}

func mountInfo() ([]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var mounts []mount
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) < 6 {
			return nil, errors.New("mountinfo: short line")
		}
		mounts = append(mounts, mount{fields[4], strings.Split(fields[5], ",")})
	}
	if len(mounts) == 0 {
		return nil, errors.New("mountinfo: empty")
	}
	return mounts, s.Err()
}

func hostPaths(p *place) verdict {
	var s several
	for _, path := range slices.Concat([]string{
		"/root", "/sys", "/boot", "/mnt", "/media", "/srv", "/var/lib", "/var/log", "/var/spool", "/etc/shadow", "/etc/ssh",
		"/etc/machine-id", "/etc/gitconfig", "/etc/sudoers",
	}, p.Outside) {
		_, err := os.Lstat(path)
		if entries, list := os.ReadDir(path); path == "/sys" && list == nil && len(entries) == 0 {
			err = unix.ENOENT // an empty mask
		}
		s.refused(path, err)
	}
	homes, err := os.ReadDir("/home")
	if err != nil || len(homes) != 1 {
		s.bad = append(s.bad, fmt.Sprintf("/home holds %d folders", len(homes)))
	}
	_, err = os.Lstat(sandbox.Workspace)
	s.must("workspace", err)
	return s.verdict()
}

// maxScan bounds how much of a file is read for canaries.
const maxScan = 1 << 20

// canaries walks what is not the read-only system.
func canaries(p *place) verdict {
	if len(p.Canaries) == 0 {
		return absent("no canary was planted")
	}
	seen := 0
	for _, top := range []string{"/etc", "/gatehouse", "/home", "/run", "/tmp", "/var", "/workspace", "/dev/shm", "/opt"} {
		err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // what cannot be read holds nothing for the agent
			}
			b, err := head(path)
			if err != nil {
				return nil //nolint:nilerr // see above
			}
			seen++
			if i, found := p.canary(b); found {
				return fmt.Errorf("canary %d in %s", i, path)
			}
			return nil
		})
		if err != nil {
			return failed("%v", err)
		}
	}
	if seen == 0 {
		return failed("could not run: no file was readable")
	}
	return passed("none in %d readable files", seen)
}

func head(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxScan))
}

// openForWriting opens without changing anything.
func openForWriting(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func kernelSettings(*place) verdict {
	var s several
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/lo/route_localnet", "/proc/sys/fs/suid_dumpable",
		"/proc/sysrq-trigger", "/sys/kernel/uevent_helper",
	} {
		s.refused(path, openForWriting(path))
	}
	for _, path := range []string{"/proc/1/uid_map", "/proc/self/uid_map", "/proc/self/gid_map"} {
		s.refused(path, writeTo(path, "0 0 1"))
	}
	_, err := head("/proc/sys/kernel/ostype")
	s.must("read a setting", err)
	return s.verdict()
}

// writeTo writes to a file of /proc that may be opened but not written.
func writeTo(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// wantedDevices is all of /dev. OCI runtimes add the message queues of the
// session's own IPC namespace.
var wantedDevices = []string{
	"core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero",
}

func devices(*place) verdict {
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return failed("could not run: %v", err)
	}
	var s several
	for _, e := range entries {
		if !slices.Contains(wantedDevices, e.Name()) {
			s.bad = append(s.bad, "/dev/"+e.Name())
		}
	}
	const null = 1<<8 | 3
	for what, dev := range map[string]int{"mem": 1<<8 | 1, "sda": 8 << 8, "null": null} {
		err := unix.Mknod("/tmp/probe-"+what, unix.S_IFCHR|0o600, dev)
		if err == nil {
			_ = os.Remove("/tmp/probe-" + what)
		}
		s.refused("mknod "+what, err)
	}
	s.must("read /dev/urandom", read("/dev/urandom"))
	return s.verdict()
}

func readOnly(*place) verdict {
	var s several
	for _, path := range []string{
		"/usr/probe", "/usr/bin/probe", "/etc/probe", "/run/probe", "/run/gatehouse/probe", "/gatehouse/probe", "/probe", "/dev/probe",
		"/var/probe", "/home/probe", "/proc/probe",
	} {
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
			_ = os.Remove(path)
		}
		s.refused(path, err)
	}
	for _, path := range []string{sandbox.InitPath, "/etc/resolv.conf", "/etc/passwd", "/etc/ssl/certs/ca-certificates.crt"} {
		err := openForWriting(path)
		s.note("overwrite "+path, err, refusal(err) || errors.Is(err, unix.ETXTBSY))
		s.refused("chmod "+path, os.Chmod(path, 0o777))
		s.refused("rename "+path, os.Rename(path, path+"~"))
		s.refused("remove "+path, unix.Unlink(path))
	}
	for _, dir := range []string{sandbox.Workspace, sandbox.Home, "/tmp", sandbox.Out, "/dev/shm"} {
		f, err := os.CreateTemp(dir, ".probe-")
		s.must("write in "+dir, err)
		if err == nil {
			f.Close()
			_ = os.Remove(f.Name())
		}
	}
	return s.verdict()
}

// otherSessions: the paths that the provider names, among them the folder that
// holds all sessions, do not exist, and the writable folders hold nothing yet.
func otherSessions(p *place) verdict {
	var s several
	for _, path := range p.Outside {
		_, err := os.Lstat(path)
		s.refused(path, err)
	}
	if len(p.Outside) == 0 {
		return failed("could not run: no path to look for")
	}
	for _, dir := range []string{sandbox.Home, "/tmp", sandbox.Out} {
		entries, err := os.ReadDir(dir)
		s.must("list "+dir, err)
		if len(entries) > 0 {
			s.bad = append(s.bad, dir+" is not empty")
		}
	}
	return s.verdict()
}

func maskedProc(*place) verdict {
	var s several
	for _, file := range []string{
		"cmdline", "interrupts", "iomem", "kallsyms", "kcore", "key-users", "keys", "kmsg", "locks", "modules", "sched_debug", "slabinfo", "timer_list", "vmallocinfo",
	} {
		b, err := head("/proc/" + file)
		if err == nil && len(b) == 0 {
			err = unix.ENOENT // an empty mask
		}
		s.refused(file, err)
	}
	for _, dir := range []string{"acpi", "bus", "driver", "fs", "irq", "scsi"} {
		entries, err := os.ReadDir("/proc/" + dir)
		if err == nil && len(entries) == 0 {
			err = unix.ENOENT
		}
		s.refused(dir, err)
	}
	_, err := head("/proc/meminfo")
	s.must("meminfo", err)
	return s.verdict()
}

func credentialFiles(p *place) verdict {
	var s several
	for _, name := range []string{
		".netrc", ".npmrc", ".pypirc", ".gitconfig", ".git-credentials", ".ssh", ".aws", ".gnupg", ".docker", ".kube",
		".config/gcloud", ".config/gh", ".config/git", ".cargo/credentials.toml", ".m2/settings.xml",
	} {
		path := filepath.Join(sandbox.Home, name)
		b, err := head(path)
		if err == nil {
			// The session may have put one there, with placeholders.
			if i, found := p.canary(b); found {
				s.bad = append(s.bad, fmt.Sprintf("canary %d in %s", i, path))
			}
			continue
		}
		s.refused(name, err)
	}
	for _, path := range []string{"/etc/gitconfig", "/etc/npmrc", "/etc/pip.conf", "/usr/etc/npmrc", "/usr/local/etc/npmrc", "/usr/etc/gitconfig"} {
		b, err := head(path)
		if err == nil && len(b) == 0 {
			err = unix.ENOENT // an empty mask
		}
		s.refused(path, err)
	}
	return s.verdict()
}
