//go:build linux

package quarantine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// role is argv[1] of the program inside.
const role = "inspect"

// Main plays the part inside when argv asks for it, and reports whether it did.
// argv[0] must be sandbox.InitPath, which exists inside sandboxes only.
func Main(argv []string) (exit int, ok bool) {
	if len(argv) != 2 || argv[0] != sandbox.InitPath || argv[1] != role {
		return 0, false
	}
	i := &inspection{dir: mount, out: json.NewEncoder(os.Stdout)}
	report, err := i.run()
	var no *refusal
	switch {
	case errors.As(err, &no):
		report = Report{Refused: no.code, Detail: no.detail}
	case err != nil:
		fmt.Fprintln(os.Stderr, "inspect:", err)
		return 1, true
	}
	if err := i.out.Encode(message{Report: &report}); err != nil {
		return 1, true
	}
	return 0, true
}

// refusal ends an inspection: the pack is at fault, not the inspection.
type refusal struct{ code, detail string }

func (r *refusal) Error() string { return r.code + ": " + r.detail }

func refused(code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// inspection is one run inside.
type inspection struct {
	dir     string // the shared folder
	out     *json.Encoder
	q       Question
	git     git
	bases   int
	parents map[string][]string // of every commit at hand
	types   map[string]string   // of every object of the push
	commits []string            // of the push
	unheld  []string            // that the repository has, and none of its branches and tags
}

func (i *inspection) run() (Report, error) {
	raw, err := os.ReadFile(filepath.Join(i.dir, questionFile))
	if err != nil {
		return Report{}, err
	}
	if err := json.Unmarshal(raw, &i.q); err != nil {
		return Report{}, err
	}
	i.q.Limits = i.q.Limits.or()
	i.parents, i.types = make(map[string][]string), make(map[string]string)
	if i.git, err = newGit(sandbox.Workspace); err != nil {
		return Report{}, err
	}
	var r Report
	if i.q.Pack {
		if r, err = i.unpack(); err != nil {
			return r, err
		}
	}
	if err := i.fetchUnheld(); err != nil {
		return r, err
	}
	if err := i.fetchBoundary(); err != nil {
		return r, err
	}
	r.Forced = make([]bool, len(i.q.Commands))
	for n, c := range i.q.Commands {
		if r.Forced[n], err = i.forced(c); err != nil {
			return r, err
		}
	}
	r.Changed, err = i.changed()
	return r, err
}

// maxHeld bounds what is held whole: a folder, a commit, a tag.
const maxHeld = 32 << 20

// unpack indexes the pack with fsck and holds every object against the limits.
func (i *inspection) unpack() (Report, error) {
	if err := i.git.index(filepath.Join(i.dir, PackFile), "push", true); err != nil {
		return Report{}, err
	}
	objects, err := i.git.objects(i.q.Limits.Objects)
	if err != nil {
		return Report{}, err
	}
	r := Report{Objects: len(objects)}
	depth := make(map[string]int, len(objects))
	base := make(map[string]string)
	var trees []string
	for _, o := range objects {
		i.types[o.id] = o.kind
		r.Bytes += o.size
		switch {
		case o.size > i.q.Limits.Object, o.kind != "blob" && o.size > maxHeld:
			return r, refused(TooLarge, "object %s has %d bytes", o.id, o.size)
		case r.Bytes > i.q.Limits.Total:
			return r, refused(TooLarge, "the objects have more than %d bytes", i.q.Limits.Total)
		}
		switch o.kind {
		case "commit":
			i.commits = append(i.commits, o.id)
		case "tree":
			trees = append(trees, o.id)
		}
		if strings.Trim(o.base, "0") != "" {
			base[o.id] = o.base
		}
	}
	for id := range base {
		if n := chain(id, base, depth, i.q.Limits.Depth); n > i.q.Limits.Depth {
			return r, refused(TooDeep, "object %s lies more than %d deltas deep", id, i.q.Limits.Depth)
		}
	}
	if err := i.readCommits(i.commits); err != nil {
		return r, err
	}
	all := make(folders, len(trees))
	err = i.git.contents(trees, func(id string, content []byte) (err error) {
		all[id], err = readTree(id, content)
		return err
	})
	if err != nil {
		return r, err
	}
	if err := all.unfolded(i.q.Limits.Objects); err != nil {
		return r, err
	}
	return r, i.canaries(objects)
}

// chain returns how many deltas lie under id; what was found stays in depth.
func chain(id string, base map[string]string, depth map[string]int, most int) int {
	var path []string
	n := 0
	for at := id; ; at = base[at] {
		if d, ok := depth[at]; ok {
			n = d
			break
		}
		if _, ok := base[at]; !ok {
			break
		}
		if path = append(path, at); len(path) > most+1 {
			return most + 1
		}
	}
	for _, at := range slices.Backward(path) {
		n++
		depth[at] = n
	}
	return n
}

func (i *inspection) readCommits(ids []string) error {
	return i.git.contents(ids, func(id string, content []byte) error {
		i.parents[id] = parentsOf(content)
		return nil
	})
}

// parentsOf reads the parent lines of a commit that passed fsck.
func parentsOf(content []byte) []string {
	parents := []string{}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			break
		}
		if id, ok := strings.CutPrefix(line, "parent "); ok {
			parents = append(parents, id)
		}
	}
	return parents
}

