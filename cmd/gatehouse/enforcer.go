package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/wasm"
	"gatehouse/wasm/conform"
	"gatehouse/wasm/policies"
	"gatehouse/wasm/sdk"
)

func (c *cli) enforcerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "enforcer", Short: "Write, test and add enforcers", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.enforcerList(), c.enforcerInspect(), c.enforcerTest(), c.enforcerAdd(), c.enforcerNew())
	return cmd
}

// enforcerLine is one module that the node has.
type enforcerLine struct {
	Module    string   `json:"module"` // name@sha256:digest
	BuiltIn   bool     `json:"built_in"`
	Profile   string   `json:"profile"`
	Bytes     int      `json:"bytes"`
	Fuel      int64    `json:"fuel_decide,omitempty"` // 0 = the default
	Untrusted bool     `json:"untrusted,omitempty"`
	Bundles   []string `json:"bundles"` // that name it
}

func (c *cli) enforcerList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the modules that the node has, and the bundles that name them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Check(c.file(cmd))
			if err != nil {
				return err
			}
			files, err := bundleFiles(cfg)
			if err != nil {
				return err
			}
			named := map[string][]string{}
			for _, f := range files {
				b, err := readBundle(f)
				if err != nil {
					return err
				}
				for _, e := range b.Enforcers {
					named[e.Module] = append(named[e.Module], b.Name)
				}
			}
			i := wasm.Inspect(policies.Std)
			var lines []enforcerLine
			for _, name := range builtins {
				lines = append(lines, enforcerLine{Module: reference(name, i.Digest), BuiltIn: true, Profile: i.Profile, Bytes: i.Bytes, Bundles: []string{"every"}})
			}
			m := modulesOf(cfg)
			refs, err := m.list()
			if err != nil {
				return err
			}
			for _, ref := range refs {
				code, s, err := m.open(ref)
				if err != nil {
					return err
				}
				i := wasm.Inspect(code)
				slices.Sort(named[ref])
				lines = append(lines, enforcerLine{
					Module: ref, Profile: i.Profile, Bytes: i.Bytes, Fuel: s.FuelDecide, Untrusted: s.Untrusted, Bundles: append([]string{}, slices.Compact(named[ref])...),
				})
			}
			return rows(c, lines, []string{"module", "profile", "bytes", "bundles"}, func(l enforcerLine) []string {
				return []string{l.Module, l.Profile, fmt.Sprint(l.Bytes), strings.Join(l.Bundles, " ")}
			})
		},
	}
}

// inspected is what enforcer inspect prints.
type inspected struct {
	Module  string   `json:"module"`
	Bytes   int      `json:"bytes"`
	Metered int      `json:"metered_bytes"`
	Meter   string   `json:"meter"`
	Profile string   `json:"profile"`
	Imports []string `json:"imports"`
	Exports []string `json:"exports"`
	Globals int      `json:"mutable_globals"`
	Vectors int      `json:"vectors"` // that it carries
	Refused string   `json:"refused,omitempty"`
}

func (c *cli) enforcerInspect() *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Short: "Tell what can be told of a module without running it",
		Long: "Tell what can be told of a module without running it. Exit 3 when it would be refused.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			code, err := readModule(args[0])
			if err != nil {
				return err
			}
			i := wasm.Inspect(code)
			out := inspected{
				Module: reference(nameOf(args[0]), i.Digest), Bytes: i.Bytes, Metered: i.Metered, Meter: i.Meter, Profile: i.Profile,
				Imports: append([]string{}, i.Imports...), Exports: append([]string{}, i.Exports...), Globals: i.Globals, Refused: i.Refused,
			}
			if s := wasm.Section(code, conform.Section); s != nil {
				set, err := conform.Parse(s)
				if err != nil {
					out.Refused = fmt.Sprintf("its vectors: %v", err)
				} else {
					out.Vectors = len(set.Vectors)
				}
			}
			if c.output == "table" {
				for _, row := range [][2]string{
					{"module", out.Module}, {"bytes", fmt.Sprintf("%d, metered %d by %s", out.Bytes, out.Metered, out.Meter)}, {"profile", out.Profile},
					{"imports", strings.Join(out.Imports, " ")}, {"exports", strings.Join(out.Exports, " ")},
					{"globals", fmt.Sprintf("%d mutable", out.Globals)}, {"vectors", fmt.Sprint(out.Vectors)}, {"refused", out.Refused},
				} {
					fmt.Fprintf(c.out, "%-8s  %s\n", row[0], plain(row[1]))
				}
			} else if err := c.json(out); err != nil {
				return err
			}
			if out.Refused != "" {
				return &exitError{code: exitNegative}
			}
			return nil
		},
	}
}

