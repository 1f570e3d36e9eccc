//go:build linux

package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// maxEntries bounds the walk through each mount.
const maxEntries = 100_000

// unlooked are not walked: the kernel's own, and the system's folders, which are
// large and root's.
var unlooked = []string{"", "proc", "dev", "sys", "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix"}

var errEnough = errors.New("enough")

// mountedSockets is SB-16 for what a bundle mounts and a root file system
// brings: a read-only mount keeps nobody from connecting to a socket in it or
// from writing into a pipe, and either is a way out that no door sees. The
// session's own door is the control.
func mountedSockets(p *place) verdict {
	mounts, err := mountInfo()
	if err != nil {
		return failed("could not run: %v", err)
	}
	seen, door, found, cut := 0, false, "", ""
	for _, m := range mounts {
		first, _, _ := strings.Cut(strings.TrimPrefix(m.at, "/"), "/")
		if slices.Contains(unlooked, first) {
			continue
		}
		here := 0
		_ = filepath.WalkDir(m.at, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // what cannot be listed cannot be opened by name either
			}
			seen++
			if here++; here > maxEntries {
				cut = m.at
				return errEnough
			}
			switch {
			case d.Type()&(fs.ModeSocket|fs.ModeNamedPipe) == 0:
			case path == sandbox.DoorPath:
				door = true
			case path == sandbox.CallPath && answersNobody(path): // of a container, closed once PID 1 had called
			case errors.Is(unix.Access(path, unix.W_OK), unix.EACCES):
			default:
				found = path
				return errEnough
			}
			return nil
		})
		if found != "" {
			return failed("%s is open to the agent", found)
		}
	}
	switch {
	case p.Door && !door:
		return failed("could not run: the walk did not meet the door")
	case seen == 0:
		return failed("could not run: nothing is mounted")
	}
	said := fmt.Sprintf("none in %d files", seen)
	if cut != "" {
		said += fmt.Sprintf("; of %s the first %d were looked at", cut, maxEntries)
	}
	return passed("%s", said)
}
