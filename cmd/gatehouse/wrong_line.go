package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/internal/problem"
)

// help is what a verb with subcommands does when none is named. Being runnable
// makes cobra refuse an unknown subcommand instead of printing help for it.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// strictHelp makes cobra's own two verbs refuse a name that they do not know,
// like every other one. They would print help and exit 0.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.RunE = help
		case "help":
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				at, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return unknownCommand(at, rest[0])
				}
				return at.Help()
			}
		}
	}
}

// wrongLine gives what cobra says of a wrong command line, for which it has no
// type, the code and the hint that every error of ours has.
func wrongLine(cmd *cobra.Command, err error) error {
	if err == nil || problem.CodeOf(err) != problem.Internal {
		return err
	}
	see := "see `" + cmd.CommandPath() + " --help`"
	switch said := err.Error(); {
	case strings.HasPrefix(said, "unknown command ") && cmd.HasAvailableSubCommands():
		return unknownCommand(cmd, cmd.Flags().Arg(0))
	case strings.HasPrefix(said, "unknown command "):
		return usage(cmd.CommandPath()+" takes no arguments", see)
	case strings.HasPrefix(said, "accepts "), strings.HasPrefix(said, "requires "):
		return usage(fmt.Sprintf("%s got %d arguments", cmd.CommandPath(), cmd.Flags().NArg()), "write `"+strings.TrimSuffix(cmd.UseLine(), " [flags]")+"`")
	case strings.HasPrefix(said, "required flag(s) "):
		missing := strings.TrimSuffix(strings.TrimPrefix(said, "required flag(s) "), " not set")
		return usage("missing: --"+strings.Join(strings.Split(strings.ReplaceAll(missing, `"`, ""), ", "), ", --"), see)
	}
	return err
}

func unknownCommand(in *cobra.Command, name string) error {
	hint := "see `" + in.CommandPath() + " --help`"
	in.SuggestionsMinimumDistance = 2 // cobra's own default, which it sets too late for us
	if near := in.SuggestionsFor(name); len(near) > 0 {
		hint = "did you mean `" + in.CommandPath() + " " + strings.Join(near, "` or `"+in.CommandPath()+" ") + "`?"
	}
	return usage(fmt.Sprintf("%s has no command %q", in.CommandPath(), name), hint)
}
