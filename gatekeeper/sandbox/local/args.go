//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// infoFD is the descriptor on which bubblewrap tells the process id of PID 1.
const infoFD = sandbox.RoomFD + 1

const shmBytes = 64 << 20 // /dev/shm, the only writable memory file system (SB-37)

// systemFolders are what rootfs: host shows of the host, read-only. /opt, /srv
// and /var are left out: they hold services and their files.
var systemFolders = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix"}

// ownFolders are never taken from a root file system.
var ownFolders = []string{"proc", "sys", "dev", "tmp", "run", "etc", "var", "home", "root", "workspace", "gatehouse", "mnt", "media", "srv", "lost+found", "boot"}

// maskedFiles and maskedFolders of /proc show the host or its other users
// (SB-45); all of /proc/sys is read-only, because the network part of it
// belongs to the sandbox's kernel user (SB-31).
var (
	maskedFiles = []string{
		"cmdline", "config.gz", "diskstats", "interrupts", "iomem", "ioports", "kallsyms", "kcore", "key-users", "keys", "kmsg",
		"latency_stats", "locks", "modules", "partitions", "sched_debug", "slabinfo", "softirqs", "sysrq-trigger", "timer_list",
		"vmallocinfo",
	}
	maskedFolders = []string{"acpi", "bus", "driver", "fs", "irq", "scsi"}
)

// layout are the host paths of one session.
type layout struct {
	dir       string // Run/<session>
	workspace string
	home      string
	tmp       string
	out       string
	files     string // /gatehouse
	etc       string
}

func newLayout(dir string) layout {
	at := func(name string) string { return filepath.Join(dir, name) }
	return layout{dir, at("workspace"), at("home"), at("tmp"), at("out"), at("files"), at("etc")}
}

// writable are the folders that the agent may write, which the quota counts.
func (l layout) writable() []string { return []string{l.workspace, l.home, l.tmp, l.out} }

// bwrapArgs builds the command line: namespaces, mounts, gatehouse-init.
//
// --uid 0 --gid 0 keeps bubblewrap from making a second user namespace, in
// which CAP_NET_ADMIN would not reach the network namespace; kernel-side the
// sandbox runs as the unprivileged user that started bubblewrap. --as-pid-1
// keeps bubblewrap's own reaper, and the host's environment with it, out.
func bwrapArgs(l layout, rootfs string, mounts []sandbox.Mount, init, socket string, src *sources) ([]string, error) {
	a := []string{
		"--unshare-user", "--unshare-all", "--uid", "0", "--gid", "0", "--as-pid-1", "--new-session", "--die-with-parent", "--clearenv",
		"--hostname", "gatehouse", // SB-44
		"--info-fd", strconv.Itoa(infoFD),
		"--cap-drop", "ALL", "--cap-add", "CAP_NET_ADMIN", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_SETFCAP",
	}
	a, err := rootArgs(a, rootfs, src)
	if err != nil {
		return nil, err
	}
	a = procArgs(a)
	a = append(a, "--dev", "/dev", "--perms", "1777", "--size", strconv.Itoa(shmBytes), "--tmpfs", "/dev/shm", "--remount-ro", "/dev")
	a = append(a,
		"--ro-bind", src.add(l.etc), "/etc",
		"--bind", src.add(l.tmp), "/tmp",
		"--bind", src.add(l.home), sandbox.Home,
		"--bind", src.add(l.workspace), sandbox.Workspace,
		"--ro-bind", src.add(l.files), sandbox.Delivered,
		"--bind", src.add(l.out), sandbox.Out,
		"--symlink", "/tmp", "/var/tmp",
		"--symlink", "/run", "/var/run",
	)
	for _, dir := range etcFolders {
		if at, err := folderIn(rootfs, "etc/"+dir); err != nil {
			return nil, err
		} else if at != "" {
			a = append(a, "--ro-bind", src.add(at), "/etc/"+dir)
		}
	}
	for _, path := range maskedConfigs {
		if _, err := os.Stat(filepath.Join(rootOf(rootfs), path)); err == nil {
			a = append(a, "--ro-bind", src.add(filepath.Join(l.etc, emptyFile)), path)
		}
	}
	for _, store := range javaHomes(rootfs) {
		a = append(a, "--ro-bind", src.add(filepath.Join(l.etc, javaPaths[0])), store)
	}
	for _, m := range mounts {
		a = append(a, "--ro-bind", src.add(m.Source), m.Path)
	}
	a = append(a, "--ro-bind", src.add(init), sandbox.InitPath)
	if socket != "" {
		// SB-17: this one socket, in a folder of the read-only root; no path
		// inside leads to another session's.
		a = append(a, "--ro-bind", src.add(socket), sandbox.DoorPath)
	}
	a = append(a, "--remount-ro", "/", "--chdir", "/", "--", sandbox.InitPath, "init")
	return a, nil
}

// checkMounts refuses what would replace a part of the sandbox itself.
func checkMounts(mounts []sandbox.Mount) error {
	for _, m := range mounts {
		for _, path := range []string{m.Source, m.Path} {
			if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
				return problem.New(problem.ConfigInvalid, "mount "+m.Path+": both paths must be absolute and clean", "write them without .. and trailing slashes")
			}
		}
		first, _, _ := strings.Cut(m.Path[1:], "/")
		if slices.Contains(ownFolders, first) || slices.Contains(systemFolders, first) {
			return problem.New(problem.ConfigInvalid, "mount "+m.Path+": /"+first+" belongs to the sandbox", "mount it elsewhere, for example below /opt")
		}
		if _, err := os.Stat(m.Source); err != nil {
			return problem.Wrap(err, problem.ConfigInvalid, "mount "+m.Path+": its source cannot be read", "check the path on this machine")
		}
	}
	return nil
}

// rootArgs mounts the read-only system folders of the host or of a folder.
func rootArgs(a []string, rootfs string, src *sources) ([]string, error) {
	root, names := "/", systemFolders
	if rootfs != "host" {
		entries, err := os.ReadDir(rootfs)
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "rootfs cannot be read", "name a folder that holds a root file system")
		}
		root, names = rootfs, nil
		for _, e := range entries {
			if !slices.Contains(ownFolders, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	for _, name := range names {
		path := filepath.Join(root, name)
		fi, err := os.Lstat(path)
		switch {
		case os.IsNotExist(err):
		case err != nil:
			return nil, fmt.Errorf("rootfs: %w", err)
		case fi.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return nil, fmt.Errorf("rootfs: %w", err)
			}
			a = append(a, "--symlink", target, "/"+name)
		case fi.IsDir() && root == "/":
			a = append(a, "--ro-bind", path, "/"+name) // reachable by every user
		case fi.IsDir():
			a = append(a, "--ro-bind", src.add(path), "/"+name)
		}
	}
	return a, nil
}

func procArgs(a []string) []string {
	a = append(a, "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
	for _, name := range maskedFolders {
		if fi, err := os.Stat("/proc/" + name); err == nil && fi.IsDir() {
			a = append(a, "--perms", "0555", "--size", "4096", "--tmpfs", "/proc/"+name, "--remount-ro", "/proc/"+name)
		}
	}
	for _, name := range maskedFiles {
		if _, err := os.Lstat("/proc/" + name); err == nil {
			a = append(a, "--ro-bind", "/dev/null", "/proc/"+name)
		}
	}
	return a
}

func rootOf(rootfs string) string {
	if rootfs == "host" {
		return "/"
	}
	return rootfs
}
