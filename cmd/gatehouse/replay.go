package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/enforcers"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// replayFiles are where receipts replay finds what a node would tell it.
type replayFiles struct{ export, action, judgedBy, module, save string }

func (c *cli) receiptsReplay() *cobra.Command {
	var f replayFiles
	cmd := &cobra.Command{
		Use: "replay SESSION SEQ|LEAF", Short: "Judge an action again and compare verdict and fuel with its receipt",
		Long: "Judge an action again, with the module and the policy it was judged by, and compare verdict and fuel with its receipt.\n" +
			"The running node tells receipt and action; its state folder has policy and module. With --export, --action and --policy\n" +
			"no node is asked; what `gatehouse run --receipts FILE` left in FILE.replay stands for the latter two. Actions are kept for\n" +
			"30 days without bodies and without the values of queries and headers: what was judged by those cannot be judged again,\n" +
			"and says so. Exit 3 when the judgement differs.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := c.replayMaterial(cmd, f, args[0], args[1])
			if err != nil {
				return err
			}
			if f.save != "" {
				if err := m.save(f.save); err != nil {
					return err
				}
			}
			out, err := m.replay(cmd.Context())
			if err != nil {
				return err
			}
			if c.output != "table" {
				err = c.json(out)
			} else {
				err = out.text(c.out)
			}
			if err == nil && !out.Same {
				err = &exitError{code: exitNegative}
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.export, "export", "", "take the receipt from this export; verify it first")
	fs.StringVar(&f.action, "action", "", "take the action from this file")
	fs.StringVar(&f.judgedBy, "policy", "", "take the policy from this file")
	fs.StringVar(&f.module, "module", "", "take the module from this file")
	fs.StringVar(&f.save, "save", "", "write action.json and policy.json into this folder")
	return cmd
}

// material is everything that one judgement came from.
type material struct {
	receipt *receipts.Receipt
	action  []byte
	judged  []byte // a judgedBy
	code    []byte
	limits  wasm.Limits
	builtin bool
}

// replayMaterial gathers what the flags name from files and the rest from the
// node and its state folder.
func (c *cli) replayMaterial(cmd *cobra.Command, f replayFiles, session, which string) (*material, error) {
	m := &material{}
	var leaf string
	var err error
	if f.export != "" {
		m.receipt, leaf, err = receiptInExport(f.export, session, which)
	} else {
		m.receipt, leaf, err = c.receiptOfNode(cmd, session, which)
	}
	if err != nil {
		return nil, err
	}
	d := m.receipt.Dec
	switch {
	case d == nil:
		return nil, usage(fmt.Sprintf("receipt %s of session %s is a %s, not a decision", which, session, m.receipt.Type), "list them with `gatehouse receipts tail "+session+"`")
	case d.By == "":
		return nil, problem.New(problem.Conflict, fmt.Sprintf("no module decided: %s by rule %s because %s", d.Verdict, d.Rule, d.Reason), "the gate itself decides what every enforcer left alone and what no rule can open")
	case d.Rule == enforcers.RuleGate && d.Fault == "":
		return nil, problem.New(problem.Conflict, fmt.Sprintf("%s was not asked: %s", d.By, d.Reason), "")
	}
	if f.export != "" { // what a run left beside its export
		f.action, f.judgedBy = beside(f.action, replayAction(f.export, leaf)), beside(f.judgedBy, replayPolicy(f.export, session))
	}
	if f.action != "" {
		m.action, err = os.ReadFile(f.action)
	} else {
		m.action, err = c.actionOfNode(cmd, leaf)
	}
	if err != nil {
		return nil, missing("the action", err)
	}
	m.action = bytes.TrimSpace(m.action)
	var dirs *config.Config
	if dirs, err = config.Check(c.file(cmd)); err != nil && (f.judgedBy == "" || f.module == "") {
		return nil, err
	}
	m.builtin = slices.Contains(builtins, d.By)
	if f.judgedBy == "" {
		folder := filepath.Join(dirs.StateDir(), "sessions", filepath.Base(session))
		f.judgedBy = filepath.Join(folder, judgedByFile)
		if m.builtin {
			f.judgedBy, d.Rule = judgedUnder(folder, d)
		}
	}
	if m.judged, err = os.ReadFile(f.judgedBy); err != nil {
		return nil, missing("the session's policy", err)
	}
	switch {
	case m.builtin:
	case f.module != "":
		m.code, err = readModule(f.module)
	default:
		var s moduleSettings
		m.code, s, err = modulesOf(dirs).byDigest(d.Module)
		m.limits = s.limits()
	}
	return m, err
}

// beside returns the path that was named, else the other one if it is there.
func beside(named, other string) string {
	if _, err := os.Stat(other); named == "" && err == nil {
		return other
	}
	return named
}

func missing(what string, err error) error {
	return problem.Wrap(err, problem.NotFound, what+" is not here", "actions and policies are kept for 30 days on the node that had the session; name copies with --action and --policy")
}

// receiptOfNode finds a receipt by its number or its leaf hash.
func (c *cli) receiptOfNode(cmd *cobra.Command, session, which string) (*receipts.Receipt, string, error) {
	client, err := c.remote(cmd)
	if err != nil {
		return nil, "", err
	}
	defer client.Close()
	list, err := pages[view.Receipt](cmd.Context(), client, "/v1/sessions/"+url.PathEscape(session)+"/receipts", nil, 0)
	if err != nil {
		return nil, "", err
	}
	for _, row := range list {
		if row.Leaf == which || strconv.FormatUint(row.Seq, 10) == which {
			r, err := receipts.Decode(row.Payload)
			return r, row.Leaf, err
		}
	}
	return nil, "", problem.New(problem.NotFound, fmt.Sprintf("session %s has no receipt %s", session, which), "list them with `gatehouse receipts tail "+session+"`")
}

func (c *cli) actionOfNode(cmd *cobra.Command, leaf string) ([]byte, error) {
	client, err := c.remote(cmd)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	r, err := client.File(cmd.Context(), "/v1/receipts/"+leaf+"/action", nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// receiptInExport finds a receipt whose bytes are the sealed ones.
func receiptInExport(path, session, which string) (found *receipts.Receipt, at string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", problem.Wrap(err, problem.Usage, "couldn't open "+path, "")
	}
	defer f.Close()
	receipts.Verify(f, receipts.Options{Visit: func(_ uint64, leaf receipts.Hash, r *receipts.Receipt) {
		if r.Session == session && (leaf.String() == which || strconv.FormatUint(r.Seq, 10) == which) {
			found, at = r, leaf.String()
		}
	}})
	if found == nil {
		return nil, "", problem.New(problem.NotFound, fmt.Sprintf("%s holds no sealed receipt %s of session %s", path, which, session), "verify it with `gatehouse receipts verify`")
	}
	return found, at, nil
}

// save keeps what is not in an export.
func (m *material) save(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return problem.Wrap(err, problem.Usage, "couldn't make the folder "+dir, "")
	}
	for name, b := range map[string][]byte{"action.json": m.action, "policy.json": m.judged} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return problem.Wrap(err, problem.Usage, "couldn't write into "+dir, "")
		}
	}
	return nil
}

