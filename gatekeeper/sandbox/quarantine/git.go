//go:build linux

package quarantine

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// git is the one repository inside: its own folder, which holds nothing but
// links to the packs under inspection and their indexes.
type git struct{ dir string }

// configuration is all that git is told. Large blobs are not held in memory.
const configuration = `[core]
	repositoryformatversion = 0
	bare = true
	bigFileThreshold = 16m
	hooksPath = /dev/null
`

func newGit(workspace string) (git, error) {
	g := git{filepath.Join(workspace, "q.git")}
	for _, d := range []string{"objects/pack", "refs"} {
		if err := os.MkdirAll(filepath.Join(g.dir, d), 0o700); err != nil {
			return g, err
		}
	}
	return g, errors.Join(
		os.WriteFile(filepath.Join(g.dir, "HEAD"), []byte("ref: refs/heads/none\n"), 0o600),
		os.WriteFile(filepath.Join(g.dir, "config"), []byte(configuration), 0o600))
}

// memory bounds the address space of each git, in KiB: a pack says by itself
// how much it wants.
const memory = "3145728"

// command is git with nothing of its surroundings.
func (g git) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", append([]string{"-c", "ulimit -v " + memory + `; exec git "$@"`, "git"}, args...)...)
	cmd.Dir = g.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C", "GIT_DIR=" + g.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_TERMINAL_PROMPT=0",
	}
	return cmd
}

// index makes a pack part of the repository.
func (g git) index(pack, name string, fsck bool) error {
	at := filepath.Join(g.dir, "objects", "pack", "pack-"+name)
	args := []string{"index-pack"}
	if fsck {
		args = append(args, "--fsck-objects")
	}
	cmd := g.command(append(args, "-o", at+".idx", pack)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		if !fsck {
			return fmt.Errorf("index a pack of the repository: %w: %s", err, lastLine(said.String()))
		}
		return refused(Broken, "%s", lastLine(said.String()))
	}
	return os.Symlink(pack, at+".pack")
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

type object struct {
	id, kind, base string
	size           int64
}

// objects lists every object of the packs; most bounds how many, 0 = nothing.
func (g git) objects(most int) ([]object, error) {
	cmd := g.command("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname) %(objecttype) %(objectsize) %(deltabase)")
	var all []object
	err := piped(cmd, nil, func(out *bufio.Reader) error {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			f := strings.Fields(lines.Text())
			if len(f) != 4 {
				return fmt.Errorf("unexpected line of cat-file: %q", lines.Text())
			}
			size, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				return err
			}
			if all = append(all, object{id: f[0], kind: f[1], size: size, base: f[3]}); most > 0 && len(all) > most {
				return refused(TooMany, "more than %d objects", most)
			}
		}
		return lines.Err()
	})
	return all, err
}

// contents hands every object to f.
func (g git) contents(ids []string, f func(id string, content []byte) error) error {
	return g.stream(ids, func(id string, size int64, r io.Reader) error {
		content := make([]byte, size)
		if _, err := io.ReadFull(r, content); err != nil {
			return err
		}
		return f(id, content)
	})
}

// stream hands every object to f as a reader of exactly its bytes.
func (g git) stream(ids []string, f func(id string, size int64, r io.Reader) error) error {
	if len(ids) == 0 {
		return nil
	}
	return piped(g.command("cat-file", "--batch", "--buffer"), ids, func(out *bufio.Reader) error {
		for range ids {
			line, err := out.ReadString('\n')
			if err != nil {
				return err
			}
			head := strings.Fields(line)
			if len(head) != 3 {
				return refused(Missing, "%s", strings.TrimSpace(line))
			}
			size, err := strconv.ParseInt(head[2], 10, 64)
			if err != nil {
				return err
			}
			content := &io.LimitedReader{R: out, N: size}
			if err := f(head[0], size, content); err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, content); err != nil {
				return err
			}
			if _, err := out.Discard(1); err != nil {
				return err
			}
		}
		return nil
	})
}

// maxPath bounds one path: no file system takes a longer one.
const maxPath = 4096

