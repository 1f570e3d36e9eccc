package bundle

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gatehouse/internal/problem"
)

var templateForm = regexp.MustCompile(`\{\{[ \t]*([^{}]*?)[ \t]*\}\}`)

// valueForm is what a value may look like to stand in a task: an id, an enum,
// a number, a name of the operator's own. Facts are closed values already;
// this keeps a careless table in a source from turning into a prompt.
var valueForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,199}$`)

// templateSyntax judges what the task says about itself; which names exist and
// which are text is Lint's to say.
func (b *Bundle) templateSyntax() error {
	task := b.Session.Task
	if strings.ContainsFunc(task, func(r rune) bool { return r < 0x20 && r != '\n' && r != '\t' || r == 0x7f }) {
		return b.bad("/session/task", "session.task holds control characters", "")
	}
	for _, name := range templateNames(task) {
		if !factForm.MatchString(name) {
			return b.bad("/session/task", fmt.Sprintf("session.task: {{ %s }} is not a name", name), "write {{ run_id }}, {{ entity }} or {{ repository.name }}; there are no functions")
		}
	}
	if rest := templateForm.ReplaceAllString(task, ""); strings.Contains(rest, "{{") {
		return b.bad("/session/task", "session.task has {{ without }}", "")
	}
	return nil
}

// templateNames lists the names in a task in order, without "facts.".
func templateNames(task string) []string {
	var names []string
	for _, m := range templateForm.FindAllStringSubmatch(task, -1) {
		names = append(names, strings.TrimPrefix(m[1], factsPrefix))
	}
	return names
}

// Task fills the task's template from facts. A name that the event does not
// have, or that has several values, is an error with code no_match (a missing
// fact does not match); a repository that the node does not list is
// repository_not_listed.
func (b *Bundle) Task(f Facts) (string, error) {
	var failed error
	task := templateForm.ReplaceAllStringFunc(b.Session.Task, func(m string) string {
		name := templateForm.FindStringSubmatch(m)[1]
		v, err := b.value(f, name)
		if err != nil && failed == nil {
			failed = err
		}
		return v
	})
	return task, failed
}

func (b *Bundle) value(f Facts, name string) (string, error) {
	v, ok := f.One(name)
	switch {
	case !ok && name == nameOfRepository:
		return "", b.notListed(f)
	case !ok:
		return "", problem.New(problem.NoMatch, fmt.Sprintf("bundle %s names %s, which the event does not have", b.Name, name), "known here: "+strings.Join(f.Known(), ", "))
	case !valueForm.MatchString(v):
		return "", problem.New(problem.NoMatch, fmt.Sprintf("the event's %s is not a plain value", name), "")
	}
	return v, nil
}

func (b *Bundle) notListed(f Facts) error {
	return problem.New(problem.RepositoryNotListed,
		fmt.Sprintf("bundle %s needs the repository %q, which the node does not list", b.Name, f.RepositoryID()), "add its id and name to repositories: in the configuration")
}

// ConcurrencyKey returns the value that sessions share, "" when the bundle
// limits nothing.
func (b *Bundle) ConcurrencyKey(f Facts) (string, error) {
	c := b.Session.Concurrency
	if c == nil {
		return "", nil
	}
	return b.value(f, c.Key)
}

// usesRepositoryName reports whether a session needs the node's name for the
// event's repository.
func (b *Bundle) usesRepositoryName() bool {
	c := b.Session.Concurrency
	return slices.Contains(templateNames(b.Session.Task), nameOfRepository) || c != nil && c.Key == nameOfRepository
}
