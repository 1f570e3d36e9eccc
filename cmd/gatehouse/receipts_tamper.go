package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// tampering is one way to lie with an export.
type tampering struct {
	what string
	do   func(frames []exportFrame) []exportFrame // nil result = not possible with this file
}

// tamperRow is what the verifier made of one tampering.
type tamperRow struct {
	What    string         `json:"what"`
	Exit    receipts.Exit  `json:"exit"`
	Class   receipts.Class `json:"class"`
	Message string         `json:"message,omitempty"`
}

func (c *cli) receiptsTamperDemo() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use: "tamper-demo [EXPORT]", Short: "Tamper with an export in every simple way and show what the verifier says",
		Long: "Tamper with an export in every simple way and show what the verifier says. Without a file it writes a small log of its\n" +
			"own with fresh keys. Exit 1 if any change went unnoticed.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var file []byte
			var err error
			switch {
			case len(args) == 0:
				file, root, err = tamperSample(cmd.Context())
			case root == "":
				return usage("--root is missing", "an untampered file must verify first")
			default:
				if file, err = os.ReadFile(args[0]); err != nil {
					return problem.Wrap(err, problem.Usage, "couldn't read "+args[0], "")
				}
			}
			if err != nil {
				return err
			}
			return c.tamper(file, root)
		},
	}
	cmd.Flags().StringVar(&root, "root", "", "root fingerprint of EXPORT")
	return cmd
}

func (c *cli) tamper(file []byte, root string) error {
	frames, err := splitExport(file)
	if err != nil {
		return usage(err.Error(), "name a file that receipts export wrote")
	}
	judge := func(what string, b []byte) tamperRow {
		r := receipts.Verify(bytes.NewReader(b), receipts.Options{Root: root})
		row := tamperRow{What: what, Exit: r.Exit, Class: r.Class}
		if r.FirstBad != nil {
			row.Message = r.FirstBad.Message
		}
		return row
	}
	as := judge("nothing", file)
	list := []tamperRow{as}
	if as.Exit != receipts.ExitComplete && as.Exit != receipts.ExitUnproven && as.Exit != receipts.ExitAdmitted {
		return usage(fmt.Sprintf("the untampered file is exit %d %s", as.Exit, as.Class), "name one that verifies")
	}
	missed := 0
	for _, t := range tamperings {
		changed := t.do(slices.Clone(frames))
		if changed == nil {
			continue
		}
		row := judge(t.what, joinExport(changed))
		if row.Exit == as.Exit && row.Class == as.Class {
			missed++
		}
		list = append(list, row)
	}
	if err := rows(c, list, []string{"tampered", "exit", "class", "the verifier says"}, func(r tamperRow) []string {
		return []string{r.What, strconv.Itoa(int(r.Exit)), string(r.Class), r.Message}
	}); err != nil {
		return err
	}
	if missed > 0 {
		return &exitError{exitFailed, fmt.Errorf("%d changes went unnoticed", missed)}
	}
	return nil
}

