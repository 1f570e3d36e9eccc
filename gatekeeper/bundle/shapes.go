package bundle

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"gatehouse/internal/problem"
	"gatehouse/internal/strictyaml"
)

// Some keys are either one word or a map that says more. Their types judge
// their own YAML node and write their own canonical form (tree).

// Credential policies, strictest first.
const (
	CredentialFree = "credential_free"
	Required       = "required"
	Compatibility  = "compatibility"
)

// Credentials is the credential policy of DESIGN.md section 7.
type Credentials struct {
	Policy string     // credential_free | required | compatibility
	Weaker *Exception // set exactly when Policy is compatibility
}

type compatibility struct {
	Compatibility Exception `yaml:"compatibility" validate:"required"`
}

// UnmarshalYAML reads credential_free, required, or {compatibility: {reason, expires}}.
func (c *Credentials) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.Value == Compatibility {
			return shape(n, "compatibility needs a reason and an expiry", "write {compatibility: {reason: ..., expires: 2027-01-31}}")
		}
		return word(n, &c.Policy, CredentialFree, Required)
	}
	var m compatibility
	if err := strictyaml.Node(n, "credentials", &m); err != nil {
		return err
	}
	c.Policy, c.Weaker = Compatibility, &m.Compatibility
	return nil
}

func (c Credentials) tree() any {
	if c.Weaker != nil {
		return map[string]any{Compatibility: treeOf(*c.Weaker)}
	}
	return c.Policy
}

// rank is 0 for the strictest policy.
func (c Credentials) rank() int {
	return slices.Index([]string{CredentialFree, Required, Compatibility}, c.Policy)
}

// Agents that Gatehouse knows how to start.
var agents = []string{"claude-code", "codex", "gemini", "opencode"}

// Agent is a known agent or a command.
type Agent struct {
	Name string   // claude-code, codex, gemini, opencode or command
	Argv []string // set exactly when Name is command
}

// AgentCommand is the Name of an agent that is a plain command.
const AgentCommand = "command"

type command struct {
	Command struct {
		Argv []string `yaml:"argv"`
	} `yaml:"command"`
}

// UnmarshalYAML reads a name or {command: {argv: [...]}}.
func (a *Agent) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return word(n, &a.Name, agents...)
	}
	var m command
	if err := strictyaml.Node(n, "session.agent", &m); err != nil {
		return err
	}
	if len(m.Command.Argv) == 0 || m.Command.Argv[0] == "" {
		return shape(n, "session.agent.command.argv is empty", "name the program first, then its arguments")
	}
	if slices.ContainsFunc(m.Command.Argv, func(s string) bool { return strings.Contains(s, "\x00") }) {
		return shape(n, "session.agent.command.argv holds a NUL byte", "")
	}
	a.Name, a.Argv = AgentCommand, m.Command.Argv
	return nil
}

func (a Agent) tree() any {
	if a.Name == AgentCommand {
		return map[string]any{AgentCommand: map[string]any{"argv": treeOf(a.Argv)}}
	}
	return a.Name
}

// Rootfs is where the sandbox's system folders come from.
type Rootfs struct {
	Kind  string // host | dir | oci
	Value string // path of dir, image of oci
}

type rootfsMap struct {
	Dir string `yaml:"dir"`
	OCI string `yaml:"oci"`
}

// UnmarshalYAML reads host, {dir: PATH} or {oci: IMAGE@sha256:DIGEST}.
func (r *Rootfs) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return word(n, &r.Kind, "host")
	}
	var m rootfsMap
	if err := strictyaml.Node(n, "session.rootfs", &m); err != nil {
		return err
	}
	switch {
	case (m.Dir == "") == (m.OCI == ""):
		return shape(n, "session.rootfs has not exactly one of dir and oci", "")
	case m.Dir != "" && !absPath(m.Dir):
		return shape(n, "session.rootfs.dir is not a clean absolute path", "")
	case m.OCI != "" && !imageForm.MatchString(m.OCI):
		return shape(n, "session.rootfs.oci names no digest", "write IMAGE@sha256:DIGEST; a tag can be moved")
	case m.Dir != "":
		r.Kind, r.Value = "dir", m.Dir
	default:
		r.Kind, r.Value = "oci", m.OCI
	}
	return nil
}

func (r Rootfs) tree() any {
	if r.Value == "" {
		return r.Kind
	}
	return map[string]any{r.Kind: r.Value}
}

// SessionRepository as GitRepository.Name stands for the event's own repository.
const SessionRepository = "session"

