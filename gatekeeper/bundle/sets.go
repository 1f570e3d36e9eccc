package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"gatehouse/internal/problem"
	"gatehouse/internal/strictyaml"
)

// Set is a named list of hosts that the node's operator made from the node's
// own client configuration (gatehouse set add). No host stands in Gatehouse.
type Set struct {
	// APIVersion is gatehouse/v1.
	APIVersion string `yaml:"apiVersion" validate:"required,eq=gatehouse/v1"`
	// Kind is EgressSet.
	Kind string `yaml:"kind" validate:"required,eq=EgressSet"`
	// Name is the name that bundles use; the file is NAME@DIGEST.yaml, or NAME.yaml when it is written by hand.
	Name string `yaml:"name" validate:"required,token"`
	// Hosts are names, *.name or **.name.
	Hosts []string `yaml:"hosts" validate:"required,min=1,max=256,unique"`
	// Ports, Schemes, Methods, Paths, EncodedSlash and Addresses are as in an egress rule and hold for every host.
	Ports        []uint16       `yaml:"ports,omitempty" validate:"unique,dive,gte=1"`
	Schemes      []string       `yaml:"schemes,omitempty" validate:"unique,dive,oneof=http https"`
	Methods      []string       `yaml:"methods,omitempty" validate:"unique,dive,method"`
	Paths        []string       `yaml:"paths,omitempty" validate:"unique,dive,urlpath"`
	EncodedSlash bool           `yaml:"encoded_slash,omitempty"`
	Addresses    []netip.Prefix `yaml:"addresses,omitempty"`

	rules []Egress // one for each host, normalized
}

// SetResolver finds the set that a bundle names.
type SetResolver interface {
	// Set returns the named set, or an error with code not_found or config_invalid.
	Set(name string) (*Set, error)
}

// ParseSet reads one set file.
func ParseSet(src []byte) (*Set, error) {
	s := &Set{}
	if err := strictyaml.Decode("set", src, s); err != nil {
		return nil, err
	}
	if err := rules().Struct(s); err != nil {
		return nil, invalid("set: "+err.Error(), "see docs/bundles.md")
	}
	c := s.content()
	if msg, hint := c.normalize(); msg != "" {
		return nil, invalid("set: "+msg, hint)
	}
	s.rules = c.rules
	return s, nil
}

func (s *Set) content() SetContent {
	return SetContent{s.Hosts, s.Ports, s.Schemes, s.Methods, s.Paths, s.EncodedSlash, s.Addresses, s.rules}
}

// normalize makes the set's rules and writes every list in its only form. msg
// says what is wrong with it.
func (c *SetContent) normalize() (msg, hint string) {
	c.rules = nil
	for i, host := range c.Hosts {
		e := Egress{Host: host, Ports: c.Ports, Schemes: c.Schemes, Methods: c.Methods, Paths: c.Paths, EncodedSlash: c.EncodedSlash, Addresses: c.Addresses}
		e = e.clone()
		if msg, hint := e.wrong(); msg != "" {
			return fmt.Sprintf("hosts[%d] %s", i, msg), hint
		}
		if err := e.normalize(); err != nil {
			return fmt.Sprintf("hosts[%d]: %v", i, err), ""
		}
		c.rules = append(c.rules, e)
	}
	hosts := make([]string, len(c.rules))
	for i := range c.rules {
		hosts[i] = c.rules[i].Host
	}
	first := c.rules[0].clone() // every rule has the same lists
	c.Hosts, c.Ports, c.Schemes, c.Methods, c.Paths, c.Addresses = hosts, first.Ports, first.Schemes, first.Methods, first.Paths, first.Addresses
	return "", ""
}

// Rules returns the set's rules, one for each host. They are not to be changed.
func (c SetContent) Rules() []Egress { return c.rules }

// Pin returns the bundle with the content of every set that it names, read from
// sets where the bundle does not hold it already. It is part of the version from
// then on: of its bytes, its digest and what it covers.
func (b *Bundle) Pin(sets SetResolver) (*Bundle, error) {
	pinned := maps.Clone(b.Sets)
	for i := range b.Egress {
		name := b.Egress[i].Set
		if _, have := pinned[name]; name == "" || have {
			continue
		}
		if sets == nil {
			return nil, problem.New(problem.NotFound, "there is no egress set "+name, "make it with gatehouse set add, or name hosts in the bundle")
		}
		s, err := sets.Set(name)
		if err != nil {
			return nil, err
		}
		c := s.content()
		c.normalize() // ParseSet found nothing wrong
		if pinned == nil {
			pinned = map[string]SetContent{}
		}
		pinned[name] = c
	}
	c := *b
	c.Sets = pinned
	return &c, nil
}