// judgement is one side of a comparison.
type judgement struct {
	Verdict string `json:"verdict"`
	Rule    string `json:"rule"`
	Reason  string `json:"reason"`
	Fault   string `json:"fault,omitempty"`
	Fuel    uint64 `json:"fuel"`
}

// replayed is what receipts replay prints.
type replayed struct {
	Session  string    `json:"session"`
	Seq      uint64    `json:"seq"`
	Enforcer string    `json:"enforcer"`
	Module   string    `json:"module"`
	Recorded judgement `json:"recorded"`
	Again    judgement `json:"again"`
	Whole    bool      `json:"whole"` // the stored action is all that was judged: fuel is compared too
	Same     bool      `json:"same"`
}

// replay judges the action again. A module other than the recorded one, or an
// action without the body that was judged, is an error: nothing was judged.
func (m *material) replay(ctx context.Context) (*replayed, error) {
	d := m.receipt.Dec
	var j judgedBy
	if err := json.Unmarshal(m.judged, &j); err != nil {
		return nil, missing("a readable policy", err)
	}
	var a storedParts
	if err := json.Unmarshal(m.action, &a); err != nil {
		return nil, missing("a readable action", err)
	}
	if a.ID != m.receipt.Act.ID {
		return nil, problem.New(problem.Conflict, "the action is another one than the receipt's", "")
	}
	if a.bodyless() {
		return nil, problem.New(problem.Conflict, "the action was judged with its body, which is never kept", "with a copy of the body, write it into a copy of the action and name that with --action")
	}
	configure, err := j.configure(d.By)
	if err != nil {
		return nil, err
	}
	h, err := wasm.NewHost(ctx, wasm.Options{CacheDir: wasmCache()})
	if err != nil {
		return nil, err
	}
	defer h.Close(context.WithoutCancel(ctx))
	var mod *wasm.Module
	if m.builtin {
		mod, err = h.Builtin(ctx)
	} else {
		mod, err = h.LoadLimited(ctx, d.By, m.code, m.limits)
	}
	if err != nil {
		return nil, err
	}
	want := wasm.Recorded{Module: d.Module, Fault: d.Fault, Verdict: enforcers.Verdict{
		Effect: enforcers.Effect(d.Verdict), Rule: d.Rule, Reason: d.Reason, Fuel: d.Fuel,
	}}
	got, _, err := wasm.Replay(ctx, mod, configure, m.action, want)
	if errors.Is(err, wasm.ErrOtherModule) {
		return nil, problem.Wrap(err, problem.Conflict, fmt.Sprintf("%s decided with module %x, and this is %x", d.By, [32]byte(d.Module), mod.Digest()), "another version of Gatehouse has other built-in enforcers; replay with the version that decided")
	}
	if err != nil {
		return nil, err
	}
	out := &replayed{
		Session: m.receipt.Session, Seq: m.receipt.Seq, Enforcer: d.By, Module: fmt.Sprintf("%x", [32]byte(d.Module)),
		Recorded: judged(want), Again: judged(got), Whole: a.whole(),
	}
	got = asRecorded(got, d)
	if !out.Whole {
		got.Verdict.Fuel = want.Verdict.Fuel
	}
	out.Same = got == want
	return out, nil
}

