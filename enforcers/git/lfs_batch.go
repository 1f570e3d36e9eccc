package git

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"

	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
)

// lfsType is the type of what Git LFS says and is told.
const lfsType = "application/vnd.git-lfs+json"

// Bounds of the batch API. A client asks for 100 objects at a time.
const (
	maxLFSObjects = 100
	maxLFSRequest = 64 << 10
	maxLFSAnswer  = 1 << 20
	maxLFSHref    = 8 << 10
	maxLFSHeaders = 32
)

// lfsObject is one large file: SHA-256 in lower hex, and its size in bytes.
type lfsObject struct {
	OID  string `json:"oid"`
	Size int64  `json:"size"`
}

// lfsBatch is what a client asks of the batch API, in the one spelling in which
// it is sent on.
type lfsBatch struct {
	Operation string      `json:"operation"` // download | upload
	Transfers []string    `json:"transfers"` // basic alone
	Ref       *lfsRef     `json:"ref,omitempty"`
	Objects   []lfsObject `json:"objects"`
	Hash      string      `json:"hash_algo"` // sha256 alone
}

type lfsRef struct {
	Name string `json:"name"`
}

var errLFS = errors.New("not a request of the batch API")

// parseLFSBatch reads a request of the batch API. What it does not know, and what
// could be read in two ways, is refused.
func parseLFSBatch(raw []byte) (lfsBatch, error) {
	var in lfsBatch
	if len(raw) > maxLFSRequest || twice(raw) {
		return in, errLFS
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, errLFS
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return in, errLFS
	}
	seen := map[string]bool{}
	for _, o := range in.Objects {
		if !lfsOID(o.OID) || o.Size < 0 || seen[o.OID] {
			return in, errLFS
		}
		seen[o.OID] = true
	}
	switch {
	case in.Operation != "download" && in.Operation != "upload",
		len(in.Objects) == 0 || len(in.Objects) > maxLFSObjects,
		in.Hash != "" && in.Hash != "sha256",
		len(in.Transfers) > 0 && !slices.Contains(in.Transfers, "basic"),
		in.Ref != nil && !refName(in.Ref.Name):
		return in, errLFS
	}
	in.Transfers, in.Hash = []string{"basic"}, "sha256"
	return in, nil
}

func lfsOID(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// lfsAction is where the host would have a client go for one object. Both the
// address and the fields are credentials as a rule: they stay here.
type lfsAction struct {
	href   secret.Value
	own    bool // at the host itself, below the repository: it takes the connection's credential
	header map[string]secret.Value
}

// lfsAnswered is what the host said about one object that was asked for.
type lfsAnswered struct {
	lfsObject
	actions map[string]lfsAction // download, upload, verify
	missing bool                 // the host has an error for it
	refused bool                 // an address leads elsewhere (EG-84)
}

// parseLFSAnswer reads the host's answer to a batch. Objects that were not asked
// for are left out; those that it says nothing about are missing.
func (h *host) parseLFSAnswer(raw []byte, asked lfsBatch, r Repository) ([]lfsAnswered, error) {
	var in struct {
		Transfer string `json:"transfer"`
		Hash     string `json:"hash_algo"`
		Objects  []struct {
			lfsObject
			Actions map[string]struct {
				Href   string            `json:"href"`
				Header map[string]string `json:"header"`
			} `json:"actions"`
			Error json.RawMessage `json:"error"`
		} `json:"objects"`
	}
	if twice(raw) || json.Unmarshal(raw, &in) != nil || in.Transfer != "" && in.Transfer != "basic" || in.Hash != "" && in.Hash != "sha256" {
		return nil, errLFS
	}
	wanted := []string{"download"}
	if asked.Operation == "upload" {
		wanted = []string{"upload", "verify"}
	}
	out := make([]lfsAnswered, 0, len(asked.Objects))
	for _, o := range asked.Objects {
		one := lfsAnswered{lfsObject: o, actions: map[string]lfsAction{}, missing: true}
		for _, got := range in.Objects {
			if got.OID != o.OID {
				continue
			}
			one.missing = got.Error != nil && string(got.Error) != "null" || got.Size != o.Size
			for _, name := range wanted {
				a, ok := got.Actions[name]
				if !ok {
					continue
				}
				act, ok := h.lfsAction(a.Href, a.Header, r)
				if !ok {
					one.refused = true
				}
				one.actions[name] = act
			}
			break
		}
		if _, ok := one.actions[wanted[0]]; !ok && (asked.Operation == "download" || len(one.actions) > 0) {
			one.missing = true // to upload nothing is to have it already; all else needs the address
		}
		out = append(out, one)
	}
	return out, nil
}

// lfsAction reads one address. It must lead to the same repository at the host,
// or to a store of the connection; to anything else no object goes, and none
// comes from there (EG-84).
func (h *host) lfsAction(href string, header map[string]string, r Repository) (lfsAction, bool) {
	u, err := url.Parse(href)
	if err != nil || len(href) > maxLFSHref || len(header) > maxLFSHeaders || u.Scheme != authority.HTTPS || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return lfsAction{}, false
	}
	to, err := authority.ParseHostHeader(u.Scheme, u.Host)
	if err != nil {
		return lfsAction{}, false
	}
	a := lfsAction{href: secret.FromString(href), own: to == h.To, header: map[string]secret.Value{}}
	if a.own {
		return a, h.lfsPath(u, r)
	}
	for name, value := range header {
		a.header[name] = secret.FromString(value)
	}
	return a, slices.ContainsFunc(h.Stores, func(p authority.Pattern) bool { return p.Match(to) && to.Port() == 443 })
}

// lfsPath reports whether an address at the host is below the repository, in a
// form that can be read in one way.
func (h *host) lfsPath(u *url.URL, r Repository) bool {
	if u.RawPath != "" || strings.ContainsAny(u.EscapedPath(), `%\;`) || strings.Contains(u.Path, "//") {
		return false
	}
	parts := strings.SplitN(strings.TrimPrefix(u.Path, "/"), "/", 3)
	if len(parts) != 3 || !strings.HasPrefix(parts[2], "info/lfs/") && !strings.HasPrefix(parts[2], "gitlab-lfs/") {
		return false
	}
	for s := range strings.SplitSeq(parts[2], "/") {
		if s == "." || s == ".." || s == "" {
			return false
		}
	}
	path, bad := canonical(parts[0], parts[1])
	return !bad && h.by[path] == r
}
