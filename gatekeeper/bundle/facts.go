package bundle

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"gatehouse/internal/event"
)

// Names of values that are not facts of the event.
const (
	nameOfRepository = "repository.name" // from the node's repositories list, by repository.id
	idOfRepository   = "repository.id"
	nameOfEntity     = "entity"
)

// Facts is all of an event that matching, templates and keys can see: closed
// values and names from the node's own list. It holds no text, so nothing that
// reads it can be steered by what somebody wrote.
type Facts struct {
	Source, Endpoint, Kind, Action string

	values map[string]string
	lists  map[string][]string
	names  map[string]string // repository id -> owner/name
	entity string
}

// FactsOf takes the facts of e. repositories is the node's list, id to
// owner/name.
func FactsOf(e *event.Event, repositories map[string]string) Facts {
	return Facts{
		Source: e.Source, Endpoint: e.Endpoint, Kind: e.Kind, Action: e.Action,
		values: maps.Clone(e.Facts), lists: maps.Clone(e.Lists), names: repositories, entity: Entity(e),
	}
}

// Lookup returns the values of a fact; a list fact has any number of them.
func (f Facts) Lookup(name string) (values []string, ok bool) {
	switch name = strings.TrimPrefix(name, factsPrefix); name {
	case nameOfRepository:
		v, ok := f.names[f.values[idOfRepository]]
		return []string{v}, ok
	case nameOfEntity:
		return []string{f.entity}, f.entity != ""
	}
	if v, ok := f.values[name]; ok {
		return []string{v}, true
	}
	l, ok := f.lists[name]
	return l, ok && len(l) > 0
}

// One returns a fact that has a single value.
func (f Facts) One(name string) (string, bool) {
	v, ok := f.Lookup(name)
	if !ok || len(v) != 1 {
		return "", false
	}
	return v[0], true
}

// Known lists the names that Lookup answers, sorted.
func (f Facts) Known() []string {
	names := slices.Concat(slices.Collect(maps.Keys(f.values)), slices.Collect(maps.Keys(f.lists)))
	if _, ok := f.Lookup(nameOfRepository); ok {
		names = append(names, nameOfRepository)
	}
	if f.entity != "" {
		names = append(names, nameOfEntity)
	}
	slices.Sort(names)
	return names
}

// RepositoryID returns the event's repository, "" if it has none.
func (f Facts) RepositoryID() string { return f.values[idOfRepository] }

var entityForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,99}$`)

// Entity is the event's slug, which can stand in a ref, and "" when the event
// is about nothing that has an id.
func Entity(e *event.Event) string {
	if e.Entity.ID == "" && e.Entity.Number == "" {
		return ""
	}
	if slug := e.Slug(); entityForm.MatchString(slug) {
		return slug
	}
	return ""
}

// EntityKey tells entities of different repositories apart, "" for an event
// that is about nothing.
func EntityKey(e *event.Event) string {
	name := Entity(e)
	if name == "" {
		return ""
	}
	where := e.Facts[idOfRepository]
	if where == "" {
		where = e.Source + ":" + e.Endpoint
	}
	return where + "/" + name
}