// GitRepository says which repository a session works in.
type GitRepository struct {
	Name string            // session or owner/name, "" when By is set
	By   string            // fact whose value Map is keyed by
	Map  map[string]string // value -> owner/name
}

type repositoryMap struct {
	By  string            `yaml:"by"`
	Map map[string]string `yaml:"map"`
}

// UnmarshalYAML reads session, owner/name, or {by: FACT, map: {...}}.
func (g *GitRepository) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.Value != SessionRepository && !repositoryForm.MatchString(n.Value) {
			return shape(n, fmt.Sprintf("git.repository: %q is neither session nor owner/name", n.Value), "")
		}
		g.Name = n.Value
		return nil
	}
	var m repositoryMap
	if err := strictyaml.Node(n, "git.repository", &m); err != nil {
		return err
	}
	if len(m.Map) == 0 || !factForm.MatchString(m.By) {
		return shape(n, "git.repository needs by: FACT and a map", "for example {by: project.id, map: {\"450\": acme/app}}")
	}
	for _, name := range m.Map {
		if !repositoryForm.MatchString(name) {
			return shape(n, fmt.Sprintf("git.repository.map: %q is not owner/name", name), "")
		}
	}
	g.By, g.Map = strings.TrimPrefix(m.By, factsPrefix), m.Map
	return nil
}

func (g GitRepository) tree() any {
	if g.By != "" {
		return map[string]any{"by": g.By, "map": treeOf(g.Map)}
	}
	return g.Name
}

// Condition is what a fact must satisfy: all of its parts. For a list fact one
// element must satisfy Any, Prefix, Glob, Min and Max together, and none may be
// in Not.
type Condition struct {
	Any    []string // equal to one of these
	Prefix string
	Glob   string // * any run of characters, ? one
	Min    *int64
	Max    *int64
	Not    []string
}

type conditionMap struct {
	Prefix string    `yaml:"prefix"`
	Glob   string    `yaml:"glob"`
	Min    *int64    `yaml:"min"`
	Max    *int64    `yaml:"max"`
	Not    *wordList `yaml:"not"`
}

// wordList is one scalar or a list of scalars, each as it was written: an id
// of seven digits must not become a float on its way.
type wordList []string

func (l *wordList) UnmarshalYAML(n *yaml.Node) error {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	for _, item := range items {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" || item.Value == "" {
			return shape(item, "a condition compares with a value or a list of values", "")
		}
		*l = append(*l, item.Value)
	}
	if len(*l) == 0 {
		return shape(n, "an empty list matches nothing", "remove the condition or name a value")
	}
	slices.Sort(*l)
	*l = slices.Compact(*l)
	return nil
}

// UnmarshalYAML reads a value, a list of values, or {prefix, glob, min, max, not}.
func (c *Condition) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		var l wordList
		err := l.UnmarshalYAML(n)
		c.Any = l
		return err
	}
	var m conditionMap
	if err := strictyaml.Node(n, "where", &m); err != nil {
		return err
	}
	c.Prefix, c.Glob, c.Min, c.Max = m.Prefix, m.Glob, m.Min, m.Max
	if m.Not != nil {
		c.Not = *m.Not
	}
	if c.empty() {
		return shape(n, "the condition is empty", "use prefix, glob, min, max or not")
	}
	return nil
}

func (c Condition) empty() bool {
	return len(c.Any) == 0 && c.Prefix == "" && c.Glob == "" && c.Min == nil && c.Max == nil && len(c.Not) == 0
}

func (c Condition) tree() any {
	if len(c.Any) > 0 {
		return treeOf(c.Any)
	}
	m := map[string]any{}
	if c.Prefix != "" {
		m["prefix"] = c.Prefix
	}
	if c.Glob != "" {
		m["glob"] = c.Glob
	}
	if c.Min != nil {
		m["min"] = *c.Min
	}
	if c.Max != nil {
		m["max"] = *c.Max
	}
	if len(c.Not) > 0 {
		m["not"] = treeOf(c.Not)
	}
	return m
}

// word accepts one of a closed list.
func word(n *yaml.Node, out *string, known ...string) error {
	if !slices.Contains(known, n.Value) {
		hint := "known: " + strings.Join(known, ", ")
		if near := strictyaml.Nearest(n.Value, known); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return shape(n, fmt.Sprintf("%q is not known here", n.Value), hint)
	}
	*out = n.Value
	return nil
}

func shape(n *yaml.Node, msg, hint string) *problem.Error {
	return invalid(fmt.Sprintf("line %d: %s", n.Line, msg), hint)
}
