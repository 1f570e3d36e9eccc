package bundle

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-playground/validator/v10"

	"gatehouse/internal/authority"
	"gatehouse/internal/strictyaml"
)

// forms are the closed spellings of names; each is a validator rule.
var (
	labelForm      = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	tokenForm      = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	kindForm       = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]{0,63}(\.(\*|[a-zA-Z][a-zA-Z0-9_]{0,63}))?$`)
	factForm       = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){0,4}$`)
	operationForm  = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){1,4}$`)
	pointerForm    = regexp.MustCompile(`^(/([^~/\x00-\x1f]|~[01])+)+$`)
	methodForm     = regexp.MustCompile(`^[A-Z][A-Z-]{0,31}$`)
	envForm        = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)
	repositoryForm = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*)/[A-Za-z0-9._-]+$`)
	modelForm      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/-]*\*?$`)
	moduleForm     = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}@sha256:[0-9a-f]{64}$`)
	imageForm      = regexp.MustCompile(`^[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}$`)
)

var rules = sync.OnceValue(func() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		return name
	})
	is := func(name string, ok func(string) bool) {
		if err := v.RegisterValidation(name, func(f validator.FieldLevel) bool { return ok(f.Field().String()) }); err != nil {
			panic(err) // only for an empty or reserved rule name, which are written here
		}
	}
	for name, form := range map[string]*regexp.Regexp{
		"label": labelForm, "token": tokenForm, "kind": kindForm, "fact": factForm, "operation": operationForm, "pointer": pointerForm,
		"envname": envForm, "repository": repositoryForm, "modelname": modelForm, "module": moduleForm,
	} {
		is(name, form.MatchString)
	}
	is("method", func(s string) bool {
		return methodForm.MatchString(s) && s != "CONNECT" && s != "TRACE" && s != "TRACK"
	}) // EG-54
	is("abspath", absPath)
	is("urlpath", urlPath)
	is("refpattern", refPattern)
	is("denypath", denyPath)
	return v
})

// validate judges what one field or one rule can say about itself. What needs
// the node (connections, sets, endpoints) is Lint's.
func (b *Bundle) validate() error {
	if err := rules().Struct(b); err != nil {
		var fields validator.ValidationErrors
		if !errors.As(err, &fields) {
			return invalid("bundle: "+err.Error(), "")
		}
		return b.fieldProblem(fields[0])
	}
	for i, e := range b.Egress {
		if msg, hint := e.wrong(); msg != "" {
			return b.bad("/egress/"+strconv.Itoa(i), "egress["+strconv.Itoa(i)+"] "+msg, hint)
		}
	}
	for name := range b.Sets {
		if !slices.ContainsFunc(b.Egress, func(e Egress) bool { return e.Set == name }) {
			return b.bad("/sets/"+name, "sets."+name+" is named by nothing in egress", "remove it, or write {set: "+name+"} in egress")
		}
	}
	if b.Session.Timeout > maxTimeout {
		return b.bad("/session/timeout", "session.timeout is longer than 24h", "split the work, or let a new event start the next session")
	}
	for i, t := range b.Triggers {
		for name, c := range t.Where {
			if c.Min != nil && c.Max != nil && *c.Min > *c.Max {
				return b.bad("/match/"+strconv.Itoa(i)+"/where/"+name, name+": min is above max", "")
			}
		}
	}
	for name, p := range b.emptyLists() {
		return b.bad(p, name+" is an empty list", "remove the key for the default, or name what you want")
	}
	return b.templateSyntax()
}

// emptyLists finds lists that were written without an element: they could be
// read as nothing or as the default, so neither is guessed.
func (b *Bundle) emptyLists() map[string]string {
	empty := map[string]string{}
	for i, e := range b.Egress {
		for name, bad := range map[string]bool{
			"ports": e.Ports != nil && len(e.Ports) == 0, "schemes": e.Schemes != nil && len(e.Schemes) == 0, "methods": e.Methods != nil && len(e.Methods) == 0,
			"paths": e.Paths != nil && len(e.Paths) == 0, "addresses": e.Addresses != nil && len(e.Addresses) == 0,
		} {
			if bad {
				empty["egress."+name] = "/egress/" + strconv.Itoa(i) + "/" + name
			}
		}
	}
	return empty
}

