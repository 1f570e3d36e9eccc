package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"gatehouse/internal/problem"
)

// Exit codes of every verb but receipts verify, which has its own
// (docs/receipts-spec.md).
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNegative    = 3 // a negative verdict: the question was answered with no
	exitUnreachable = 4
)

// exitError carries an exit code through cobra. A nil err prints nothing: the
// verb has already said what there is to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// cli is what the verbs share: the streams and the global flags.
type cli struct {
	in         io.Reader
	out, err   io.Writer
	configPath string
	output     string // table | json | ndjson
}

// Main runs one command line and returns its exit code. Streams are
// parameters, so that tests run the real thing in process.
func Main(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) int {
	c := &cli{in: in, out: out, err: errw}
	root := c.root()
	root.SetArgs(digestsAsArguments(root, args))
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	cmd, err := root.ExecuteContextC(ctx)
	return c.exit(wrongLine(cmd, err))
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "gatehouse",
		Short:             "Start unattended coding-agent sessions from events, without handing them your keys",
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              cobra.NoArgs,
		RunE:              help,
		PersistentPreRunE: func(*cobra.Command, []string) error { return c.knownOutput() },
	}
	f := root.PersistentFlags()
	f.StringVarP(&c.configPath, "config", "c", "gatehouse.yaml", "configuration file (or GATEHOUSE_CONFIG)")
	f.StringVarP(&c.output, "output", "o", "table", "table, json or ndjson")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return problem.New(problem.Usage, err.Error(), "see `"+cmd.CommandPath()+" --help`")
	})
	root.AddCommand(c.backupCommand(), c.bundleCommand(), c.configCommand(), c.connectCommand(), c.demoCommand(), c.demoAgentCommand(),
		c.doctorCommand(), c.drainCommand(), c.endpointCommand(), c.enforcerCommand(), c.eventCommand(), c.initCommand(), c.loginCommand(),
		c.rebuildCommand(), c.receiptsCommand(), c.runCommand(), c.serveCommand(), c.sessionCommand(), c.statusCommand(), c.versionCommand())
	root.AddCommand(c.auditorCommand(), c.conformanceCommand(), c.imageCommand(), c.keyCommand(), c.modelCommand(), c.pricesCommand(), c.secretCommand(), c.setCommand(), c.shadowCommand(), c.spendCommand(), c.tokenCommand())
	strictHelp(root)
	return root
}

// remedy is err's hint, for the person who asks. A file of another user's is in
// order, so "restore it from a backup" would be the wrong thing to do.
func remedy(err error) string {
	code := problem.CodeOf(err)
	if errors.Is(err, fs.ErrPermission) && (code == problem.KeysInvalid || code == problem.Internal) {
		return "it is another user's: be the user that runs the node"
	}
	return problem.HintOf(err)
}

// exit prints err for a person and returns the exit code.
func (c *cli) exit(err error) int {
	if err == nil {
		return exitOK
	}
	var e *exitError
	if errors.As(err, &e) && e.err == nil {
		return e.code
	}
	fmt.Fprintf(c.err, "gatehouse: %v\n", err)
	if hint := remedy(err); hint != "" {
		fmt.Fprintf(c.err, "gatehouse: hint: %s\n", hint)
	}
	if e != nil {
		return e.code
	}
	switch problem.CodeOf(err) {
	case problem.Usage, problem.ConfigInvalid:
		return exitUsage
	case problem.Unreachable:
		return exitUnreachable
	}
	return exitFailed
}
