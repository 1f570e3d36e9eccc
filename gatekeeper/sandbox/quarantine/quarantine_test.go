//go:build linux

package quarantine_test

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's own checksum
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/sandbox/quarantine"
)

const none = "0000000000000000000000000000000000000000"

// TestFindings holds what an inspection reports against what was pushed.
func TestFindings(t *testing.T) {
	q := runner(t)
	branch := func(old, new string) []quarantine.Command {
		return []quarantine.Command{{Ref: "refs/heads/work", Old: old, New: new}}
	}
	type pushed struct {
		pack     []byte
		commands []quarantine.Command
	}
	cases := map[string]struct {
		push   func(r *repo) pushed
		want   quarantine.Report
		limits quarantine.Limits
		canary string
	}{
		"forward": {push: func(r *repo) pushed {
			old := r.git("rev-parse", "HEAD")
			tip := r.commit("docs/a.md", "a\n")
			return pushed{r.pack([]string{tip}, []string{old}), branch(old, tip)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{"docs/a.md"}, Objects: 4}},
		"first_push": {push: func(r *repo) pushed {
			tip := r.git("rev-parse", "HEAD")
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{"README", "src/main.go"}, Objects: 7}},
		"workflow_and_back": {push: func(r *repo) pushed { // the tip alone would not show it
			old := r.git("rev-parse", "HEAD")
			r.commit(".github/workflows/x.yml", "on: push\n")
			r.git("revert", "--no-edit", "HEAD")
			tip := r.git("rev-parse", "HEAD")
			return pushed{r.pack([]string{tip}, []string{old}), branch(old, tip)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{".github/workflows/x.yml"}, Objects: 6}},
		"EG-86_forced": {push: func(r *repo) pushed {
			first := r.git("rev-parse", "HEAD~1")
			old := r.git("rev-parse", "HEAD")
			r.git("checkout", "-q", "-b", "other", first)
			tip := r.commit("README", "rewritten\n")
			return pushed{r.pack([]string{tip}, []string{old, first}), branch(old, tip)}
		}, want: quarantine.Report{Forced: []bool{true}, Changed: []string{"README"}, Objects: 3}},
		"rewound": {push: func(r *repo) pushed { // no new object at all
			return pushed{nil, branch(r.git("rev-parse", "HEAD"), r.git("rev-parse", "HEAD~1"))}
		}, want: quarantine.Report{Forced: []bool{true}, Changed: []string{}}},
		"forward_over_what_is_there": {push: func(r *repo) pushed { // old lies behind a commit the repository has
			old := r.git("rev-parse", "HEAD")
			there := r.commit("middle", "m\n")
			there = r.commit("middle2", there)
			tip := r.commit("docs/a.md", "a\n")
			return pushed{r.pack([]string{tip}, []string{there}), branch(old, tip)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{"docs/a.md"}, Objects: 4}},
		"merge_brings_main": {push: func(r *repo) pushed { // what main changed is not the merge's change
			start := r.git("rev-parse", "HEAD")
			r.git("checkout", "-q", "-b", "work")
			old := r.commit("mine", "m\n")
			r.git("checkout", "-q", "main")
			theirs := r.commit(".github/workflows/x.yml", "on: push\n")
			r.git("checkout", "-q", "work")
			r.git("merge", "-q", "--no-edit", "main")
			tip := r.git("rev-parse", "HEAD")
			return pushed{r.pack([]string{tip}, []string{old, theirs, start}), branch(old, tip)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{}, Objects: 2}},
		"merge_changes_by_itself": {push: func(r *repo) pushed {
			r.git("checkout", "-q", "-b", "work")
			old := r.commit("mine", "m\n")
			r.git("checkout", "-q", "main")
			theirs := r.commit("theirs", "t\n")
			r.git("checkout", "-q", "work")
			r.git("merge", "-q", "--no-commit", "main")
			tip := r.commit(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = https://git.test/x\n")
			return pushed{r.pack([]string{tip}, []string{old, theirs}), branch(old, tip)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{".gitmodules"}, Objects: 3}},
		"moved_from_an_allowed_path": {push: func(r *repo) pushed { // the file itself is no new object
			old := r.commit("docs/x.yml", "on: push\n")
			r.git("mv", "docs", ".github")
			tip := r.commit("z", "z\n")
			return pushed{r.pack([]string{tip}, []string{old}), branch(old, tip)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{".github/x.yml", "docs/x.yml", "z"}, Objects: 3}},
		"M-21_unheld_tip": {push: func(r *repo) pushed { // the repository has it, and none of its branches
			r.known = []string{r.git("rev-parse", "HEAD")}
			return pushed{nil, branch(none, r.commit(".github/workflows/x.yml", "on: push\n"))}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{".github/workflows/x.yml"}}},
		"M-21_child_of_unheld": {push: func(r *repo) pushed {
			held := r.git("rev-parse", "HEAD")
			there := r.commit(".github/workflows/x.yml", "on: push\n")
			there = r.commit("b", there)
			tip := r.commit("a", "a\n")
			pack := r.pack([]string{tip}, []string{there})
			r.known = []string{held}
			return pushed{pack, branch(none, tip)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{".github/workflows/x.yml", "a", "b"}, Objects: 3}},
		"M-21_merge_of_unheld": {push: func(r *repo) pushed {
			held := r.git("rev-parse", "HEAD")
			r.git("checkout", "-q", "-b", "outsider")
			theirs := r.commit(".github/workflows/x.yml", "on: push\n")
			r.git("checkout", "-q", "main")
			old := r.commit("mine", "m\n")
			r.git("merge", "-q", "--no-edit", "outsider")
			tip := r.git("rev-parse", "HEAD")
			pack := r.pack([]string{tip}, []string{old, theirs})
			r.known = []string{held}
			return pushed{pack, branch(old, tip)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{".github/workflows/x.yml"}, Objects: 2}},
		"M-21_tag_of_unheld": {push: func(r *repo) pushed {
			held := r.git("rev-parse", "HEAD")
			there := r.commit(".github/workflows/x.yml", "on: push\n")
			r.git("tag", "-a", "-m", "x", "v1")
			pack := r.pack([]string{"v1"}, []string{there})
			r.known = []string{held}
			return pushed{pack, []quarantine.Command{{Ref: "refs/tags/v1", Old: none, New: r.git("rev-parse", "v1")}}}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{".github/workflows/x.yml"}, Objects: 1}},
		"M-21_nothing_in_common": {push: func(r *repo) pushed {
			r.known = []string{r.git("rev-parse", "HEAD")}
			r.git("checkout", "-q", "--orphan", "other")
			return pushed{nil, branch(none, r.commit("a", "a\n"))}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{"README", "a", "src/main.go"}}},
		"M-21_behind_a_branch": {push: func(r *repo) pushed { // the repository's own, however old
			r.commit(".github/workflows/x.yml", "on: push\n")
			at := r.commit("a", "a\n")
			r.known = []string{r.commit("b", "b\n")}
			return pushed{nil, branch(none, at)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{}}},
		"M-21_too_many_unheld": {push: func(r *repo) pushed {
			r.known = []string{r.git("rev-parse", "HEAD")}
			var in strings.Builder
			for n := range 257 {
				fmt.Fprintf(&in, "commit refs/heads/outsider\ncommitter t <t@example.com> %d +0000\ndata 1\nx\n", 1700000000+n)
				if n == 0 {
					fmt.Fprintln(&in, "from refs/heads/main")
				}
				fmt.Fprintf(&in, "M 100644 inline a\ndata %d\n%d\n", len(fmt.Sprint(n)), n)
			}
			r.in(in.String(), "fast-import", "--quiet")
			return pushed{nil, branch(none, r.git("rev-parse", "outsider"))}
		}, want: quarantine.Report{Refused: quarantine.Unheld}},
		"M-21_tag_to_a_blob": {push: func(r *repo) pushed {
			blob := r.in("x", "hash-object", "-w", "--stdin")
			return pushed{nil, []quarantine.Command{{Ref: "refs/tags/v1", Old: none, New: blob}}}
		}, want: quarantine.Report{Refused: quarantine.Unfit}},
		"deleted": {push: func(r *repo) pushed {
			return pushed{nil, branch(r.git("rev-parse", "HEAD"), none)}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{}}},
		"tag": {push: func(r *repo) pushed {
			old := r.git("rev-parse", "HEAD")
			r.git("tag", "-a", "-m", "x", "v1")
			tag := r.git("rev-parse", "v1")
			return pushed{r.pack([]string{"v1"}, []string{old}), []quarantine.Command{{Ref: "refs/tags/v1", Old: none, New: tag}}}
		}, want: quarantine.Report{Forced: []bool{false}, Changed: []string{}, Objects: 1}},
		"tag_moved": {push: func(r *repo) pushed {
			old := r.git("rev-parse", "HEAD")
			tip := r.commit("a", "a\n")
			return pushed{r.pack([]string{tip}, []string{old}), []quarantine.Command{{Ref: "refs/tags/v1", Old: old, New: tip}}}
		}, want: quarantine.Report{Forced: []bool{true}, Changed: []string{"a"}, Objects: 3}},
		"names_collide": {push: func(r *repo) pushed {
			old := r.git("rev-parse", "HEAD")
			r.commit("Docs/a", "a\n")
			tip := r.commit("docs/a", "b\n")
			return pushed{r.pack([]string{tip}, []string{old}), branch(old, tip)}
		}, want: quarantine.Report{Refused: quarantine.Colliding}},
		"names_collide_by_accent": {push: func(r *repo) pushed {
			old := r.git("rev-parse", "HEAD")
			r.commit("caf\u00e9", "a\n")
			tip := r.commit("cafe\u0301", "b\n")
			return pushed{r.pack([]string{tip}, []string{old}), branch(old, tip)}
		}, want: quarantine.Report{Refused: quarantine.Colliding}},
		"bad_fsck": {push: func(r *repo) pushed { // a folder named .git
			blob := r.in("x", "hash-object", "-w", "--stdin")
			tree := r.in("100644 blob "+blob+"\t.git\n", "mktree")
			tip := r.git("commit-tree", "-m", "x", tree)
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, want: quarantine.Report{Refused: quarantine.Broken}},
		"object_too_large": {push: func(r *repo) pushed {
			tip := r.commit("zeros", strings.Repeat("0", 3<<20))
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, limits: quarantine.Limits{Object: 1 << 20}, want: quarantine.Report{Refused: quarantine.TooLarge}},
		"bomb_of_many": {push: func(r *repo) pushed {
			r.commit("a", strings.Repeat("a", 900<<10))
			tip := r.commit("b", strings.Repeat("b", 900<<10))
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, limits: quarantine.Limits{Object: 1 << 20, Total: 1 << 20}, want: quarantine.Report{Refused: quarantine.TooLarge}},
		"bomb_of_zeros": {push: func(r *repo) pushed { // two megabytes, and half a gigabyte unpacked
			pack, id := zeros(513 << 20)
			return pushed{pack, branch(none, id)}
		}, want: quarantine.Report{Refused: quarantine.TooLarge}},
		"bomb_of_folders": {push: func(r *repo) pushed { // ten billion files in ten folders
			entry := "100644 blob " + r.in("x", "hash-object", "-w", "--stdin")
			for range 10 {
				var level strings.Builder
				for n := range 10 {
					fmt.Fprintf(&level, "%s\t%d\n", entry, n)
				}
				entry = "040000 tree " + r.in(level.String(), "mktree")
			}
			tip := r.git("commit-tree", "-m", "x", strings.Fields(entry)[2])
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, want: quarantine.Report{Refused: quarantine.TooMany}},
		"folders_too_deep": {push: func(r *repo) pushed {
			tip := r.file(strings.Repeat("a/", 2100) + "f")
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, want: quarantine.Report{Refused: quarantine.TooDeep}},
		"path_too_long": {push: func(r *repo) pushed {
			tip := r.file(strings.Repeat(strings.Repeat("a", 200)+"/", 21) + "f")
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, want: quarantine.Report{Refused: quarantine.TooMany}},
		"folder_too_large": {push: func(r *repo) pushed {
			var tree strings.Builder
			blob := strings.Repeat("x", 20)
			for n := range 1_000_000 {
				fmt.Fprintf(&tree, "100644 %07d\x00%s", n, blob)
			}
			id := r.in(tree.String(), "hash-object", "-w", "-t", "tree", "--stdin")
			return pushed{r.objects(id), branch(none, id)}
		}, want: quarantine.Report{Refused: quarantine.TooLarge}},
		"too_many_objects": {push: func(r *repo) pushed {
			tip := r.git("rev-parse", "HEAD")
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, limits: quarantine.Limits{Objects: 6}, want: quarantine.Report{Refused: quarantine.TooMany}},
		"too_many_paths": {push: func(r *repo) pushed {
			tip := r.git("rev-parse", "HEAD")
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, limits: quarantine.Limits{Paths: 1}, want: quarantine.Report{Refused: quarantine.TooMany}},
		"deep_delta": {push: func(r *repo) pushed {
			pack, tip := deepDelta(r, 30)
			return pushed{pack, branch(none, tip)}
		}, limits: quarantine.Limits{Depth: 20}, want: quarantine.Report{Refused: quarantine.TooDeep}},
		"junk_after_the_pack": {push: func(r *repo) pushed {
			tip := r.git("rev-parse", "HEAD")
			return pushed{append(r.pack([]string{tip}, nil), "junk"...), branch(none, tip)}
		}, want: quarantine.Report{Refused: quarantine.Broken}},
		"no_pack": {push: func(r *repo) pushed {
			return pushed{[]byte("PACK nonsense"), branch(none, r.git("rev-parse", "HEAD"))}
		}, want: quarantine.Report{Refused: quarantine.Broken}},
		"branch_to_a_blob": {push: func(r *repo) pushed {
			blob := r.in("x", "hash-object", "-w", "--stdin")
			pack := r.objects(blob)
			return pushed{pack, branch(none, blob)}
		}, want: quarantine.Report{Refused: quarantine.Unfit}},
		"canary": {push: func(r *repo) pushed {
			tip := r.commit("a", strings.Repeat("x", 300<<10)+"planted-value"+"y")
			return pushed{r.pack([]string{tip}, nil), branch(none, tip)}
		}, canary: "planted-value", want: quarantine.Report{Refused: quarantine.Canary}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if name == "bomb_of_zeros" && testing.Short() {
				t.Skip("short: unpacks half a gigabyte")
			}
			r := newRepo(t)
			p := c.push(r)
			question := quarantine.Question{Commands: p.commands, Limits: c.limits}
			if c.canary != "" {
				question.Canaries = []string{c.canary}
			}
			got, err := inspect(t, q, r, p.pack, question)
			if err != nil {
				t.Fatal(err)
			}
			if got.Refused != c.want.Refused {
				t.Fatalf("refused %q (%s), want %q", got.Refused, got.Detail, c.want.Refused)
			}
			got.Detail, got.Bytes = "", 0
			if c.want.Refused != "" {
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// zeros is a pack of one blob of nothing but zeros.
func zeros(n int64) (pack []byte, id string) {
	var b bytes.Buffer
	b.WriteString("PACK")
	_ = binary.Write(&b, binary.BigEndian, []uint32{2, 1})
	c := byte(3<<4 | n&15)
	for size := n >> 4; size > 0; size >>= 7 {
		b.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	b.WriteByte(c)
	z, _ := zlib.NewWriterLevel(&b, zlib.BestSpeed)
	sum := sha1.New() //nolint:gosec // git's own name
	fmt.Fprintf(sum, "blob %d\x00", n)
	block := make([]byte, 1<<20)
	for left := n; left > 0; left -= int64(len(block)) {
		_, _ = io.MultiWriter(z, sum).Write(block[:min(left, int64(len(block)))])
	}
	_ = z.Close()
	end := sha1.Sum(b.Bytes()) //nolint:gosec // git's own checksum
	b.Write(end[:])
	return b.Bytes(), fmt.Sprintf("%x", sum.Sum(nil))
}

// deepDelta writes a pack whose last blob lies n deltas deep, and a commit of it.
func deepDelta(r *repo, n int) (pack []byte, tip string) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 8)
	var b bytes.Buffer
	b.WriteString("PACK")
	_ = binary.Write(&b, binary.BigEndian, []uint32{2, uint32(n + 3)})
	object := func(kind byte, size int, ofs []byte, data []byte) {
		c := kind<<4 | byte(size&15)
		for size >>= 4; size > 0; size >>= 7 {
			b.WriteByte(c | 0x80)
			c = byte(size & 0x7f)
		}
		b.WriteByte(c)
		b.Write(ofs)
		z := zlib.NewWriter(&b)
		_, _ = z.Write(data)
		_ = z.Close()
	}
	last := b.Len()
	object(3, len(content), nil, content)
	for i := range n {
		// Copy all of the base, then one byte more.
		size := len(content) + 1
		delta := appendSize(nil, len(content))
		delta = appendSize(delta, size)
		delta = append(delta, 0xb0, byte(len(content)), byte(len(content)>>8), 1, byte('a'+i%26))
		content = append(content, byte('a'+i%26))
		at := b.Len()
		object(6, len(delta), offset(at-last), delta)
		last = at
	}
	blob := r.in(string(content), "hash-object", "-w", "--stdin")
	tree := r.in("100644 blob "+blob+"\tdeep\n", "mktree")
	tip = r.git("commit-tree", "-m", "deep", tree)
	for kind, id := range map[byte]string{2: tree, 1: tip} {
		name := map[byte]string{1: "commit", 2: "tree"}[kind]
		raw := r.raw("cat-file", name, id)
		object(kind, len(raw), nil, raw)
	}
	sum := sha1.Sum(b.Bytes()) //nolint:gosec // git's own checksum
	b.Write(sum[:])
	return b.Bytes(), tip
}

func appendSize(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// offset writes the distance to a base as packs do.
func offset(n int) []byte {
	out := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		out = append([]byte{byte(n&0x7f) | 0x80}, out...)
	}
	return out
}
