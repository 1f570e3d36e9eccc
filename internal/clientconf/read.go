package clientconf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"gatehouse/internal/problem"
)

// maxFile bounds one configuration file.
const maxFile = 1 << 20

// Machine is where the clients' configuration is.
type Machine struct {
	Root fs.FS               // of the file system
	Home string              // of the user, absolute
	Env  func(string) string // a variable's value, "" if it is not set
}

// Found is one place that a client goes to.
type Found struct {
	Scheme string // https | http
	Host   string // as written, lower case
	Port   uint16
	From   string // the file or variable that says so
}

// Kinds are the clients that are known, in the order of their names.
func Kinds() []string { return []string{"cargo", "debian", "git-host", "go", "maven", "npm", "pypi"} }

// Read returns where the client of one kind goes to, in the order found and each
// place once. Skipped are what is no network place, addresses, and this machine.
func Read(kind string, m Machine) ([]Found, error) {
	read, ok := map[string]func(*reader) error{
		"cargo": (*reader).cargo, "debian": (*reader).debian, "git-host": (*reader).git, "go": (*reader).golang,
		"maven": (*reader).maven, "npm": (*reader).npm, "pypi": (*reader).pypi,
	}[kind]
	if !ok {
		return nil, problem.New(problem.Usage, fmt.Sprintf("%q is no kind of client", kind), "use one of "+strings.Join(Kinds(), ", "))
	}
	r := &reader{m: m}
	if err := read(r); err != nil {
		return nil, err
	}
	return r.found, nil
}

type reader struct {
	m     Machine
	found []Found
}

// file calls f with a file's text unless the file is not there. A path that
// begins with ~ is in the home folder.
func (r *reader) file(name string, f func(text string) error) error {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		name = path.Join(r.m.Home, rest)
	}
	in, err := r.m.Root.Open(strings.TrimPrefix(path.Clean(name), "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unreadable(name, err)
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return unreadable(name, err)
	case len(b) > maxFile:
		return problem.New(problem.ConfigInvalid, name+" is too large for a configuration file", "")
	}
	if err := f(string(b)); err != nil {
		return problem.New(problem.ConfigInvalid, "couldn't read "+name, "its form is not the client's own; name the hosts with --host")
	}
	return nil
}

func unreadable(name string, err error) error {
	return problem.Wrap(err, problem.ConfigInvalid, "couldn't read "+name, "run it as the user whose configuration it is, or name the hosts with --host")
}

// folder calls file for every file of a folder that ends in one of the endings.
func (r *reader) folder(name string, f func(text string) error, endings ...string) error {
	entries, err := fs.ReadDir(r.m.Root, strings.TrimPrefix(name, "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unreadable(name, err)
	}
	for _, e := range entries {
		if slices.Contains(endings, path.Ext(e.Name())) {
			if err := r.file(path.Join(name, e.Name()), f); err != nil {
				return err
			}
		}
	}
	return nil
}

// add notes where a URL leads. What stands before the host in it, which may be a
// credential, and what stands behind are left out.
func (r *reader) add(text, from string) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Hostname() == "" {
		return
	}
	f := Found{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Hostname()), From: from}
	switch f.Scheme {
	case "https":
		f.Port = 443
	case "http":
		f.Port = 80
	default:
		return // file:, ssh:, a placeholder
	}
	if p := u.Port(); p != "" {
		if _, err := fmt.Sscanf(p, "%d", &f.Port); err != nil {
			return
		}
	}
	if _, err := netip.ParseAddr(f.Host); err == nil || f.Host == "localhost" {
		return // an address has a rule of its own or none; Maven blocks clear text by a mirror at 0.0.0.0
	}
	if !slices.ContainsFunc(r.found, func(g Found) bool { return g.Scheme == f.Scheme && g.Host == f.Host && g.Port == f.Port }) {
		r.found = append(r.found, f)
	}
}

// env adds the URLs of variables, separated by blanks.
func (r *reader) env(names ...string) {
	for _, name := range names {
		for _, v := range strings.Fields(r.m.Env(name)) {
			r.add(v, "$"+name)
		}
	}
}

// lines calls f for each line that is neither empty nor a comment, with what
// stands before and after its first "=".
func lines(text string, f func(key, value string)) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.ContainsAny(line[:1], "#;") {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		f(strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"'`))
	}
}
