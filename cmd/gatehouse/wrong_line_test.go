package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"gatehouse/internal/problem"
)

// TestWrongLine: whatever is wrong with a command line is said in one line with
// a code, and a hint, and exits 2.
func TestWrongLine(t *testing.T) {
	for args, want := range map[string][2]string{
		"serv":                          {`gatehouse has no command "serv"`, "did you mean `gatehouse serve` or `gatehouse set`?"},
		"bundle lnt":                    {`gatehouse bundle has no command "lnt"`, "did you mean `gatehouse bundle lint`?"},
		"bundel lint x.yaml":            {`gatehouse has no command "bundel"`, "did you mean `gatehouse bundle`?"},
		"connect githb":                 {`gatehouse connect has no command "githb"`, "did you mean `gatehouse connect github`?"},
		"frobnicate":                    {`gatehouse has no command "frobnicate"`, "see `gatehouse --help`"},
		"help frobnicate":               {`gatehouse has no command "frobnicate"`, "see `gatehouse --help`"},
		"help bundle lnt":               {`gatehouse bundle has no command "lnt"`, "did you mean `gatehouse bundle lint`?"},
		"completion fishes":             {`gatehouse completion has no command "fishes"`, "did you mean `gatehouse completion fish`?"},
		"serve now":                     {"gatehouse serve takes no arguments", "see `gatehouse serve --help`"},
		"serve --bogus":                 {"unknown flag: --bogus", "see `gatehouse serve --help`"},
		"drain --timeout x":             {`invalid argument "x" for "--timeout" flag: time: invalid duration "x"`, "see `gatehouse drain --help`"},
		"session show":                  {"gatehouse session show got 0 arguments", "write `gatehouse session show SESSION`"},
		"session show a b":              {"gatehouse session show got 2 arguments", "write `gatehouse session show SESSION`"},
		"bundle apply":                  {"gatehouse bundle apply got 0 arguments", "write `gatehouse bundle apply FILE...`"},
		"bundle promote fix-failing-ci": {"missing: --reason", "see `gatehouse bundle promote --help`"},
		"run":                           {"missing: --bundle", "see `gatehouse run --help`"},
		"-o xml version":                {`unknown output "xml"`, "use table, json or ndjson"},
		"connect sentry --stdin":        {"there is no secret on the standard input", "pipe in the one that sentry shows"},
		"receipts export --format dsse": {"--format dsse takes one --session and nothing else", "add --session SESSION; leave --since, --until and --open out"},
	} {
		t.Run(args, func(t *testing.T) {
			t.Chdir(tempDir(t))
			if strings.HasPrefix(args, "connect sentry") || strings.HasPrefix(args, "receipts export") {
				write(t, "gatehouse.yaml", "endpoints: []\n")
			}
			var out, errw bytes.Buffer
			code := Main(context.Background(), strings.Fields(args), strings.NewReader(""), &out, &errw)
			if want := "gatehouse: " + want[0] + " (usage)\ngatehouse: hint: " + want[1] + "\n"; code != exitUsage || out.Len() > 0 || errw.String() != want {
				t.Errorf("exit %d, printed %q, said\n%swant\n%s", code, out.String(), errw.String(), want)
			}
		})
	}
}

// Help is there for every verb, and says how it is called.
func TestHelpOfEveryVerb(t *testing.T) {
	verb := regexp.MustCompile(`(?m)^  gatehouse `)
	var walk func(path []string)
	seen := 0
	walk = func(path []string) {
		for _, args := range [][]string{append(path[:len(path):len(path)], "--help"), append([]string{"help"}, path...)} {
			var out, errw bytes.Buffer
			if code := Main(context.Background(), args, strings.NewReader(""), &out, &errw); code != exitOK || errw.Len() > 0 || !verb.Match(out.Bytes()) {
				t.Errorf("%q: exit %d, said %q", args, code, errw.String())
			}
		}
		seen++
		c := &cli{}
		cmd, _, err := c.root().Find(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				walk(append(path[:len(path):len(path)], sub.Name()))
			}
		}
	}
	walk(nil)
	if seen < 100 {
		t.Errorf("%d verbs", seen)
	}
}

// TestRemedy: what another user may read is not broken.
func TestRemedy(t *testing.T) {
	const restore = "restore the keys from their backup"
	denied := &fs.PathError{Op: "open", Path: "seal.key", Err: syscall.EACCES}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"keys":          {problem.Wrap(denied, problem.KeysInvalid, "seal.key cannot be used", restore), "be the user that runs the node"},
		"keys_damaged":  {problem.New(problem.KeysInvalid, "seal.key cannot be used", restore), restore},
		"modules":       {fmt.Errorf("couldn't read the modules: %w", denied), "be the user that runs the node"},
		"config_secret": {problem.Wrap(denied, problem.ConfigInvalid, "couldn't read the secret's file", "check its mode"), "check its mode"},
	} {
		if got := remedy(c.err); !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