// maxBoundary bounds how many commits of the repository one push may build on.
const maxBoundary = 256

// fetchUnheld asks for the commits that the push would make part of a branch and
// that are neither in it nor behind a branch or tag of the repository: a host
// keeps commits of pull requests and of deleted branches too, and whoever wrote
// those, the session would be the one to publish them (M-21).
func (i *inspection) fetchUnheld() error {
	known := make(map[string]bool, len(i.q.Known))
	for _, id := range i.q.Known {
		known[id] = true
	}
	var want []string
	add := func(id string) error {
		if _, have := i.parents[id]; have || known[id] || slices.Contains(want, id) {
			return nil
		}
		if want = append(want, id); len(want) > maxBoundary {
			return refused(TooMany, "the push builds on more than %d commits", maxBoundary)
		}
		return nil
	}
	for _, c := range i.q.Commands {
		if zeros(c.New) {
			continue
		}
		tip, err := i.peel(c.New)
		if err != nil {
			return err
		}
		if kind, ok := i.types[tip]; ok && kind != "commit" {
			return refused(Unfit, "%s would be a %s", c.Ref, kind)
		}
		if err := add(tip); err != nil {
			return err
		}
	}
	for _, id := range i.commits {
		for _, p := range i.parents[id] {
			if err := add(p); err != nil {
				return err
			}
		}
	}
	if len(want) == 0 {
		return nil
	}
	slices.Sort(want)
	fresh, err := i.ask(Need{Want: want, Unheld: true})
	if err != nil {
		return err
	}
	if len(fresh) > maxBoundary {
		return refused(Unheld, "the push builds on more than %d commits that no branch or tag holds", maxBoundary)
	}
	i.unheld = fresh
	return nil
}

// fetchBoundary asks for the commits that the new ones build on, and for the
// folders of those that are new to every branch.
func (i *inspection) fetchBoundary() error {
	want := slices.Clone(i.unheld)
	own := make(map[string]bool, len(i.commits))
	for _, id := range i.commits {
		own[id] = true
	}
	for _, id := range slices.Concat(i.commits, i.unheld) {
		for _, p := range i.parents[id] {
			if own[p] || slices.Contains(want, p) {
				continue
			}
			if want = append(want, p); len(want) > maxBoundary {
				return refused(TooMany, "the push builds on more than %d commits", maxBoundary)
			}
		}
	}
	if len(want) == 0 {
		return nil
	}
	slices.Sort(want)
	_, err := i.ask(Need{Want: want})
	return err
}

