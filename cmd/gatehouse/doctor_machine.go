package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/internal/config"
)

// Space on the disk of the state folder: the journal's reserve, a segment and the
// NATS store need the first to go on, the second to be at ease.
const (
	diskLeast = 256 << 20
	diskEase  = 4 << 30
)

// examineMachine reads what the kernel and the disk allow. It changes nothing.
func examineMachine(cfg *config.Config) []finding {
	groups, _ := os.Getgroups()
	return slices.Concat(checkNamespaces("/"), checkGroups(os.Geteuid(), os.Getegid(), groups), checkSeccomp("/"), checkClock(), checkDisk(cfg.StateDir()))
}

// checkGroups names the groups that sessions of an ordinary user keep. A user
// namespace that is made without privileges cannot drop them (the kernel refuses
// setgroups there), and files that are visible inside are still judged by them.
// A root node's sessions have none.
func checkGroups(uid, gid int, groups []int) []finding {
	var kept []string
	for _, g := range groups {
		if g == gid || uid == 0 {
			continue
		}
		name := strconv.Itoa(g)
		if known, err := user.LookupGroupId(name); err == nil {
			name = known.Name
		}
		kept = append(kept, name)
	}
	if len(kept) == 0 {
		return nil
	}
	return []finding{{"groups", levelWarn, "sessions keep this user's groups " + strings.Join(kept, ", ") + ": what is shown inside and open to one of them alone can be read there",
		"run the node as root, or as a user of its own that is in no other group"}}
}

// setting reads a file of one line below root, "" when there is none.
func setting(root, name string) string {
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// checkNamespaces reads the switches that close user namespaces, and AppArmor's.
func checkNamespaces(root string) []finding {
	userns := finding{"namespaces", levelOK, "user namespaces are open", ""}
	switch {
	case setting(root, "proc/sys/user/max_user_namespaces") == "0":
		userns = finding{"namespaces", levelFail, "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"}
	case setting(root, "proc/sys/kernel/unprivileged_userns_clone") == "0":
		userns = finding{"namespaces", levelFail, "kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1"}
	}
	apparmor := finding{"apparmor", levelOK, "AppArmor does not restrict user namespaces here", ""}
	if setting(root, "proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
		// Readable by root only: the live probe has the last word.
		if strings.Contains(setting(root, "sys/kernel/security/apparmor/profiles"), "gatehouse-bwrap") {
			apparmor.Detail = "AppArmor restricts user namespaces, and the profile gatehouse-bwrap opens them"
		} else {
			apparmor = finding{"apparmor", levelWarn, "AppArmor restricts user namespaces, and no profile gatehouse-bwrap is seen", "install deploy/apparmor/gatehouse-bwrap with a private copy of bwrap"}
		}
	}
	return []finding{userns, apparmor}
}

// checkSeccomp asks for the two actions that the sandbox's filter takes.
func checkSeccomp(root string) []finding {
	actions := strings.Fields(setting(root, "proc/sys/kernel/seccomp/actions_avail"))
	if slices.Contains(actions, "kill_process") && slices.Contains(actions, "errno") {
		return []finding{{"seccomp", levelOK, "the kernel filters system calls", ""}}
	}
	return []finding{{"seccomp", levelFail, "the kernel filters no system calls", "use a kernel with CONFIG_SECCOMP_FILTER, Linux 5.9 or newer"}}
}

// checkClock asks the kernel whether anything keeps its clock. Receipts state the
// node's own time, and senders' stamps are judged by it.
func checkClock() []finding {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		return []finding{{"clock", levelWarn, "the kernel does not say whether the clock is kept: " + err.Error(), "run a time service: chrony or systemd-timesyncd"}}
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		return []finding{{"clock", levelWarn, "nothing keeps the clock; it says " + time.Now().UTC().Format(time.RFC3339), "run a time service: chrony or systemd-timesyncd"}}
	}
	return []finding{{"clock", levelOK, fmt.Sprintf("kept, within %s", time.Duration(t.Maxerror)*time.Microsecond), ""}}
}

// Magic numbers of file systems that forget (statfs(2)).
const (
	magicTmpfs  = 0x01021994
	magicRamfs  = 0x858458f6
	magicNFS    = 0x6969
	magicSMB2   = 0xfe534d42
	magicFUSE   = 0x65735546
	magicOvl    = 0x794c7630
	fixDiskKind = "put the state folder on a local disk: ext4, xfs or btrfs"
)

// checkDisk looks at the disk below the state folder, or its nearest parent.
func checkDisk(dir string) []finding {
	var fs unix.Statfs_t
	at := dir
	for {
		err := unix.Statfs(at, &fs)
		if err == nil {
			break
		}
		if parent := filepath.Dir(at); errors.Is(err, unix.ENOENT) && parent != at {
			at = parent
			continue
		}
		return []finding{{"disk", levelFail, fmt.Sprintf("couldn't look at the disk of %s: %v", dir, err), "make the state folder readable"}}
	}
	free := int64(fs.Bavail) * fs.Bsize
	f := finding{"disk", levelOK, fmt.Sprintf("%d MiB free", free>>20), ""}
	switch {
	case fs.Flags&unix.ST_RDONLY != 0:
		f.Level, f.Detail, f.Fix = levelFail, "read-only", "mount it for writing; look for disk errors first"
	case free < diskLeast || fs.Files > 0 && fs.Ffree < 1000:
		f.Level, f.Fix = levelFail, fmt.Sprintf("free space and inodes: the node stops taking deliveries; %d MiB is the least", int64(diskLeast)>>20)
	case free < diskEase:
		f.Level, f.Fix = levelWarn, "give the state folder a disk of its own with some GiB: see docs/operations.md"
	}
	switch int64(fs.Type) { //nolint:unconvert // the type differs by platform
	case magicTmpfs, magicRamfs:
		f = worse(f, finding{"disk", levelWarn, f.Detail + ", in memory: nothing of it outlives a reboot", fixDiskKind})
	case magicNFS, magicSMB2, magicFUSE:
		f = worse(f, finding{"disk", levelWarn, f.Detail + ", on a network or user-space file system: durability is its promise, not the node's", fixDiskKind})
	case magicOvl:
		f = worse(f, finding{"disk", levelWarn, f.Detail + ", in a container's own layer: it goes with the container", "mount a volume for the state folder"})
	}
	return []finding{f}
}

func worse(a, b finding) finding {
	if a.Level == levelFail {
		return a
	}
	return b
}

// checkPorts tries the three addresses. A running node holds them itself.
func checkPorts(cfg *config.Config, running bool) []finding {
	if running {
		return []finding{{"ports", levelOK, "held by the running node", ""}}
	}
	var taken []string
	for name, addr := range map[string]string{"hooks": cfg.Listen.Hooks, "operator": cfg.Listen.Operator, "private": cfg.Listen.Private} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			taken = append(taken, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		_ = l.Close()
	}
	if len(taken) > 0 {
		slices.Sort(taken)
		return []finding{{"ports", levelFail, strings.Join(taken, "; "), "choose other addresses under listen:, or stop what holds them"}}
	}
	return []finding{{"ports", levelOK, strings.Join([]string{cfg.Listen.Hooks, cfg.Listen.Operator, cfg.Listen.Private}, ", ") + " are free", ""}}
}
