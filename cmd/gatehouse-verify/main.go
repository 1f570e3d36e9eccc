package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"gatehouse/receipts"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stdout, os.Stderr)) }

// request is what the command line asks for.
type request struct {
	file    string
	json    bool
	options receipts.Options
}

// doMain runs the command and returns its exit status.
func doMain(args []string, stdout, stderr io.Writer) int {
	req, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "gatehouse-verify: %v\nTry: gatehouse-verify FILE --root FINGERPRINT\n", err)
		return int(receipts.ExitUsage)
	}
	f, err := os.Open(req.file)
	if err != nil {
		fmt.Fprintf(stderr, "gatehouse-verify: couldn't open the export: %v\n", err)
		return int(receipts.ExitUsage)
	}
	defer f.Close()
	res := receipts.Verify(f, req.options)
	if err := report(stdout, res, req.json); err != nil {
		fmt.Fprintf(stderr, "gatehouse-verify: couldn't print the result: %v\n", err)
		return int(receipts.ExitUsage)
	}
	return int(res.Exit)
}

func report(w io.Writer, res *receipts.Result, asJSON bool) error {
	if !asJSON {
		return res.WriteText(w)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(res)
}

// parse reads the command line. Flags may stand before and behind FILE.
func parse(args []string, stdout io.Writer) (*request, error) {
	var req request
	var checkpoint, output string
	o := &req.options
	fs := flag.NewFlagSet("gatehouse-verify", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.Root, "root", "", "`FINGERPRINT` of the root key, obtained outside the file; without it the exit is 4 at best")
	fs.StringVar(&o.Session, "session", "", "judge the end of this session `ID` only")
	fs.StringVar(&checkpoint, "checkpoint", "", "`FILE` with a checkpoint that did not come with the export")
	fs.DurationVar(&o.MaxAge, "max-age", receipts.DefaultMaxAge, "how old that checkpoint may be for exit 0")
	fs.Func("since", "with --until: state the sessions opened in this period (RFC 3339 `TIME`)", timeValue(&o.Since))
	fs.Func("until", "end of the period (RFC 3339 `TIME`)", timeValue(&o.Until))
	fs.StringVar(&output, "o", "text", "output `FORMAT`: text or json")
	fs.Usage = func() {
		fmt.Fprintln(stdout, "usage: gatehouse-verify FILE --root FINGERPRINT [flags]")
		fs.SetOutput(stdout)
		fs.PrintDefaults()
	}
	for rest := args; ; {
		if err := fs.Parse(rest); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			break
		}
		if req.file != "" {
			return nil, fmt.Errorf("one FILE expected, got %q and %q", req.file, fs.Arg(0))
		}
		req.file, rest = fs.Arg(0), fs.Args()[1:]
	}
	if req.file == "" {
		return nil, errors.New("no FILE given")
	}
	switch output {
	case "text":
	case "json":
		req.json = true
	default:
		return nil, fmt.Errorf("unknown output format %q", output)
	}
	if o.MaxAge <= 0 {
		return nil, errors.New("--max-age must be above 0")
	}
	if checkpoint != "" {
		b, err := os.ReadFile(checkpoint)
		if err != nil {
			return nil, fmt.Errorf("couldn't read the checkpoint: %w", err)
		}
		o.Checkpoint = b
	}
	return &req, nil
}

// timeValue returns a flag function that sets t.
func timeValue(t *time.Time) func(string) error {
	return func(s string) (err error) {
		*t, err = time.Parse(time.RFC3339, s)
		return err
	}
}
