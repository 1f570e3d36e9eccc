package receipts_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/receipts"
)

var update = flag.Bool("update", false, "write testdata/vectors anew")

const vectorDir = "testdata/vectors"

// verdict is one line of verdicts.json: how to read a file, and what a verifier
// must say.
type verdict struct {
	Name       string         `json:"name"`
	File       string         `json:"file"`
	Root       string         `json:"root"`
	Session    string         `json:"session,omitempty"`
	Checkpoint string         `json:"checkpoint,omitempty"` // file
	MaxAge     int            `json:"max_age_seconds"`
	Now        time.Time      `json:"now"`
	Exit       receipts.Exit  `json:"exit"`
	Class      receipts.Class `json:"class"`
}

// vectors makes all vector files.
func vectors(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	w, end := story(t)
	leaves := map[string]string{}
	for typ, r := range oneOfEach() {
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		name := "receipts/" + string(typ) + ".json"
		files[name], leaves[name] = b, receipts.Leaf(b).String()
	}
	files["receipts/leaves.json"] = indent(t, leaves)
	s := w.groups[3].seal
	files["notes/keyset.note"] = w.note
	files["notes/checkpoint.note"] = end.note
	files["notes/seal.note"] = s.Note()
	files["notes/seal.line"] = s.Encode()
	files["values.json"] = indent(t, values(t, w, end, s))
	maps.Copy(files, verdictFiles(t))
	return files
}

// values are single results that an implementation can compare step by step.
func values(t *testing.T, w *world, end ending, s *receipts.Seal) map[string]any {
	t.Helper()
	head, err := receipts.ProveHead(end.heads, sessionC)
	if err != nil {
		t.Fatal(err)
	}
	label := receipts.CommitKey(sessionKey, "path")
	leaf := receipts.Leaf(w.groups[3].leaves[2].data)
	return map[string]any{
		"origin":           origin,
		"root_fingerprint": w.fingerprint(),
		"root_key_id":      w.ks.Root.ID(),
		"keyset_digest":    w.ks.Digest().String(),
		"genesis":          map[string]string{"log": origin, "session": sessionA, "keyset": w.ks.Digest().String(), "hash": receipts.Genesis(origin, sessionA, w.ks.Digest()).String()},
		"seal":             map[string]any{"file": "notes/seal.line", "hash": s.Hash().String(), "header_of_leaf_2": s.Header(2), "leaf_2": leaf.String()},
		"checkpoint":       map[string]any{"file": "notes/checkpoint.note", "time": w.now.Truncate(time.Second)},
		"heads": map[string]any{
			"session": head.Session, "seq": head.Seq, "leaf": head.Leaf.String(), "closed": head.Closed, "root": receiptsRoot(t, end.heads),
		},
		"commitment": map[string]string{
			"session_key_hex": hex.EncodeToString(sessionKey), "label": "path", "label_key_hex": hex.EncodeToString(label[:]),
			"value": requestPath, "commitment": receipts.Commit(label, []byte(requestPath)).String(),
		},
	}
}

func receiptsRoot(t *testing.T, heads []receipts.Head) string {
	t.Helper()
	h, err := receipts.HeadsRoot(slices.Clone(heads))
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}

// verdictFiles writes every tamper and verify case as a file with its verdict.
func verdictFiles(t *testing.T) map[string][]byte {
	t.Helper()
	groups := tamperings(t)
	groups["verify"] = verifyCases(t)
	files := map[string][]byte{}
	put := func(name string, b []byte) string {
		files[name] = b
		return name
	}
	var list []verdict
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		for _, name := range slices.Sorted(maps.Keys(groups[g])) {
			tc := groups[g][name]
			if len(tc.file) > 48<<10 || tc.o.MaxBytes != 0 {
				continue // limits that every implementation sets for itself
			}
			slug := strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "_")
			v := verdict{
				Name: g + "/" + slug, File: put("exports/"+slug+".export", tc.file), Root: tc.o.Root, Session: tc.o.Session,
				MaxAge: int(receipts.DefaultMaxAge.Seconds()), Now: tc.o.Now, Exit: tc.exit, Class: tc.class,
			}
			if tc.o.Checkpoint != nil {
				v.Checkpoint = put("checkpoints/"+slug+".note", tc.o.Checkpoint)
			}
			list = append(list, v)
		}
	}
	files["verdicts.json"] = indent(t, list)
	return files
}

func indent(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestVectors: the files in testdata/vectors are what this package makes, and
// read from disk they get the verdicts that stand beside them, from both
// verifiers.
func TestVectors(t *testing.T) {
	made := vectors(t)
	if *update {
		writeVectors(t, made)
	}
	for name, b := range made {
		got, err := os.ReadFile(filepath.Join(vectorDir, name))
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s is not what is made now (run with -update and look at the difference): %v", name, err)
		}
	}
	for _, dir := range []string{"receipts", "notes", "exports", "checkpoints"} {
		entries, err := os.ReadDir(filepath.Join(vectorDir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if _, ok := made[dir+"/"+e.Name()]; !ok {
				t.Errorf("%s/%s is made by nothing", dir, e.Name())
			}
		}
	}
	var list []verdict
	read(t, "verdicts.json", func(b []byte) {
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatal(err)
		}
	})
	other := newTypeScript(t)
	for _, v := range list {
		t.Run(v.Name, func(t *testing.T) {
			o := receipts.Options{Root: v.Root, Session: v.Session, Now: v.Now, MaxAge: time.Duration(v.MaxAge) * time.Second}
			if v.Checkpoint != "" {
				read(t, v.Checkpoint, func(b []byte) { o.Checkpoint = b })
			}
			read(t, v.File, func(b []byte) {
				r := verify(b, o)
				want(t, r, v.Exit, v.Class)
				checkWords(t, r)
				other.agrees(t, r, b, o)
			})
		})
	}
}

func read(t *testing.T, name string, use func([]byte)) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(vectorDir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	use(b)
}

func writeVectors(t *testing.T, files map[string][]byte) {
	t.Helper()
	for _, dir := range []string{"receipts", "notes", "exports", "checkpoints"} {
		path := filepath.Join(vectorDir, dir)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(vectorDir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// checkWords: a report never claims what receipts cannot show, and nothing in a
// file gets to a terminal as a control character.
func checkWords(t *testing.T, r *receipts.Result) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?i)\b(safe|secure|contained|guaranteed|prevented|complete record)\b`).FindString(b.String()); m != "" {
		t.Errorf("the report says %q", m)
	}
	for _, c := range b.String() {
		if c != '\n' && (c < ' ' || c > '~') {
			t.Errorf("the report has character %U", c)
		}
	}
	for i, l := range []string{"integrity:    ", "authenticity: ", "completeness: ", "observation:  "} {
		if !strings.HasPrefix(r.Lines()[i], l) || strings.Contains(r.Lines()[i], "\n") {
			t.Errorf("line %d: %q", i, r.Lines()[i])
		}
	}
}
