package clientconf

import (
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// npm reads the registry and those of scopes: .npmrc of the user and of the
// system.
func (r *reader) npm() error {
	r.env("npm_config_registry", "NPM_CONFIG_REGISTRY")
	for _, name := range []string{"~/.npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc"} {
		if err := r.file(name, func(text string) error {
			lines(text, func(key, value string) {
				if key == "registry" || strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry") {
					r.add(value, name)
				}
			})
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// pypi reads pip's indexes.
func (r *reader) pypi() error {
	r.env("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
	names := []string{"~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/pip.conf"}
	if own := r.m.Env("PIP_CONFIG_FILE"); own != "" {
		names = []string{own}
	}
	for _, name := range names {
		if err := r.file(name, func(text string) error {
			listing := false
			lines(text, func(key, value string) {
				switch key {
				case "index-url", "extra-index-url", "find-links":
					listing = true
					for _, v := range strings.Fields(value) {
						r.add(v, name)
					}
				default:
					// The further lines of a list are indented and have no key.
					if listing && strings.Contains(key, "://") {
						r.add(key, name)
						return
					}
					listing = false
				}
			})
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// golang reads the module proxies and the checksum database. Go's own defaults
// are a file of its installation.
func (r *reader) golang() error {
	proxies := func(value, from string) {
		for v := range strings.FieldsFuncSeq(value, func(c rune) bool { return c == ',' || c == '|' }) {
			r.add(v, from)
		}
	}
	sums := func(value, from string) {
		// A name that is a host, perhaps with a key, perhaps with the URL of another place.
		fields := strings.Fields(value)
		if len(fields) == 0 || fields[0] == "off" {
			return
		}
		host, _, _ := strings.Cut(fields[0], "+")
		if len(fields) > 1 {
			r.add(fields[len(fields)-1], from)
			return
		}
		r.add("https://"+host, from)
	}
	known := map[string]bool{}
	take := func(key, value, from string) {
		if value == "" || known[key] {
			return
		}
		switch key {
		case "GOPROXY":
			proxies(value, from)
		case "GOSUMDB":
			sums(value, from)
		default:
			return
		}
		known[key] = true
	}
	for _, key := range []string{"GOPROXY", "GOSUMDB"} {
		take(key, r.m.Env(key), "$"+key)
	}
	names := []string{"~/.config/go/env"}
	if own := r.m.Env("GOENV"); own != "" {
		names = []string{own}
	}
	if root := r.m.Env("GOROOT"); root != "" {
		names = append(names, path.Join(root, "go.env"))
	}
	for _, name := range append(names, "/usr/local/go/go.env", "/usr/lib/go/go.env") {
		if err := r.file(name, func(text string) error {
			lines(text, func(key, value string) { take(key, value, name) })
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// cargo reads registries and the sources that stand in for others.
func (r *reader) cargo() error {
	home := r.m.Env("CARGO_HOME")
	if home == "" {
		home = "~/.cargo"
	}
	for _, name := range []string{home + "/config.toml", home + "/config"} {
		if err := r.file(name, func(text string) error {
			var c struct {
				Registries map[string]struct{ Index string }
				Source     map[string]struct{ Registry, Git string }
			}
			if err := toml.Unmarshal([]byte(text), &c); err != nil {
				return err
			}
			for _, k := range slices.Sorted(maps.Keys(c.Registries)) {
				r.add(strings.TrimPrefix(c.Registries[k].Index, "sparse+"), name)
			}
			for _, k := range slices.Sorted(maps.Keys(c.Source)) {
				r.add(strings.TrimPrefix(c.Source[k].Registry, "sparse+"), name)
				r.add(c.Source[k].Git, name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// maven reads mirrors and repositories of settings.xml.
func (r *reader) maven() error {
	names := []string{"~/.m2/settings.xml", "/etc/maven/settings.xml"}
	if home := r.m.Env("MAVEN_HOME"); home != "" {
		names = append(names, path.Join(home, "conf/settings.xml"))
	}
	for _, name := range names {
		if err := r.file(name, func(text string) error {
			dec := xml.NewDecoder(strings.NewReader(text))
			var within []string
			for {
				t, err := dec.Token()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				switch t := t.(type) {
				case xml.StartElement:
					within = append(within, t.Name.Local)
				case xml.EndElement:
					within = within[:len(within)-1] // the decoder refuses what does not match
				case xml.CharData:
					if n := len(within); n > 1 && within[n-1] == "url" {
						switch within[n-2] {
						case "mirror", "repository", "pluginRepository":
							r.add(string(t), name)
						}
					}
				}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// debian reads apt's sources in both forms.
func (r *reader) debian() error {
	const sources = "/etc/apt/sources.list"
	one := func(text string) error {
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); len(f) > 1 && (f[0] == "deb" || f[0] == "deb-src") {
				for _, v := range f[1:] { // options stand before the URL
					if strings.Contains(v, "://") && !strings.HasPrefix(v, "[") {
						r.add(v, sources)
						break
					}
				}
			}
		}
		return nil
	}
	if err := r.file(sources, one); err != nil {
		return err
	}
	if err := r.folder(sources+".d", one, ".list"); err != nil {
		return err
	}
	return r.folder(sources+".d", func(text string) error {
		uris := false
		for line := range strings.Lines(text) {
			switch {
			case strings.HasPrefix(line, "#"):
				continue
			case strings.HasPrefix(strings.ToLower(line), "uris:"):
				uris = true
				line = line[len("uris:"):]
			case !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t"):
				uris = false
			}
			if uris {
				for _, v := range strings.Fields(line) {
					r.add(v, sources+".d")
				}
			}
		}
		return nil
	}, ".sources")
}

// git reads the hosts that sections of its configuration name: [url], [http] and
// [credential].
func (r *reader) git() error {
	for _, name := range []string{"~/.gitconfig", "~/.config/git/config", "/etc/gitconfig"} {
		if err := r.file(name, func(text string) error {
			for line := range strings.Lines(text) {
				line = strings.TrimSpace(line)
				kind, rest, ok := strings.Cut(strings.Trim(line, "[]"), ` "`)
				if !ok || !strings.HasPrefix(line, "[") {
					continue
				}
				switch strings.ToLower(kind) {
				case "url", "http", "credential":
					r.add(strings.TrimSuffix(rest, `"`), name)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
