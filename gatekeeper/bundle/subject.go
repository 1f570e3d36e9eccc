package bundle

import (
	"fmt"
	"strings"

	"gatehouse/internal/problem"
)

// Subject is what one session works on: the compiled policy is bound to it.
type Subject struct {
	Repository string            // numeric id of the session's repository, "" without git
	Name       string            // its owner/name
	Siblings   map[string]string // sibling owner/name -> id
	Entity     string            // stands for {entity} in refs, "" when the event has none
	Upstreams  []Upstream        // the node's connections of kind model, scm and telemetry
}

// Upstream is where a connection's requests go. They are judged by their own
// enforcers; egress only has to let tunnels and names through.
type Upstream struct {
	Connection string
	Kind       string // model | scm | telemetry
	Hosts      []string
}

// Subject resolves the session's repository and siblings against the node's
// list, id to owner/name. A repository that is not listed is refused with
// repository_not_listed, whoever named it.
func (b *Bundle) Subject(f Facts) (Subject, error) {
	s := Subject{Entity: f.entity}
	if b.Git == nil {
		if _, ok := f.Lookup(nameOfRepository); !ok && b.usesRepositoryName() {
			return Subject{}, b.notListed(f)
		}
		return s, nil
	}
	ids := make(map[string]string, len(f.names))
	for id, name := range f.names {
		ids[strings.ToLower(name)] = id
	}
	g := b.Git.Repository
	switch {
	case g.By != "":
		v, ok := f.One(g.By)
		if !ok || g.Map[v] == "" {
			return Subject{}, problem.New(problem.RepositoryNotListed, fmt.Sprintf("bundle %s maps no repository to this event's %s", b.Name, g.By), "add the value to git.repository.map")
		}
		s.Name = g.Map[v]
	case g.Name == SessionRepository:
		s.Name = f.names[f.RepositoryID()]
	default:
		s.Name = g.Name
	}
	if s.Repository = ids[strings.ToLower(s.Name)]; s.Repository == "" {
		return Subject{}, b.notListed(f)
	}
	s.Siblings = make(map[string]string, len(b.Git.Siblings))
	for _, sib := range b.Git.Siblings {
		id := ids[strings.ToLower(sib.Repository)]
		if id == "" {
			return Subject{}, problem.New(problem.RepositoryNotListed, fmt.Sprintf("bundle %s grants the sibling %s, which the node does not list", b.Name, sib.Repository), "add its id and name to repositories: in the configuration")
		}
		s.Siblings[sib.Repository] = id
	}
	return s, nil
}

// Namespaces returns the literal beginnings of the refs that sessions of the
// bundle may push. An event on a ref below one was caused by a session.
func (b *Bundle) Namespaces() []string {
	if b.Git == nil || b.Git.Push == nil {
		return nil
	}
	var out []string
	for _, ref := range b.Git.Push.Refs {
		if i := strings.IndexAny(ref, "*{"); i >= 0 {
			ref = ref[:i]
		}
		out = append(out, ref)
	}
	return out
}