// ResolveSet returns a set that the bundle names: as the version holds it, and only
// where it holds none, as sets has it now. Nil sets are for what must not change
// underneath: a session.
func (b *Bundle) ResolveSet(name string, sets SetResolver) (*Set, error) {
	if c, ok := b.Sets[name]; ok {
		return &Set{Version, "EgressSet", name, c.Hosts, c.Ports, c.Schemes, c.Methods, c.Paths, c.EncodedSlash, c.Addresses, c.rules}, nil
	}
	if sets == nil {
		return nil, problem.New(problem.SetNotPinned, "the version of bundle "+b.Name+" in force does not hold its egress set "+name, "apply the bundle again; under hard mode that waits for approval")
	}
	return sets.Set(name)
}

// SetChange is a set whose file is another one than a version of a bundle holds.
type SetChange struct {
	Set        string
	Added      []string // hosts
	Removed    []string
	Other      bool   // something else than hosts differs
	Unreadable string // why the file cannot be read
}

// String says it in words.
func (c SetChange) String() string {
	var parts []string
	if len(c.Added) > 0 {
		parts = append(parts, "adds "+strings.Join(c.Added, ", "))
	}
	if len(c.Removed) > 0 {
		parts = append(parts, "leaves out "+strings.Join(c.Removed, ", "))
	}
	if c.Other {
		parts = append(parts, "has other ports, schemes, methods, paths or addresses")
	}
	if c.Unreadable != "" {
		parts = append(parts, "cannot be read: "+c.Unreadable)
	}
	if len(parts) == 0 {
		parts = append(parts, "names its hosts in another order")
	}
	return "set " + c.Set + " " + strings.Join(parts, " and ")
}

// SetChanges compares what the version holds with the node's files, by name. A
// set that the version does not hold is left out.
func (b *Bundle) SetChanges(sets SetResolver) []SetChange {
	var out []SetChange
	for _, name := range slices.Sorted(maps.Keys(b.Sets)) {
		have := b.Sets[name]
		now, err := sets.Set(name)
		if err != nil {
			out = append(out, SetChange{Set: name, Unreadable: err.Error()})
			continue
		}
		if was, _ := b.ResolveSet(name, nil); was.Digest() == now.Digest() {
			continue
		}
		c := SetChange{Set: name}
		for _, r := range now.rules {
			if !slices.Contains(have.Hosts, r.Host) {
				c.Added = append(c.Added, r.Host)
			}
		}
		for _, h := range have.Hosts {
			if !slices.ContainsFunc(now.rules, func(r Egress) bool { return r.Host == h }) {
				c.Removed = append(c.Removed, h)
			}
		}
		a, z := have.rules[0], now.rules[0]
		a.Host, z.Host, a.Names, z.Names = "", "", 0, 0
		c.Other = !reflect.DeepEqual(treeOf(a), treeOf(z))
		out = append(out, c)
	}
	return out
}

// Digest returns the SHA-256 of the set's rules in canonical form; it stands
// in session.open.
func (s *Set) Digest() [32]byte {
	return sha256.Sum256(marshal(map[string]any{"name": s.Name, "rules": treeOf(s.rules)}))
}

// File returns the name of the set's file: its own, and the beginning of its
// digest, so that an edited set is not taken for the one it was.
func (s *Set) File() string {
	d := s.Digest()
	return s.Name + "@" + hex.EncodeToString(d[:setDigest]) + ".yaml"
}

const setDigest = 8 // bytes of a digest in a file's name

// SetFiles returns the files in a folder that hold a set of that name: one, when
// all is well.
func SetFiles(dir fs.FS, name string) ([]string, error) {
	files, err := fs.Glob(dir, name+"@*.yaml")
	if err != nil {
		return nil, err
	}
	if _, err := fs.Stat(dir, name+".yaml"); err == nil {
		files = append(files, name+".yaml")
	}
	return files, nil
}

// Sets resolves names to the one file of a set in a folder. A file with a digest
// in its name must have it.
func Sets(dir fs.FS) SetResolver { return setFolder{dir} }

type setFolder struct{ dir fs.FS }

func (f setFolder) Set(name string) (*Set, error) {
	if !tokenForm.MatchString(name) {
		return nil, invalid(fmt.Sprintf("%q is not a set's name", name), "")
	}
	files, err := SetFiles(f.dir, name)
	if err != nil {
		return nil, err
	}
	if len(files) > 1 {
		return nil, invalid(fmt.Sprintf("there are %d egress sets %s: %s", len(files), name, strings.Join(files, ", ")), "keep one of them")
	}
	if len(files) == 0 {
		return nil, problem.New(problem.NotFound, "there is no egress set "+name, "make it with gatehouse set add, or name hosts in the bundle")
	}
	src, err := fs.ReadFile(f.dir, files[0])
	if err != nil {
		return nil, problem.Wrap(err, problem.NotFound, "couldn't read the egress set "+name, "")
	}
	s, err := ParseSet(src)
	switch {
	case err != nil:
		return nil, err
	case s.Name != name:
		return nil, invalid(fmt.Sprintf("%s says name: %s", files[0], s.Name), "a set's file is named after it")
	case files[0] != name+".yaml" && files[0] != s.File():
		return nil, invalid(files[0]+" is not what its name says", "somebody edited it: make it again with gatehouse set add --replace, or name it "+s.File())
	}
	return s, nil
}
