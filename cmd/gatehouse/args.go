package main

import (
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/internal/canon"
)

// digestsAsArguments keeps a digest from being read as a flag. One digest in 64
// begins with a hyphen (base64url), and a person pastes what a list printed. When
// args holds such a one, the flags go first and everything else follows "--", in
// its order; other command lines are left as they are.
func digestsAsArguments(root *cobra.Command, args []string) []string {
	found := false
	for _, a := range args {
		if a == "--" {
			break
		}
		found = found || hyphenDigest(a)
	}
	if !found {
		return args
	}
	cmd, rest, err := root.Find(args)
	if err != nil || cmd == root {
		return args
	}
	var flags, words []string
	for i := 0; i < len(rest); i++ {
		a := rest[i]
		switch {
		case a == "--":
			words = append(words, rest[i+1:]...)
			i = len(rest)
		case hyphenDigest(a) || a == "-" || !strings.HasPrefix(a, "-"):
			words = append(words, a)
		case takesNext(cmd, a) && i+1 < len(rest):
			flags = append(flags, a, rest[i+1])
			i++
		default:
			flags = append(flags, a)
		}
	}
	out := strings.Fields(cmd.CommandPath())[1:]
	out = append(out, flags...)
	return append(append(out, "--"), words...)
}

// hyphenDigest says whether a is a digest that looks like a flag.
func hyphenDigest(a string) bool {
	if !strings.HasPrefix(a, "-") {
		return false
	}
	_, err := canon.ParseDigest([]byte(a))
	return err == nil
}

// takesNext says whether the flag a of cmd has its value in the next argument.
func takesNext(cmd *cobra.Command, a string) bool {
	if strings.Contains(a, "=") {
		return false
	}
	if name, long := strings.CutPrefix(a, "--"); long {
		f := cmd.Flag(name)
		return f != nil && f.NoOptDefVal == ""
	}
	if len(a) != 2 {
		return false
	}
	f := cmd.Flags().ShorthandLookup(a[1:])
	if f == nil {
		f = cmd.InheritedFlags().ShorthandLookup(a[1:])
	}
	return f != nil && f.NoOptDefVal == ""
}