// changed lists the paths that commits change; most bounds how many different
// ones, so that what a pack unfolds to is never held whole.
func (g git) changed(commits []string, most int) ([]string, error) {
	cmd := g.command("diff-tree", "--stdin", "--root", "-r", "-c", "--name-only", "--no-renames", "--no-commit-id", "-z")
	seen := make(map[string]struct{})
	err := piped(cmd, commits, func(out *bufio.Reader) error {
		paths := bufio.NewScanner(out)
		paths.Buffer(make([]byte, 0, maxPath), maxPath+1)
		paths.Split(func(data []byte, end bool) (int, []byte, error) {
			if n := bytes.IndexByte(data, 0); n >= 0 {
				return n + 1, data[:n], nil
			}
			if end && len(data) > 0 {
				return 0, nil, errors.New("diff-tree broke off")
			}
			return 0, nil, nil
		})
		for paths.Scan() {
			if seen[paths.Text()] = struct{}{}; len(seen) > most {
				return refused(TooMany, "the push changes more than %d paths", most)
			}
		}
		if errors.Is(paths.Err(), bufio.ErrTooLong) {
			return refused(TooMany, "a path has more than %d bytes", maxPath)
		}
		return paths.Err()
	})
	return slices.Sorted(maps.Keys(seen)), err
}

// piped runs a command that reads ids and hands its output to f.
func piped(cmd *exec.Cmd, ids []string, f func(*bufio.Reader) error) error {
	if len(ids) > 0 {
		cmd.Stdin = strings.NewReader(strings.Join(ids, "\n") + "\n")
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = f(bufio.NewReaderSize(out, 64<<10))
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("git %s: %w: %s", cmd.Args[4], err, lastLine(said.String()))
	}
	return nil
}

// folder is what a tree holds, as far as it matters how much that unfolds to.
type folder struct {
	trees []string // ids of those in it
	files int
}

// readTree refuses a folder with two names that a file system may take for one:
// by case, or by the way accents are written.
func readTree(id string, tree []byte) (folder, error) {
	var f folder
	fold := cases.Fold()
	seen := make(map[string]struct{})
	for len(tree) > 0 {
		mode, rest, ok := bytes.Cut(tree, []byte(" "))
		name, after, ok2 := bytes.Cut(rest, []byte{0})
		if !ok || !ok2 || len(after) < 20 {
			return f, refused(Broken, "tree %s", id)
		}
		key := fold.String(norm.NFC.String(string(name)))
		if _, twice := seen[key]; twice {
			return f, refused(Colliding, "tree %s: %q", id, name)
		}
		seen[key] = struct{}{}
		if string(mode) == "40000" {
			f.trees = append(f.trees, hex.EncodeToString(after[:20]))
		} else {
			f.files++
		}
		tree = after[20:]
	}
	return f, nil
}

// folders are the trees of the push by id.
type folders map[string]folder

// maxFolders bounds folders within folders: with names of one letter, a path of
// more than maxPath bytes.
const maxFolders = maxPath / 2

// unfolded refuses trees that hold more than most files in all, when each is
// looked into wherever it stands: ten folders that hold ten folders each ten times
// over take a kilobyte, and no time or memory is enough for their files.
func (f folders) unfolded(most int) error {
	type size struct{ files, deep int }
	sizes := make(map[string]size, len(f))
	var of func(id string, level int) (size, error)
	of = func(id string, level int) (size, error) {
		if n, ok := sizes[id]; ok {
			return n, nil
		}
		one, here := f[id]
		if !here {
			return size{files: 1}, nil // the repository's own
		}
		n := size{files: one.files}
		for _, t := range one.trees {
			if level >= maxFolders { // where this began may lie within others
				return n, refused(TooDeep, "folders lie more than %d deep", maxFolders)
			}
			below, err := of(t, level+1)
			if err != nil {
				return n, err
			}
			n.files, n.deep = n.files+below.files, max(n.deep, below.deep+1)
			switch {
			case n.files > most:
				return n, refused(TooMany, "the folders unfold to more than %d files", most)
			case n.deep > maxFolders:
				return n, refused(TooDeep, "folders lie more than %d deep", maxFolders)
			}
		}
		sizes[id] = n
		return n, nil
	}
	for id := range f {
		if _, err := of(id, 0); err != nil {
			return err
		}
	}
	return nil
}

// canaries looks for planted values in every object.
func (i *inspection) canaries(objects []object) error {
	longest := 0
	for _, c := range i.q.Canaries {
		longest = max(longest, len(c))
	}
	if longest == 0 {
		return nil
	}
	ids := make([]string, len(objects))
	for n, o := range objects {
		ids[n] = o.id
	}
	buf := make([]byte, 256<<10)
	return i.git.stream(ids, func(id string, _ int64, r io.Reader) error {
		held := 0
		for {
			n, err := r.Read(buf[held:])
			window := buf[:held+n]
			for _, c := range i.q.Canaries {
				if c != "" && bytes.Contains(window, []byte(c)) {
					return refused(Canary, "object %s", id)
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			held = copy(buf, window[max(0, len(window)-longest+1):])
		}
	})
}