var tamperings = []tampering{
	{"one bit of a receipt flipped", func(f []exportFrame) []exportFrame {
		i := nth(f, "receipt", 1)
		return edit(f, i, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	}},
	{"a deny turned into an allow", func(f []exportFrame) []exportFrame {
		i := slices.IndexFunc(f, func(x exportFrame) bool {
			return x.word == "receipt" && bytes.Contains(x.body, []byte(`"verdict":"deny"`))
		})
		return edit(f, i, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"verdict":"deny"`), []byte(`"verdict":"allow"`), 1)
		})
	}},
	{"a receipt removed from the middle", func(f []exportFrame) []exportFrame { return without(f, nth(f, "receipt", 1)) }},
	{"the last receipt removed", func(f []exportFrame) []exportFrame { return without(f, last(f, "receipt")) }},
	{"a receipt written twice", func(f []exportFrame) []exportFrame {
		i := nth(f, "receipt", 1)
		if i < 0 {
			return nil
		}
		return slices.Insert(f, i, f[i])
	}},
	{"the bytes of two receipts exchanged", func(f []exportFrame) []exportFrame {
		a, b := nth(f, "receipt", 1), nth(f, "receipt", 2)
		if a < 0 || b < 0 {
			return nil
		}
		f[a].body, f[b].body = f[b].body, f[a].body
		return f
	}},
	{"the signature of a seal changed", func(f []exportFrame) []exportFrame {
		i := nth(f, "seal", 0)
		if i < 0 {
			return nil
		}
		w := slices.Clone(f[i].args)
		w[len(w)-1] = w[len(w)-1][:4] + "AAAA" + w[len(w)-1][8:]
		f[i].args = w
		return f
	}},
	{"the checkpoint of another moment", func(f []exportFrame) []exportFrame {
		return edit(f, nth(f, "checkpoint", 0), func(b []byte) []byte {
			lines := strings.SplitN(string(b), "\n", 3)
			n, _ := strconv.Atoi(lines[1])
			lines[1] = strconv.Itoa(n + 1)
			return []byte(strings.Join(lines, "\n"))
		})
	}},
	{"a key added to the keyset", func(f []exportFrame) []exportFrame {
		return edit(f, nth(f, "keyset", 0), func(b []byte) []byte {
			return bytes.Replace(b, []byte("\nserial 1\n"), []byte("\nserial 2\n"), 1)
		})
	}},
	{"the file cut off", func(f []exportFrame) []exportFrame { return f[:len(f)-1] }},
	{"everything after the keyset removed", func(f []exportFrame) []exportFrame {
		i := nth(f, "keyset", 0)
		return append(f[:i+1], exportFrame{word: "end", args: []string{"0"}})
	}},
}

// exportFrame is one frame of an export: docs/receipts-spec.md, section 10.
type exportFrame struct {
	word string
	args []string // without the body's length
	body []byte   // nil for a frame without one
}

var bodied = []string{"keyset", "bundle", "opening", "receipt", "event", "checkpoint", "manifest", "mark"}

func splitExport(b []byte) (out []exportFrame, err error) {
	r := bufio.NewReader(bytes.NewReader(b))
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return out, nil
		}
		words := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		f := exportFrame{word: words[0], args: words[1:]}
		if slices.Contains(bodied, f.word) {
			n, perr := strconv.Atoi(words[len(words)-1])
			if err != nil || perr != nil || n < 1 || n > receipts.MaxBody {
				return nil, errors.New("the file is not an export")
			}
			f.args, f.body = words[1:len(words)-1], make([]byte, n)
			if _, err := io.ReadFull(r, f.body); err != nil {
				return nil, errors.New("the file is cut off")
			}
			if _, err := r.ReadByte(); err != nil {
				return nil, errors.New("the file is cut off")
			}
		}
		out = append(out, f)
	}
}

func joinExport(frames []exportFrame) []byte {
	var b bytes.Buffer
	for _, f := range frames {
		words := append([]string{f.word}, f.args...)
		if f.body != nil {
			words = append(words, strconv.Itoa(len(f.body)))
		}
		b.WriteString(strings.Join(words, " ") + "\n")
		if f.body != nil {
			b.Write(f.body)
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// nth returns the place of the n-th frame with a word, -1 if there is none.
func nth(f []exportFrame, word string, n int) int {
	for i, x := range f {
		if x.word == word {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return -1
}

func last(f []exportFrame, word string) int {
	for i := len(f) - 1; i >= 0; i-- {
		if f[i].word == word {
			return i
		}
	}
	return -1
}

func edit(f []exportFrame, i int, change func([]byte) []byte) []exportFrame {
	if i < 0 {
		return nil
	}
	b := change(bytes.Clone(f[i].body))
	if bytes.Equal(b, f[i].body) {
		return nil
	}
	f[i].body = b
	return f
}

// without leaves a receipt out and counts again, as a forger would.
func without(f []exportFrame, i int) []exportFrame {
	if i < 0 {
		return nil
	}
	f = slices.Delete(f, i, i+1)
	if end := last(f, "end"); end >= 0 {
		n, _ := strconv.Atoi(f[end].args[0])
		f[end].args = []string{strconv.Itoa(n - 1)}
	}
	return f
}

// tamperSample writes a log of one closed session with keys of its own and
// exports the session.
func tamperSample(ctx context.Context) (file []byte, root string, err error) {
	dir, err := os.MkdirTemp("", "gatehouse-tamper-")
	if err != nil {
		return nil, "", fmt.Errorf("couldn't make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	keys, err := notary.NewKeys("gatehouse.example/tamper-demo")
	if err != nil {
		return nil, "", err
	}
	n := notary.New(notary.Options{Node: "tamper-demo", Keys: keys})
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := n.Start(ctx, j); err != nil {
		return nil, "", err
	}
	chain, err := n.Open(ctx, "sample", receipts.Open{State: "admitted", Bundle: "sample", Mode: receipts.Hard, Policy: "credential_free"},
		receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
	if err != nil {
		return nil, "", err
	}
	obs := &receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"}
	for i, verdict := range []receipts.Verdict{receipts.Allow, receipts.Deny, receipts.Allow} {
		act := &receipts.Act{ID: fmt.Sprintf("sample-%d", i+1), Kind: "http.request", Scheme: "https", Host: "packages.example.com", Port: 443, Method: "GET"}
		leaf, err := chain.Append(ctx, receipts.Receipt{Type: receipts.TypeDecision, Act: act, Obs: obs, Dec: &receipts.Dec{
			Verdict: verdict, Mode: receipts.Hard, Passed: verdict == receipts.Allow, Rule: "egress[0]", Reason: "listed", By: "egress", Gen: 1,
		}})
		if err != nil {
			return nil, "", err
		}
		if verdict != receipts.Allow {
			continue
		}
		if _, err := chain.Append(ctx, receipts.Receipt{Type: receipts.TypeOutcome, Out: &receipts.Out{Ref: leaf, Effect: "forwarded", Status: 200}}); err != nil {
			return nil, "", err
		}
	}
	if _, err := chain.Close(ctx, receipts.Close{Reason: "completed"}); err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	if err := n.Export(ctx, &b, notary.Filter{Sessions: []string{"sample"}}); err != nil {
		return nil, "", err
	}
	return b.Bytes(), keys.RootFingerprint(), nil
}
