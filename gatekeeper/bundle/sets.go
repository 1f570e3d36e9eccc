package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/netip"
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
