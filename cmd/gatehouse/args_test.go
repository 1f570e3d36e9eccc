package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"gatehouse/internal/canon"
)

// hyphenated is a digest as lists print it, with a hyphen in front: one in 64.
const hyphenated = "-2_4C4-EgguGV9BCyz3eljb2s2yWCtloou90iwIFKUw"

func TestDigestsAsArguments(t *testing.T) {
	// Two hyphens make it look like a long flag: one in 4,096.
	twice := "--" + hyphenated[2:]
	for name, tc := range map[string]struct{ in, want string }{
		"nothing to do":       {"bundle approve abc --digest 00", "bundle approve abc --digest 00"},
		"alone":               {"bundle approve " + hyphenated, "bundle approve -- " + hyphenated},
		"two hyphens":         {"bundle approve " + twice, "bundle approve -- " + twice},
		"a flag after it":     {"bundle approve " + hyphenated + " --digest 00", "bundle approve --digest 00 -- " + hyphenated},
		"a flag's own value":  {"bundle approve --digest " + hyphenated + " abc", "bundle approve --digest " + hyphenated + " -- abc"},
		"a value after =":     {"bundle approve --digest=00 " + hyphenated, "bundle approve --digest=00 -- " + hyphenated},
		"a global flag":       {"-o json bundle approve " + hyphenated, "bundle approve -o json -- " + hyphenated},
		"words keep order":    {"receipts proof a " + hyphenated + " b", "receipts proof -- a " + hyphenated + " b"},
		"already after --":    {"bundle approve -- " + hyphenated, "bundle approve -- " + hyphenated},
		"not quite a digest":  {"bundle approve " + hyphenated + "x", "bundle approve " + hyphenated + "x"},
		"no command of ours":  {"nothing " + hyphenated, "nothing " + hyphenated},
		"the last flag alone": {"bundle approve " + hyphenated + " --digest", "bundle approve --digest -- " + hyphenated},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cli{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
			got := digestsAsArguments(c.root(), strings.Fields(tc.in))
			if !slices.Equal(got, strings.Fields(tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What a verb gets is the digest itself, whichever verb it is.
func TestDigestReachesEveryVerb(t *testing.T) {
	if _, err := canon.ParseDigest([]byte(hyphenated)); err != nil {
		t.Fatal(err)
	}
	c := &cli{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
	root, seen := c.root(), 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Args == nil || cmd.Args(cmd, []string{hyphenated}) != nil {
			return // takes no single argument
		}
		args := append(strings.Fields(cmd.CommandPath())[1:], hyphenated)
		var got []string
		cmd.RunE, cmd.Run = func(_ *cobra.Command, a []string) error { got = a; return nil }, nil
		root.SetArgs(digestsAsArguments(root, args))
		_ = root.ExecuteContext(context.Background()) // a required flag may miss: then nothing ran
		if got == nil {
			return
		}
		if seen++; !slices.Equal(got, []string{hyphenated}) {
			t.Errorf("%s got %q", cmd.CommandPath(), got)
		}
	}
	walk(root)
	if seen < 20 {
		t.Errorf("%d verbs were asked", seen)
	}
}
