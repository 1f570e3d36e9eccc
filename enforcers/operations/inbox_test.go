package operations_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/operations"
	"gatehouse/internal/problem"
)

// TestInbox: what an operation brings in lies in the session's inbox as text, at
// the path that its result names, under caps.
func TestInbox(t *testing.T) {
	const log, archive = "/store/repos/acme/shop/actions/jobs/5/logs", "/store/repos/acme/shop/actions/artifacts/6/zip"
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	f, err := z.Create("../../etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "a file")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		op, args string
		stored   map[string][]byte
		file     string // in the inbox
		begins   string
		ends     string
		most     int
		code     string
	}{
		"log":              {op: "scm.run.logs", args: `{"job":5}`, stored: map[string][]byte{log: []byte("FAIL\x1b[2J ghs_0123456789012345678901234567\n")}, file: "job-5.log", begins: "FAIL[2J [credential removed]\n", ends: "\n", most: 100},
		"long":             {op: "scm.run.logs", args: `{"job":5}`, stored: map[string][]byte{log: []byte(strings.Repeat("x", 10<<20) + "the end\n")}, file: "job-5.log", begins: "xxx", ends: "the end\n", most: 8 << 20},
		"file":             {op: "scm.artifact.get", args: `{"artifact":6,"path":"../../etc/passwd"}`, stored: map[string][]byte{archive: packed.Bytes()}, file: "artifact-6-", begins: "a file", ends: "a file", most: 6},
		"list":             {op: "scm.artifact.get", args: `{"artifact":6}`, stored: map[string][]byte{archive: packed.Bytes()}},
		"ME-13_credential": {op: "scm.run.logs", args: `{"job":5}`, stored: map[string][]byte{log: []byte("it was tok-canary")}, code: enforcers.CodeReflected},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "inbox")
			box, err := operations.NewInbox(dir, "/inbox")
			if err != nil {
				t.Fatal(err)
			}
			result, err := do(t, &hub{t: t, stored: c.stored, inbox: box}, c.op, c.args)
			if string(problem.CodeOf(err)) != c.code && !(err == nil && c.code == "") {
				t.Fatalf("%v, want %q", err, c.code)
			}
			all, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var found string
			for _, e := range all {
				if e.Name() != "README" {
					found = e.Name()
				}
			}
			if !strings.HasPrefix(found, c.file) || c.file == "" && found != "" {
				t.Fatalf("the inbox holds %q", found)
			}
			if c.file == "" {
				return
			}
			b, err := os.ReadFile(filepath.Join(dir, found))
			if err != nil || !strings.HasPrefix(string(b), c.begins) || !strings.HasSuffix(string(b), c.ends) || len(b) > c.most {
				t.Errorf("%v, %d bytes: %.100q", err, len(b), b)
			}
			if !strings.Contains(result, `"inbox":"/inbox/`+found+`"`) || !strings.Contains(result, `"origin":"outsider"`) {
				t.Errorf("result %.300s", result)
			}
		})
	}
	t.Run("full", func(t *testing.T) {
		box, err := operations.NewInbox(filepath.Join(t.TempDir(), "inbox"), "/inbox")
		if err != nil {
			t.Fatal(err)
		}
		h := &hub{t: t, stored: map[string][]byte{log: bytes.Repeat([]byte("x"), 8<<20)}, inbox: box}
		for i := range 9 {
			if _, err := do(t, h, "scm.run.logs", `{"job":5}`); (err != nil) != (i == 8) || err != nil && problem.CodeOf(err) != operations.CodeLimit {
				t.Fatalf("call %d: %v", i, err)
			}
		}
	})
}
