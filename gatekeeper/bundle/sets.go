package bundle

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

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
	// Name is the name that bundles use; the file is NAME.yaml.
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
	for i, host := range s.Hosts {
		e := Egress{Host: host, Ports: s.Ports, Schemes: s.Schemes, Methods: s.Methods, Paths: s.Paths, EncodedSlash: s.EncodedSlash, Addresses: s.Addresses}
		e = e.clone()
		if msg, hint := e.wrong(); msg != "" {
			return nil, invalid(fmt.Sprintf("set: hosts[%d] %s", i, msg), hint)
		}
		if err := e.normalize(); err != nil {
			return nil, invalid(fmt.Sprintf("set: hosts[%d]: %v", i, err), "")
		}
		s.rules = append(s.rules, e)
	}
	return s, nil
}

// Digest returns the SHA-256 of the set's rules in canonical form; it stands
// in session.open.
func (s *Set) Digest() [32]byte {
	return sha256.Sum256(marshal(map[string]any{"name": s.Name, "rules": treeOf(s.rules)}))
}

// Sets resolves names to NAME.yaml in a folder.
func Sets(dir fs.FS) SetResolver { return setFolder{dir} }

type setFolder struct{ dir fs.FS }

func (f setFolder) Set(name string) (*Set, error) {
	if !tokenForm.MatchString(name) {
		return nil, invalid(fmt.Sprintf("%q is not a set's name", name), "")
	}
	src, err := fs.ReadFile(f.dir, name+".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.New(problem.NotFound, "there is no egress set "+name, "make it with gatehouse set add, or name hosts in the bundle")
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.NotFound, "couldn't read the egress set "+name, "")
	}
	s, err := ParseSet(src)
	if err == nil && s.Name != name {
		return nil, invalid(fmt.Sprintf("%s.yaml says name: %s", name, s.Name), "a set's file is named after it")
	}
	return s, err
}