// gateReasons are what the gate writes in shadow in place of the reason of an
// enforcer that denied: what no would-block may do.
var gateReasons = []string{enforcers.CodeNeedsAuthority, enforcers.CodeIPLiteral, enforcers.CodePort, enforcers.CodeRelay}

// asRecorded returns an enforcer's answer with what the gate makes of it where
// it has the last word: the enforcer alone is asked again.
func asRecorded(got wasm.Recorded, d *receipts.Dec) wasm.Recorded {
	v := &got.Verdict
	switch {
	case got.Fault != "" || d.Passed:
	case d.Mode == receipts.Shadow && v.Effect == enforcers.Deny && slices.Contains(gateReasons, d.Reason):
		v.Reason = d.Reason // EG-104, EG-18, EG-20
	case v.Effect == enforcers.Allow && d.Reason == enforcers.CodeNameBudget:
		v.Effect, v.Reason = enforcers.Deny, d.Reason // EG-109
	}
	return got
}

func judged(r wasm.Recorded) judgement {
	return judgement{string(r.Verdict.Effect), r.Verdict.Rule, r.Verdict.Reason, r.Fault, r.Verdict.Fuel}
}

// storedParts are the parts of a stored action that storing may have emptied
// (enforcers.Action.Stored).
type storedParts struct {
	ID   string `json:"id"`
	HTTP *struct {
		Body    struct{ Mode, Bytes string } `json:"body"`
		Headers map[string][]string          `json:"headers"`
		Query   string                       `json:"query"`
	} `json:"http_request"`
	Operation *struct {
		Args map[string]any `json:"args"`
	} `json:"operation_call"`
}

func (a *storedParts) bodyless() bool {
	return a.HTTP != nil && (a.HTTP.Body.Mode == enforcers.BodyWhole || a.HTTP.Body.Mode == enforcers.BodyPrefix) && a.HTTP.Body.Bytes == ""
}

// whole reports whether storing took nothing away. An action that was stored
// without values is another input, and its fuel is not the recorded one. A
// request is whole only if values stand in it: one without may have lost them.
func (a *storedParts) whole() bool {
	switch {
	case a.HTTP != nil:
		values := strings.Contains(a.HTTP.Query, "=")
		for _, v := range a.HTTP.Headers {
			if len(v) == 0 {
				return false
			}
			values = true
		}
		return values
	case a.Operation != nil:
		return len(a.Operation.Args) > 0
	}
	return true
}

func (r *replayed) text(w io.Writer) error {
	line := func(name string, j judgement) {
		fault := ""
		if j.Fault != "" {
			fault = " fault " + j.Fault
		}
		fmt.Fprintf(w, "%-9s %s by %s because %s%s, fuel %d\n", name, j.Verdict, plain(j.Rule), plain(j.Reason), fault, j.Fuel)
	}
	fmt.Fprintf(w, "session %s, receipt %d, enforcer %s, module %s\n", r.Session, r.Seq, r.Enforcer, r.Module)
	line("recorded", r.Recorded)
	line("again", r.Again)
	word := "the same verdict and fuel"
	switch {
	case !r.Same && !r.Whole:
		word = "different; the action is kept without values, which may be why"
	case !r.Same:
		word = "DIFFERENT: the record, the policy, the module or the action is not what it was"
	case !r.Whole:
		word = "the same verdict; fuel is not compared, since the action is kept without values"
	}
	_, err := fmt.Fprintln(w, word)
	return err
}
