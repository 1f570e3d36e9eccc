package clientconf

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/problem"
)

func machine(files map[string]string, env map[string]string) Machine {
	root := fstest.MapFS{}
	for name, text := range files {
		root[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text)}
	}
	return Machine{Root: root, Home: "/home/u", Env: func(k string) string { return env[k] }}
}

func TestRead(t *testing.T) {
	cases := map[string]struct {
		kind  string
		files map[string]string
		env   map[string]string
		want  []string // scheme://host:port
	}{
		"npm": {
			kind: "npm",
			files: map[string]string{
				"/home/u/.npmrc": "; mine\nregistry=https://npm.example.com/\n@acme:registry = \"https://acme.example.com:8443/npm/\"\n//acme.example.com/:_authToken=canary\nproxy=http://proxy.example.com\n",
				"/etc/npmrc":     "registry=https://npm.example.com/\n",
			},
			want: []string{"https://npm.example.com:443", "https://acme.example.com:8443"},
		},
		"npm_variable_first": {
			kind: "npm", env: map[string]string{"NPM_CONFIG_REGISTRY": "https://u:canary@env.example.com/npm"},
			want: []string{"https://env.example.com:443"},
		},
		"npm_of_this_machine": {kind: "npm", files: map[string]string{"/home/u/.npmrc": "registry=http://localhost:4873/\n@a:registry=http://127.0.0.1/\n@b:registry=${NPM}\n"}},
		"pypi": {
			kind: "pypi",
			files: map[string]string{
				"/home/u/.config/pip/pip.conf": "[global]\nindex-url = https://u:canary@pypi.example.com/simple\nextra-index-url =\n    https://one.example.com/simple\n    https://two.example.com/simple\ntimeout = 60\n# https://no.example.com\n",
			},
			want: []string{"https://pypi.example.com:443", "https://one.example.com:443", "https://two.example.com:443"},
		},
		"pypi_own_file": {
			kind: "pypi", env: map[string]string{"PIP_CONFIG_FILE": "/opt/pip.conf"},
			files: map[string]string{"/opt/pip.conf": "[install]\nfind-links = https://own.example.com\n", "/etc/pip.conf": "[global]\nindex-url = https://other.example.com\n"},
			want:  []string{"https://own.example.com:443"},
		},
		"go_installation": {
			kind:  "go",
			files: map[string]string{"/usr/local/go/go.env": "# defaults\nGOPROXY=https://proxy.example.com,direct\nGOSUMDB=sum.example.com\nGOTOOLCHAIN=auto\n"},
			want:  []string{"https://proxy.example.com:443", "https://sum.example.com:443"},
		},
		"go_user_over_installation": {
			kind: "go", env: map[string]string{"GOSUMDB": "off"},
			files: map[string]string{
				"/home/u/.config/go/env": "GOPROXY=https://one.example.com|https://two.example.com:8443/go\n",
				"/usr/local/go/go.env":   "GOPROXY=https://proxy.example.com,direct\nGOSUMDB=sum.example.com\n",
			},
			want: []string{"https://one.example.com:443", "https://two.example.com:8443"},
		},
		"go_sum_elsewhere": {
			kind: "go", env: map[string]string{"GOPROXY": "direct", "GOSUMDB": "sum.example.com+abc+def https://mirror.example.com/sum"},
			want: []string{"https://mirror.example.com:443"},
		},
		"cargo": {
			kind: "cargo",
			files: map[string]string{"/home/u/.cargo/config.toml": `
[source.mirror]
registry = "sparse+https://cargo.example.com/index/"
[registries.acme]
index = "https://git.example.com/index.git"
token = "canary"
[source.vendored]
directory = "vendor"
`},
			want: []string{"https://git.example.com:443", "https://cargo.example.com:443"},
		},
		"maven": {
			kind: "maven",
			files: map[string]string{"/home/u/.m2/settings.xml": `<?xml version="1.0"?>
<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">
  <servers><server><id>m</id><username>u</username><password>canary</password></server></servers>
  <mirrors><mirror><id>m</id><url>https://maven.example.com/repo</url><mirrorOf>*</mirrorOf></mirror><mirror><url>http://0.0.0.0/</url><blocked>true</blocked></mirror></mirrors>
  <profiles><profile><repositories><repository><url> http://old.example.com/m2 </url></repository></repositories>
    <pluginRepositories><pluginRepository><url>https://plugins.example.com</url></pluginRepository></pluginRepositories></profile></profiles>
  <proxies><proxy><host>proxy.example.com</host></proxy></proxies>
</settings>`},
			want: []string{"https://maven.example.com:443", "http://old.example.com:80", "https://plugins.example.com:443"},
		},
		"debian": {
			kind: "debian",
			files: map[string]string{
				"/etc/apt/sources.list":                "# comment\ndeb [arch=amd64 signed-by=/x] http://deb.example.com/debian stable main\ndeb-src https://src.example.com/debian stable main\n",
				"/etc/apt/sources.list.d/a.list":       "deb http://deb.example.com/security stable main\n",
				"/etc/apt/sources.list.d/b.sources":    "Types: deb\nURIs: https://one.example.com/debian\n  https://two.example.com/debian\nSuites: stable\n# URIs: https://no.example.com\n",
				"/etc/apt/sources.list.d/c.list.save":  "deb http://no.example.com/debian stable main\n",
				"/etc/apt/sources.list.d/d.sources.gz": "URIs: http://no.example.com\n",
			},
			want: []string{"http://deb.example.com:80", "https://src.example.com:443", "https://one.example.com:443", "https://two.example.com:443"},
		},
		"git_host": {
			kind:  "git-host",
			files: map[string]string{"/home/u/.gitconfig": "[user]\n\tname = u\n[url \"https://u:canary@git.example.com/\"]\n\tinsteadOf = git@git.example.com:\n[credential \"https://forge.example.com\"]\n\thelper = store\n[remote \"https://no.example.com\"]\n"},
			want:  []string{"https://git.example.com:443", "https://forge.example.com:443"},
		},
		"nothing": {kind: "npm"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			found, err := Read(c.kind, machine(c.files, c.env))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found {
				got = append(got, fmt.Sprintf("%s://%s:%d", f.Scheme, f.Host, f.Port))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if strings.Contains(fmt.Sprintf("%+v", found), "canary") {
				t.Error("a credential was taken out of the configuration")
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		kind, file, text string
		code             problem.Code
	}{
		"unknown_kind": {kind: "gem", code: problem.Usage},
		"broken_toml":  {"cargo", "/home/u/.cargo/config.toml", "[source\ntoken = \"canary\"", problem.ConfigInvalid},
		"broken_xml":   {"maven", "/home/u/.m2/settings.xml", "<settings><password>canary</settings>", problem.ConfigInvalid},
		"too_large":    {"npm", "/home/u/.npmrc", strings.Repeat("#\n", maxFile), problem.ConfigInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(c.kind, machine(map[string]string{c.file: c.text}, nil))
			if problem.CodeOf(err) != c.code || strings.Contains(err.Error(), "canary") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzRead: no file makes a reader fail in another way than by an error, or find
// a place whose host is not one word.
func FuzzRead(f *testing.F) {
	f.Add("registry=https://npm.example.com/\n[url \"https://git.example.com/\"]\nGOPROXY=https://go.example.com\nURIs: http://deb.example.com")
	f.Add("<settings><mirror><url>https://m.example.com</url></mirror></settings>")
	f.Add("[registries.a]\nindex = \"sparse+https://c.example.com\"\n")
	names := []string{"/home/u/.npmrc", "/home/u/.config/pip/pip.conf", "/home/u/.config/go/env", "/home/u/.cargo/config.toml", "/home/u/.m2/settings.xml", "/etc/apt/sources.list", "/etc/apt/sources.list.d/a.sources", "/home/u/.gitconfig"}
	f.Fuzz(func(t *testing.T, text string) {
		files := map[string]string{}
		for _, n := range names {
			files[n] = text
		}
		for _, kind := range Kinds() {
			found, err := Read(kind, machine(files, nil))
			if err != nil && problem.CodeOf(err) != problem.ConfigInvalid {
				t.Errorf("%s: %v", kind, err)
			}
			for _, x := range found {
				if x.Host == "" || strings.ContainsAny(x.Host, " /@\n\t") {
					t.Errorf("%s found %q", kind, x.Host)
				}
			}
		}
	})
}