// ask has a pack of the repository's own objects brought, reads its commits, and
// returns those that were not at hand.
func (i *inspection) ask(n Need) ([]string, error) {
	i.bases++
	name := fmt.Sprintf("base-%d", i.bases)
	if err := i.out.Encode(message{Need: &n}); err != nil {
		return nil, err
	}
	// The folder is written from outside; there is no other way to be told.
	for {
		if _, err := os.Stat(filepath.Join(i.dir, name+".ready")); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := i.git.index(filepath.Join(i.dir, name+".pack"), name, false); err != nil {
		return nil, err
	}
	objects, err := i.git.objects(0)
	if err != nil {
		return nil, err
	}
	var fresh []string
	for _, o := range objects {
		if n.Unheld && (o.kind == "tree" || o.kind == "blob") && slices.Contains(n.Want, o.id) {
			return nil, refused(Unfit, "%s is a %s of the repository", o.id, o.kind)
		}
		if _, have := i.parents[o.id]; o.kind == "commit" && !have {
			fresh = append(fresh, o.id)
		}
	}
	if err := i.readCommits(fresh); err != nil {
		return nil, err
	}
	for _, id := range n.Want {
		// History leaves out what the old commit leads to: such a commit is behind it.
		if _, ok := i.parents[id]; !ok && !n.History && !n.Unheld {
			return nil, refused(Missing, "commit %s is neither in the push nor in the repository", id)
		}
	}
	return fresh, nil
}

// forced reports whether a command would lose commits.
func (i *inspection) forced(c Command) (bool, error) {
	if zeros(c.New) {
		return false, nil
	}
	tip, err := i.peel(c.New)
	if err != nil {
		return false, err
	}
	if strings.HasPrefix(c.Ref, "refs/heads/") {
		if kind, ok := i.types[c.New]; ok && kind != "commit" {
			return false, refused(Unfit, "%s would be a %s", c.Ref, kind)
		}
	}
	if zeros(c.Old) {
		return false, nil
	}
	if strings.HasPrefix(c.Ref, "refs/tags/") {
		return true, nil // a tag is not expected to move at all
	}
	reached, open := i.reach(tip, c.Old)
	if reached || len(open) == 0 {
		return !reached, nil
	}
	// What is at hand ends before the old commit was met: the repository knows
	// whether it is further back.
	if len(open) > maxBoundary {
		return false, refused(TooMany, "the push builds on more than %d commits", maxBoundary)
	}
	if _, err := i.ask(Need{Want: open, Have: []string{c.Old}, History: true}); err != nil {
		return false, err
	}
	reached, _ = i.reach(tip, c.Old)
	return !reached, nil
}

// reach walks from a commit to its ancestors and reports whether old is one of
// them, and where what is at hand ends.
func (i *inspection) reach(from, old string) (reached bool, open []string) {
	seen := map[string]bool{from: true}
	queue := []string{from}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		if id == old {
			return true, nil
		}
		parents, have := i.parents[id]
		if !have {
			open = append(open, id)
			continue
		}
		for _, p := range parents {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	slices.Sort(open)
	return false, open
}

// peel follows tags of the push to what they name.
func (i *inspection) peel(id string) (string, error) {
	for range 16 {
		if i.types[id] != "tag" {
			return id, nil
		}
		next := ""
		err := i.git.contents([]string{id}, func(_ string, content []byte) error {
			first, _, _ := strings.Cut(string(content), "\n")
			next = strings.TrimPrefix(first, "object ")
			return nil
		})
		if err != nil {
			return "", err
		}
		id = next
	}
	return "", refused(TooDeep, "tags upon tags")
}

// changed lists the paths that the commits change that are new to every branch: against their parent,
// or, for a merge, against every parent, so that what a merge brings unchanged
// from one side is not its own change.
func (i *inspection) changed() ([]string, error) {
	commits := slices.Concat(i.commits, i.unheld)
	if len(commits) == 0 {
		return []string{}, nil
	}
	paths, err := i.git.changed(commits, i.q.Limits.Paths)
	if paths == nil {
		paths = []string{}
	}
	return paths, err
}

func zeros(id string) bool { return strings.Trim(id, "0") == "" }
