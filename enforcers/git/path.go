package git

import (
	"net/http"
	"strings"

	"gatehouse/enforcers/door"
)

// Services of smart HTTP: gitprotocol-http(5).
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// Operations that a request can be.
const (
	opRefs    = "refs"    // GET  …/info/refs?service=S
	opService = "service" // POST …/S
	opLFS     = "lfs"     // …/info/lfs/…
	opDumb    = "dumb"    // a file of the dumb protocol, or info/refs without a service
	opOther   = "other"   // anything else
)

// target is what a request to a git host is about.
type target struct {
	op      string
	path    string // "owner/name" in lower case, without .git; "" when there is none
	service string
	rest    string // opLFS: what follows info/lfs
	bad     bool   // not to be judged as what it seems: EG-81, EG-83
}

// recognize reads a request's canonical path and query. What it can read in two
// ways is bad.
func recognize(r *door.Request) target {
	owner, rest, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
	name, rest, deep := strings.Cut(rest, "/")
	t := target{op: opOther}
	switch {
	case !deep:
		return t
	case rest == "info/refs":
		t.op = opRefs
	case rest == uploadPack, rest == receivePack:
		t.op, t.service = opService, rest
	case strings.HasPrefix(rest, "info/lfs/"):
		t.op, t.rest = opLFS, strings.TrimPrefix(rest, "info/lfs/")
	case rest == "HEAD", strings.HasPrefix(rest, "objects/"), strings.HasPrefix(rest, "info/"):
		t.op = opDumb
	case strings.HasSuffix(rest, "/info/refs"), strings.HasSuffix(rest, "/"+uploadPack), strings.HasSuffix(rest, "/"+receivePack), strings.Contains(rest, "/info/lfs/"):
		// Groups within groups; the node lists owner/name alone.
		t.op, t.bad = opDumb, true
	default:
		return t
	}
	t.path, t.bad = canonical(owner, name)
	if t.op == opRefs {
		service, ok := serviceOf(r.Query)
		switch {
		case !ok:
			t.bad = true // EG-83
		case service == "":
			t.op = opDumb
		}
		t.service = service
		t.bad = t.bad || r.Method != http.MethodGet
	}
	if t.op == opService {
		t.bad = t.bad || r.Method != http.MethodPost || r.Query != "" // EG-82
	}
	return t
}

// canonical returns owner/name in the one form in which the node's list is
// searched, and whether it is no such name. Nothing percent-encoded is one
// (EG-81); .git at its end is dropped once.
func canonical(owner, name string) (path string, bad bool) {
	name = strings.ToLower(name)
	name = strings.TrimSuffix(name, ".git")
	owner = strings.ToLower(owner)
	if !plainName(owner) || !plainName(name) || strings.HasSuffix(name, ".git") {
		return "", true
	}
	return owner + "/" + name, false
}

func plainName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 100 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// serviceOf reads the query of info/refs: nothing, or one service. Anything
// else could be read differently by the server (EG-83).
func serviceOf(query string) (service string, ok bool) {
	switch query {
	case "":
		return "", true
	case "service=" + uploadPack:
		return uploadPack, true
	case "service=" + receivePack:
		return receivePack, true
	}
	return "", false
}

// protocolOf reads Git-Protocol: the version it asks for, and whether it is in
// the one form that git sends.
func protocolOf(h http.Header) (version int, ok bool) {
	switch values := h["Git-Protocol"]; {
	case len(values) == 0:
		return 0, true
	case len(values) > 1:
		return 0, false
	default:
		switch values[0] {
		case "version=0", "":
			return 0, true
		case "version=1":
			return 1, true
		case "version=2":
			return 2, true
		}
	}
	return 0, false
}
