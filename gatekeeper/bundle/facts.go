package bundle

import (
	"crypto/sha256"
	"encoding/hex"
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

// Entity names what the event is about in a form that can stand in a ref:
// lower-case [a-z0-9-]. Pull requests and issues go by number. A workflow run
// goes by its pull request if it has exactly one of the same repository, so
// that a later session continues that branch; else by workflow and branch. ""
// when the event is about nothing that has an id.
func Entity(e *event.Event) string {
	switch e.Entity.Kind {
	case "workflow_run":
		// The source lists a pull request only if head and base are this repository.
		if prs := e.Lists["pull_requests"]; len(prs) == 1 && entityForm.MatchString("pr-"+prs[0]) {
			return "pr-" + prs[0]
		}
		// The branch's name is text. A digest of it tells branches apart and says nothing.
		name := "wf-" + e.Facts["workflow_id"] + "-" + e.Facts["branch_hash"]
		if e.Facts["workflow_id"] == "" || len(e.Facts["branch_hash"]) != 8 || !entityForm.MatchString(name) {
			return ""
		}
		return name
	case "pull_request":
		return numbered("pr", e.Entity)
	case "issue":
		return numbered("issue", e.Entity)
	case "":
		return ""
	}
	return numbered(strings.ReplaceAll(strings.ToLower(e.Entity.Kind), "_", "-"), e.Entity)
}

var entityForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func numbered(prefix string, e event.Entity) string {
	id := e.Number
	if id == "" {
		id = e.ID
	}
	name := prefix + "-" + strings.ToLower(id)
	if id == "" {
		return ""
	}
	if !entityForm.MatchString(name) {
		sum := sha256.Sum256([]byte(id))
		name = prefix + "-" + hex.EncodeToString(sum[:8])
	}
	if !entityForm.MatchString(name) {
		return ""
	}
	return name
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
