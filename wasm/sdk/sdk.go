// Package sdk holds what an author of enforcers starts from: the Go and Rust
// SDKs and a working example in each. It reads its embedded files and returns
// them under the author's name; it must never write or build anything itself.
package sdk

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed go/*.go go/denylist/*.go rust/*.rs
var files embed.FS

// Languages are the languages that have a template.
func Languages() []string { return []string{"go", "rust"} }

// nameOK admits names that can be a folder, a Go module and a Rust file.
var nameOK = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

// build is the script of each language that makes NAME.wasm.
var build = map[string]string{
	"go": `#!/bin/sh
# Builds NAME.wasm. The same sources and toolchain give the same bytes.
set -eu
GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 go build -buildmode=c-shared -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o NAME.wasm .
`,
	"rust": `#!/bin/sh
# Builds NAME.wasm. It needs the wasm32-unknown-unknown target and lld; on Debian
# these are libstd-rust-dev-wasm32 and lld-19, with RUSTFLAGS as in the comment.
#   RUSTFLAGS='-C linker=wasm-ld-19 -C link-arg=--no-fatal-warnings' ./build.sh
set -eu
rustc --edition 2021 --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=3 -C panic=abort -C strip=symbols ${RUSTFLAGS:-} -o NAME.wasm NAME.rs
`,
}

// Template returns the files of a new enforcer, by path relative to its folder:
// sources that build and pass the denylist vectors as they are.
func Template(language, name string) (map[string][]byte, error) {
	if !nameOK.MatchString(name) {
		return nil, fmt.Errorf("an enforcer's name is lower-case letters, digits and underscores, at most 41: %q", name)
	}
	if !slices.Contains(Languages(), language) {
		return nil, fmt.Errorf("no template in %q; there are %s", language, strings.Join(Languages(), " and "))
	}
	out := map[string][]byte{"build.sh": []byte(strings.ReplaceAll(build[language], "NAME", name))}
	add := func(as, from string, edit ...string) error {
		b, err := files.ReadFile(from)
		if err != nil {
			return err
		}
		out[as] = []byte(strings.NewReplacer(edit...).Replace(string(b)))
		return nil
	}
	var errs []error
	switch language {
	case "go":
		out["go.mod"] = []byte("module " + name + "\n\ngo 1.24\n")
		for _, f := range []string{"gatehouse.go", "exports.go", "native.go"} {
			errs = append(errs, add("gatehouse/"+f, "go/"+f))
		}
		errs = append(errs, add("main.go", "go/denylist/main.go", `gatehouse "gatehouse/wasm/sdk/go"`, `"`+name+`/gatehouse"`, "Command denylist is the example enforcer that every SDK has: it denies", "Command "+name+" denies"))
	case "rust":
		errs = append(errs, add("gatehouse.rs", "rust/gatehouse.rs"), add(name+".rs", "rust/denylist.rs", "denylist.rs", name+".rs"))
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
