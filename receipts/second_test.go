package receipts_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/receipts"
)

// typescript is the second verifier: the script of verify.html under Node. It shares
// no code with package receipts, only docs/receipts-spec.md.
type typescript struct {
	in  io.Writer
	out *bufio.Reader
}

// node returns the path of a Node that runs the page's script, "" if there is
// none: the one on PATH, or one of those that `make setup` puts into .tools.
func node() string {
	for _, name := range []string{"node", "../.tools/node-22/bin/node", "../.tools/node-20/bin/node"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			continue
		}
		// Node 20 is the first whose WebCrypto is there without a flag.
		if exec.Command(path, "-e", `process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)`).Run() == nil {
			return path
		}
	}
	return ""
}

// newTypeScript starts the second verifier, which ends with the test. Without Node
// there is none, and whoever reads the log sees it; in CI that is a failure.
func newTypeScript(t testing.TB) *typescript {
	t.Helper()
	path := node()
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no Node >= 20: the second verifier judges nothing")
		}
		t.Log("NO NODE >= 20: THE SECOND VERIFIER JUDGES NOTHING HERE (make setup)")
		return nil
	}
	cmd := exec.Command(path, "verifyjs/verify.mjs", "--jobs")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("second verifier: %v\n%s", err, stderr.String())
		}
	})
	return &typescript{in, bufio.NewReader(out)}
}

// job is one line for verify.mjs --jobs; []byte becomes base64.
type job struct {
	File       []byte     `json:"file"`
	Root       string     `json:"root,omitempty"`
	Session    string     `json:"session,omitempty"`
	Checkpoint []byte     `json:"checkpoint,omitempty"`
	MaxAge     int64      `json:"max_age_seconds,omitempty"`
	Now        time.Time  `json:"now"`
	Since      *time.Time `json:"since,omitempty"`
	Until      *time.Time `json:"until,omitempty"`
	Canaries   [][]byte   `json:"canaries,omitempty"`
	MaxBytes   int64      `json:"max_bytes,omitempty"`
	Flips      []flip     `json:"flips,omitempty"`
}

// flip is the offset of a byte and what it is XORed with.
type flip [2]int

type answer struct {
	Result   map[string]any `json:"result"`
	Verdict  string         `json:"verdict"`
	Lines    []string       `json:"lines"`
	Happened []string       `json:"happened"`
	Flips    [][2]any       `json:"flips"` // exit and class
}

func newJob(file []byte, o receipts.Options) job {
	j := job{
		File: file, Root: o.Root, Session: o.Session, Checkpoint: o.Checkpoint, MaxAge: int64(o.MaxAge / time.Second), Now: o.Now,
		Canaries: o.Canaries, MaxBytes: o.MaxBytes,
	}
	if !o.Since.IsZero() {
		j.Since = &o.Since
	}
	if !o.Until.IsZero() {
		j.Until = &o.Until
	}
	return j
}

// teller is what is common to *testing.T and *rapid.T.
type teller interface {
	Helper()
	Errorf(format string, a ...any)
	Fatalf(format string, a ...any)
}

func (s *typescript) ask(t teller, j job) answer {
	t.Helper()
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatalf("job: %v", err)
	}
	if _, err := s.in.Write(append(b, '\n')); err != nil {
		t.Fatalf("second verifier: %v", err)
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("second verifier: %v", err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatalf("second verifier: %v: %.200q", err, line)
	}
	return a
}

// agrees fails unless the second verifier says of the file what r says: the same
// result but for the wording of findings, and the same report where no finding
// stands in it.
func (s *typescript) agrees(t teller, r *receipts.Result, file []byte, o receipts.Options) {
	t.Helper()
	if s == nil {
		return
	}
	a := s.ask(t, newJob(file, o))
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatalf("result: %v", err)
	}
	var mine map[string]any
	if err := json.Unmarshal(b, &mine); err != nil {
		t.Fatalf("result: %v", err)
	}
	if d := cmp.Diff(wordless(mine), wordless(a.Result)); d != "" {
		t.Errorf("the verifiers disagree (-Go +TypeScript):\n%s", d)
	}
	if a.Verdict != r.Verdict() {
		t.Errorf("verdict %q, want %q", a.Verdict, r.Verdict())
	}
	if d := cmp.Diff(r.Happened(), a.Happened); d != "" {
		t.Errorf("what happened (-Go +TypeScript):\n%s", d)
	}
	lines := r.Lines()
	for i, l := range a.Lines {
		if told := i < 2 && r.FirstBad != nil; !told && l != lines[i] {
			t.Errorf("line %q, want %q", l, lines[i])
		}
	}
}

// wordless removes the messages of findings, and the offset of one that says
// where reading stopped: each reader reads in its own portions.
func wordless(r map[string]any) map[string]any {
	strip := func(f any) {
		if f, ok := f.(map[string]any); ok {
			delete(f, "message")
			if f["class"] == string(receipts.ClassUnreadable) {
				delete(f, "offset")
			}
		}
	}
	strip(r["first_bad"])
	if list, ok := r["findings"].([]any); ok {
		for _, f := range list {
			strip(f)
		}
	}
	return r
}

// flips returns the verdicts of the file with one byte changed, for each change.
func (s *typescript) flips(t teller, file []byte, o receipts.Options, list []flip) [][2]any {
	t.Helper()
	j := newJob(file, o)
	j.Flips = list
	return s.ask(t, j).Flips
}

// TestSecondVerifierCommand: verify.mjs prints the same report and exits with the
// same number as the Go verifier.
func TestSecondVerifierCommand(t *testing.T) {
	path := node()
	if path == "" {
		newTypeScript(t)
		t.Skip("NO NODE >= 20")
	}
	w, end := story(t)
	dir := t.TempDir()
	for name, c := range map[string]cut{"closed": {sessions: []string{sessionA}, end: &end}, "open": {sessions: []string{sessionC}, end: &end}} {
		t.Run(name, func(t *testing.T) {
			file := w.export(c)
			at := filepath.Join(dir, name)
			if err := os.WriteFile(at, file, 0o600); err != nil {
				t.Fatal(err)
			}
			r := verify(file, receipts.Options{Root: w.fingerprint()})
			var text strings.Builder
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(path, "verifyjs/verify.mjs", at, "--root", w.fingerprint())
			out, _ := cmd.Output() // the exit is asserted
			if got := cmd.ProcessState.ExitCode(); got != int(r.Exit) {
				t.Errorf("exit %d, want %d", got, r.Exit)
			}
			if d := cmp.Diff(text.String(), string(out)); d != "" {
				t.Errorf("-Go +TypeScript:\n%s", d)
			}
		})
	}
	t.Run("usage", func(t *testing.T) {
		cmd := exec.Command(path, "verifyjs/verify.mjs")
		if _, err := cmd.Output(); err == nil || cmd.ProcessState.ExitCode() != int(receipts.ExitUsage) {
			t.Errorf("exit %d", cmd.ProcessState.ExitCode())
		}
	})
}
