//go:build linux

package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// poisons are the ways in which an agent could change a file that it may only
// read, on the disk or in the kernel's page cache, for whoever reads it next.
var poisons = []struct {
	name string
	try  func(file string) error
}{
	{"open_rdwr", func(f string) error { return opened(f, unix.O_RDWR) }},
	{"open_append", func(f string) error { return opened(f, unix.O_WRONLY|unix.O_APPEND) }},
	{"open_trunc", func(f string) error { return opened(f, unix.O_WRONLY|unix.O_TRUNC) }},
	{"truncate", func(f string) error { return unix.Truncate(f, 0) }},
	{"chmod", func(f string) error { return os.Chmod(f, 0o777) }},
	{"utimes", func(f string) error { return unix.Utimes(f, []unix.Timeval{{Sec: 1}, {Sec: 1}}) }},
	{"setxattr", func(f string) error { return unix.Setxattr(f, "user.poison", []byte("x"), 0) }},
	{"unlink", func(f string) error { return unix.Unlink(f) }},
	{"rename_over", func(f string) error {
		own := filepath.Join(filepath.Dir(f), "poison")
		if err := os.WriteFile(own, []byte("poison"), 0o644); err != nil {
			return err
		}
		return os.Rename(own, f)
	}},
	{"link_out", func(f string) error { return os.Link(f, "/workspace/linked") }},
	{"reopen", func(f string) error {
		return readOnlyOf(f, func(fd int) error { return opened("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDWR) })
	}},
	{"shared_map", func(f string) error {
		return readOnlyOf(f, func(fd int) error {
			_, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			return err
		})
	}},
	{"mprotect", func(f string) error {
		return readOnlyOf(f, func(fd int) error {
			page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return nil // it must be readable
			}
			return unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE)
		})
	}},
	{"fallocate", func(f string) error {
		return readOnlyOf(f, func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 1) })
	}},
	{"remount", func(f string) error {
		return unix.Mount("", filepath.Dir(f), "", unix.MS_REMOUNT|unix.MS_BIND, "")
	}},
}

func opened(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte("poison"))
	_ = unix.Close(fd)
	return err
}

func readOnlyOf(path string, try func(fd int) error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // reported as done: a file that cannot be read proves nothing
	}
	defer unix.Close(fd)
	return try(fd)
}

// spliced writes into a pipe that holds a page of the file: on a kernel that
// gets this wrong the file's cached page changes, whoever may write it. The
// call itself succeeds, so that only the outside can tell.
func spliced(path string) {
	_ = readOnlyOf(path, func(fd int) error {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		defer unix.Close(pipe[0])
		defer unix.Close(pipe[1])
		// A pipe that was filled and drained once keeps the flag that says "append here".
		fill := make([]byte, 4096)
		for range 16 {
			_, _ = unix.Write(pipe[1], fill)
		}
		for range 16 {
			_, _ = unix.Read(pipe[0], fill)
		}
		var at int64
		if _, err := unix.Splice(fd, &at, pipe[1], nil, 1, 0); err != nil {
			return err
		}
		_, err := unix.Write(pipe[1], []byte("poison"))
		return err
	})
}

// poison is SB-46: it tries them all on one file and prints what happened,
// those that worked after "poisoned".
func poison(file string) int {
	var refused, done []string
	for _, p := range poisons {
		if err := p.try(file); err != nil {
			refused = append(refused, p.name+" "+name(err))
		} else {
			done = append(done, p.name)
		}
		_ = syscall.Chmod(file, 0o666) // for the next attempt, where this one is possible
		if _, err := os.Stat(file); err != nil {
			_ = os.WriteFile(file, make([]byte, 8192), 0o666)
		}
	}
	spliced(file)
	fmt.Printf("poisoned [%s] refused [%s]\n", strings.Join(done, ", "), strings.Join(refused, ", "))
	if len(done) > 0 {
		return exitEmpty
	}
	return exitDone
}