// nameOf is a module's name by its file.
func nameOf(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// vectorLine is what became of one vector.
type vectorLine struct {
	Set     string `json:"set"`
	Vector  string `json:"vector"`
	Pass    bool   `json:"pass"`
	Verdict string `json:"verdict"`
	Rule    string `json:"rule"`
	Reason  string `json:"reason"`
	Fault   string `json:"fault,omitempty"`
	Fuel    uint64 `json:"fuel"`
	Why     string `json:"why,omitempty"`
}

func (c *cli) enforcerTest() *cobra.Command {
	var dir string
	var s moduleSettings
	cmd := &cobra.Command{
		Use: "test FILE", Short: "Put golden vectors to a module: verdict, rule, reason and fuel",
		Long: "Put golden vectors to a module: those that it carries and, with --vectors, those of a folder's *.json.\n" +
			"What it writes to standard error is shown. Exit 3 when a vector fails.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := readModule(args[0])
			if err != nil {
				return err
			}
			sets, err := vectorSets(code, dir)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			h, err := wasm.NewHost(ctx, wasm.Options{CacheDir: wasmCache(), Debug: c.err})
			if err != nil {
				return err
			}
			defer h.Close(context.WithoutCancel(ctx))
			m, err := h.LoadLimited(ctx, nameOf(args[0]), code, s.limits())
			if err != nil {
				return err
			}
			var lines []vectorLine
			failed := 0
			for _, set := range sets {
				make, done := conform.Of(m)
				results, err := conform.Run(ctx, set, make)
				done()
				if err != nil {
					return fmt.Errorf("vectors %s: %w", set.Name, err)
				}
				for _, r := range results {
					l := vectorLine{
						Set: set.Name, Vector: r.Vector.Name, Pass: r.Err == nil, Verdict: string(r.Got.Effect), Rule: r.Got.Rule,
						Reason: r.Got.Reason, Fault: r.Fault, Fuel: r.Got.Fuel,
					}
					if r.Err != nil {
						l.Why = r.Err.Error()
						failed++
					}
					lines = append(lines, l)
				}
			}
			if err := rows(c, lines, []string{"", "vector", "verdict", "rule", "reason", "fuel", "why"}, func(l vectorLine) []string {
				word := "ok"
				if !l.Pass {
					word = "FAIL"
				}
				verdict := l.Verdict
				if l.Fault != "" {
					verdict = "fault " + l.Fault
				}
				return []string{word, l.Vector, verdict, l.Rule, l.Reason, fmt.Sprint(l.Fuel), l.Why}
			}); err != nil {
				return err
			}
			if c.output == "table" {
				fmt.Fprintf(c.out, "%d vectors, %d failed\n", len(lines), failed)
			}
			if failed > 0 {
				return &exitError{code: exitNegative}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "vectors", "", "folder of vector files")
	s.flags(cmd)
	return cmd
}

// vectorSets are the vectors that a module carries and those of a folder.
func vectorSets(code []byte, dir string) ([]*conform.Set, error) {
	var sets []*conform.Set
	if own := wasm.Section(code, conform.Section); own != nil {
		set, err := conform.Parse(own)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	if dir != "" {
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil {
			return nil, usage("--vectors: "+err.Error(), "")
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return nil, problem.Wrap(err, problem.Usage, "couldn't read "+f, "")
			}
			set, err := conform.Parse(b)
			if err != nil {
				return nil, problem.Wrap(err, problem.Usage, f+": "+err.Error(), "wasm/schema/vectors.schema.json has the form")
			}
			sets = append(sets, set)
		}
	}
	if len(sets) == 0 {
		return nil, usage("there are no vectors: the module carries none", "name a folder of them with --vectors")
	}
	return sets, nil
}

// flags declares the limits of a module that an operator may raise.
func (s *moduleSettings) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Int64Var(&s.FuelInit, "fuel-init", 0, "fuel to start; 0 = the default of docs/enforcer-abi.md")
	f.Int64Var(&s.FuelConfigure, "fuel-configure", 0, "fuel to configure")
	f.Int64Var(&s.FuelDecide, "fuel-decide", 0, "fuel of one decision")
	f.BoolVar(&s.Untrusted, "untrusted", false, "put a deadline in native code behind the fuel, at 30 to 400 us a call")
}

func (c *cli) enforcerAdd() *cobra.Command {
	var s moduleSettings
	cmd := &cobra.Command{
		Use: "add FILE", Short: "Check a module, run the vectors it carries, and keep it on this node",
		Long: "Check a module, run the vectors it carries, and keep it in the state folder. Prints the reference that a bundle names it by.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Check(c.file(cmd))
			if err != nil {
				return err
			}
			code, err := readModule(args[0])
			if err != nil {
				return err
			}
			if s.Name == "" {
				s.Name = nameOf(args[0])
			}
			ctx := cmd.Context()
			h, err := wasm.NewHost(ctx, wasm.Options{CacheDir: wasmCache(), Debug: c.err})
			if err != nil {
				return err
			}
			defer h.Close(context.WithoutCancel(ctx))
			ref, err := modulesOf(cfg).add(ctx, h, code, s)
			if err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(map[string]string{"module": ref})
			}
			fmt.Fprintln(c.out, ref)
			return nil
		},
	}
	cmd.Flags().StringVar(&s.Name, "name", "", "what bundles call it; default: the file's name")
	s.flags(cmd)
	return cmd
}

func (c *cli) enforcerNew() *cobra.Command {
	var language string
	cmd := &cobra.Command{
		Use: "new --lang go|rust NAME", Short: "Write a working enforcer to start from into the folder NAME", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			files, err := sdk.Template(language, name)
			if err != nil {
				return usage(err.Error(), "see `gatehouse enforcer new --help`")
			}
			vectors, err := fs.ReadFile(conform.Vectors, "vectors/denylist.json")
			if err != nil {
				return err
			}
			files["vectors/denylist.json"] = vectors
			if err := os.Mkdir(name, 0o755); err != nil {
				return problem.Wrap(err, problem.Conflict, "couldn't make the folder "+name, "choose another name, or remove it")
			}
			for path, b := range files {
				at := filepath.Join(name, filepath.FromSlash(path))
				mode := fs.FileMode(0o644)
				if filepath.Ext(path) == ".sh" {
					mode = 0o755
				}
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					return err
				}
				if err := os.WriteFile(at, b, mode); err != nil {
					return err
				}
			}
			fmt.Fprintf(c.out, "wrote %d files to %s; next: cd %s && ./build.sh && gatehouse enforcer test %s.wasm --vectors vectors\n", len(files), name, name, name)
			return nil
		},
	}
	cmd.Flags().StringVar(&language, "lang", "go", strings.Join(sdk.Languages(), " or "))
	return cmd
}
