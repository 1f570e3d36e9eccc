package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/clientconf"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

// setShapes are what the clients of each kind do, beside where they go.
var setShapes = map[string]struct {
	methods []string
	slash   bool // names with an encoded slash in the path
}{
	"cargo":    {methods: []string{"GET", "HEAD"}},
	"debian":   {methods: []string{"GET", "HEAD"}},
	"git-host": {methods: []string{"GET", "POST"}}, // a fetch is a POST
	"go":       {methods: []string{"GET", "HEAD"}},
	"maven":    {methods: []string{"GET", "HEAD"}},
	"npm":      {methods: []string{"GET", "HEAD"}, slash: true},
	"pypi":     {methods: []string{"GET", "HEAD"}},
}

// setFile is a set as it is written; bundle.ParseSet reads it.
type setFile struct {
	APIVersion   string   `yaml:"apiVersion"`
	Kind         string   `yaml:"kind"`
	Name         string   `yaml:"name"`
	Hosts        []string `yaml:"hosts,flow"`
	Ports        []uint16 `yaml:"ports,omitempty,flow"`
	Schemes      []string `yaml:"schemes,omitempty,flow"`
	Methods      []string `yaml:"methods,flow"`
	EncodedSlash bool     `yaml:"encoded_slash,omitempty"`
}

func (c *cli) setCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set", Short: "Make egress sets from this machine's own client configuration", Args: cobra.NoArgs, RunE: help,
		Long: "Make egress sets, lists of hosts that bundles name in one word, from this machine's own client configuration. Gatehouse knows no\n" +
			"registry: what npm, pip, go, cargo, maven, apt and git are configured for here, a private mirror too, is what a set holds.",
	}
	cmd.AddCommand(c.setAdd(), c.setList())
	return cmd
}

func (c *cli) setAdd() *cobra.Command {
	var hosts []string
	var name string
	var replace bool
	cmd := &cobra.Command{
		Use:   "add " + strings.Join(clientconf.Kinds(), "|"),
		Short: "Write the set of one kind of client", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Check(c.file(cmd))
			if err != nil {
				return err
			}
			places, err := placesOf(args[0], hosts)
			if err != nil {
				return err
			}
			src, set, err := setOf(args[0], cmp.Or(name, args[0]), places)
			if err != nil {
				return err
			}
			dir := cfg.Path(cfg.Sets)
			path := filepath.Join(dir, set.File())
			others, err := bundle.SetFiles(setsDir(cfg), set.Name)
			if err != nil {
				return problem.Wrap(err, problem.ConfigInvalid, "couldn't read the sets", "")
			}
			others = slices.DeleteFunc(others, func(f string) bool { return f == set.File() })
			if len(others) > 0 && !replace {
				return problem.New(problem.Conflict, filepath.Join(dir, others[0])+" exists and is another one", "look at it, then use --replace, or choose another --name")
			}
			if err := writeSet(dir, path, src, others); err != nil {
				return problem.Wrap(err, problem.ConfigInvalid, "couldn't write the set", "")
			}
			if c.output != "table" {
				return c.json(setRow(set))
			}
			fmt.Fprintf(c.out, "%s, sha256:%x\n", path, set.Digest())
			for _, p := range places {
				fmt.Fprintf(c.out, "  %s  from %s\n", plain(p.Host), plain(p.From))
			}
			fmt.Fprintf(c.out, "write in a bundle's egress: - {set: %s}\n", set.Name)
			if len(others) > 0 {
				fmt.Fprintf(c.out, "bundles in force keep the set that they were applied with: apply those that name %s again\n", set.Name)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&hosts, "host", nil, "a host, instead of those that this machine's client is configured for; may be repeated")
	f.StringVar(&name, "name", "", "name of the set (default: the kind)")
	f.BoolVar(&replace, "replace", false, "replace the set of that name")
	return cmd
}

// writeSet writes a set's file, and removes those it takes the place of only when
// it is there: until then a bundle that names the set is refused, never judged by
// the wrong one.
func writeSet(dir, path string, src []byte, others []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := replaceFile(path, src); err != nil {
		return err
	}
	for _, f := range others {
		if err := os.Remove(filepath.Join(dir, f)); err != nil {
			return err
		}
	}
	return nil
}

// placesOf returns the hosts that the command line names, or what the machine's
// client is configured for.
func placesOf(kind string, hosts []string) ([]clientconf.Found, error) {
	if _, ok := setShapes[kind]; !ok {
		return nil, usage(fmt.Sprintf("%q is no kind of client", kind), "use one of "+strings.Join(clientconf.Kinds(), ", "))
	}
	var places []clientconf.Found
	for _, h := range hosts {
		places = append(places, clientconf.Found{Scheme: "https", Host: strings.ToLower(h), Port: 443, From: "--host"})
	}
	if len(places) > 0 {
		return places, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, problem.Wrap(err, problem.Usage, "the user has no home folder", "name the hosts with --host")
	}
	places, err = clientconf.Read(kind, clientconf.Machine{Root: os.DirFS("/"), Home: home, Env: os.Getenv})
	if err == nil && len(places) == 0 {
		err = problem.New(problem.NotFound, "nothing on this machine says where "+kind+" goes", "configure the client as usual, or name the hosts with --host")
	}
	return places, err
}

// setOf returns the set's file and the set that a bundle will read from it.
func setOf(kind, name string, places []clientconf.Found) ([]byte, *bundle.Set, error) {
	shape := setShapes[kind]
	f := setFile{APIVersion: "gatehouse/v1", Kind: "EgressSet", Name: name, Methods: shape.methods, EncodedSlash: shape.slash}
	add := func(p clientconf.Found) {
		if !slices.Contains(f.Hosts, p.Host) {
			f.Hosts = append(f.Hosts, p.Host)
		}
		if !slices.Contains(f.Ports, p.Port) {
			f.Ports = append(f.Ports, p.Port)
		}
		if !slices.Contains(f.Schemes, p.Scheme) {
			f.Schemes = append(f.Schemes, p.Scheme)
		}
	}
	for _, p := range places {
		add(p)
	}
	slices.Sort(f.Hosts)
	slices.Sort(f.Ports)
	slices.Sort(f.Schemes)
	if slices.Equal(f.Ports, []uint16{443}) && slices.Equal(f.Schemes, []string{"https"}) {
		f.Ports, f.Schemes = nil, nil // the defaults
	}
	src, err := yaml.Marshal(f)
	if err != nil {
		return nil, nil, err
	}
	set, err := bundle.ParseSet(src)
	return src, set, err
}

func (c *cli) setList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List this node's egress sets with their digests", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Check(c.file(cmd))
			if err != nil {
				return err
			}
			sets := bundle.Sets(setsDir(cfg))
			var all []setLine
			for _, name := range setNames(setsDir(cfg)) {
				set, err := sets.Set(name)
				if err != nil {
					return err
				}
				all = append(all, setRow(set))
			}
			return rows(c, all, []string{"SET", "HOSTS", "METHODS", "DIGEST"}, func(r setLine) []string {
				return []string{r.Name, strings.Join(r.Hosts, " "), strings.Join(r.Methods, " "), r.Digest}
			})
		},
	}
}

// setLine is one set as set add and set list show it.
type setLine struct {
	Name    string   `json:"name"`
	Hosts   []string `json:"hosts"`
	Methods []string `json:"methods"`
	Digest  string   `json:"digest"` // as it stands in session.open
}

func setRow(s *bundle.Set) setLine {
	return setLine{s.Name, s.Hosts, s.Methods, fmt.Sprintf("sha256:%x", s.Digest())}
}