// wrong says what is wrong with a rule as a whole.
func (e *Egress) wrong() (msg, hint string) {
	named := 0
	for _, s := range []string{e.Set, e.Host, e.TCP} {
		if s != "" {
			named++
		}
	}
	if named != 1 {
		return "has not exactly one of set, host and tcp", ""
	}
	if e.Set != "" {
		bare := Egress{Set: e.Set}
		if !reflect.DeepEqual(*e, bare) {
			return "writes something beside set", "what a set allows stands in its file"
		}
		return "", ""
	}
	host := e.Host + e.TCP
	if _, err := authority.ParsePattern(host); err != nil {
		return fmt.Sprintf("host %q: %v", host, err), ""
	}
	switch {
	case e.blind() && (e.Connection != "" || e.Env != ""):
		return "is blind and carries a credential", "a credential is only added to requests that Gatehouse reads; remove tcp or tls: passthrough"
	case e.blind() && (e.Schemes != nil || e.Methods != nil || e.Paths != nil || e.Upgrade != "" || e.EncodedSlash):
		return "is blind and names schemes, methods, paths, upgrade or encoded_slash", "nothing inside a blind tunnel can be checked"
	case e.TCP != "" && e.TLS != "":
		return "has both tcp and tls", ""
	case e.TCP != "" && len(e.Ports) == 0:
		return "has tcp and no ports", "name them"
	case (e.Env != "" || e.Uses != 0) && e.Connection == "":
		return "has env or uses and no connection", "a placeholder stands for a connection's credential"
	case e.Uses != 0 && e.Env == "":
		return "has uses and no env", ""
	case e.Connection != "" && contains(e.Schemes, "http"):
		return "adds a credential on plain http", "remove http from schemes" // EG-66
	case e.Connection != "" && strings.HasPrefix(host, "*"):
		return "adds a credential to a wildcard", "name each host that may receive it"
	case e.Names != 0 && !strings.HasPrefix(host, "*"):
		return "has names and no wildcard", ""
	}
	for _, p := range e.Addresses {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Sprintf("addresses: %s is not an exact prefix", p), "write the network's first address, for example 10.1.2.0/24"
		}
		if p.Addr().IsLoopback() {
			return fmt.Sprintf("addresses: %s is loopback", p), "a session never reaches its host's own services"
		}
	}
	return "", ""
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func absPath(s string) bool {
	return path.IsAbs(s) && path.Clean(s) == s && s != "/" && !strings.ContainsAny(s, "\x00\n")
}

// fieldProblem words a validator finding with the key's path as in the file.
func (b *Bundle) fieldProblem(f validator.FieldError) error {
	_, at, _ := strings.Cut(f.Namespace(), ".")
	pointer := "/" + strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(at)
	msg, hint := at, ""
	switch f.Tag() {
	case "required":
		msg += " is missing"
	case "eq":
		msg = fmt.Sprintf("%s is %q", at, f.Value())
		hint = "write " + f.Param()
	case "oneof":
		msg = fmt.Sprintf("%s: %q is not one of %s", at, fmt.Sprint(f.Value()), f.Param())
		if near := strictyaml.Nearest(fmt.Sprint(f.Value()), strings.Fields(f.Param())); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
	case "unique":
		msg += " has the same entry twice"
	case "max", "lte":
		msg = fmt.Sprintf("%s is more than %s", at, f.Param())
	case "min", "gte":
		msg = fmt.Sprintf("%s is less than %s", at, f.Param())
	default:
		msg = fmt.Sprintf("%s: %q is not well formed", at, fmt.Sprint(f.Value()))
		hint = formHints[f.Tag()]
	}
	return b.bad(pointer, msg, hint)
}

var formHints = map[string]string{
	"label":      "use a-z, 0-9 and -, for example fix-failing-ci",
	"token":      "use a-z, 0-9, - and _, starting with a letter or digit",
	"kind":       "write kind.action, kind.* or kind, for example workflow_run.completed",
	"fact":       "write a fact's name, for example repository.id",
	"operation":  "write an operation's name, for example scm.pr.create",
	"pointer":    "write a JSON pointer, for example /comment/body",
	"method":     "write an HTTP method in capitals; CONNECT, TRACE and TRACK are never allowed",
	"envname":    "use A-Z, 0-9 and _, for example ACME_TOKEN",
	"repository": "write owner/name",
	"modelname":  "write a model's name; a star may only stand at the end",
	"module":     "write name@sha256:DIGEST",
	"abspath":    "write a clean absolute path",
	"urlpath":    "write an exact path, or a prefix ending in /**; a star is a whole segment; no query, no dot segments",
	"refpattern": "write a full ref such as refs/heads/gatehouse/{entity}/*; stars and {entity} stand for whole segments",
	"denypath":   "write a path without a leading slash, exact or ending in /**",
}
