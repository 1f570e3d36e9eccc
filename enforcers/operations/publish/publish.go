// Package publish has the operations package.publish.NAME: files that a person
// approved by their digest, put into a registry. It reads a version and a
// digest, takes the file with that digest from what sessions left behind, and
// writes it once through a Remote.
//
// It must never send bytes that do not have the approved digest, put one version
// twice, or take a file from the session that asks.
package publish

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"gatehouse/enforcers/operations"
	"gatehouse/internal/problem"
)

// Prefix begins the names of these operations; the package's name follows.
const Prefix = "package.publish."

// maxFile bounds one file.
const maxFile = 64 << 20

// Package is one declared package.
type Package struct {
	Name     string // the operation's, Prefix included
	Summary  string
	Remote   *operations.Remote
	Path     string                                        // absolute; {version} stands for a whole segment
	Approved map[string]string                             // version -> lower-hex SHA-256 of the file that may be it
	File     func(sha256hex string) (io.ReadCloser, error) // what sessions left in /gatehouse/out

	turn chan struct{} // held by the one call, of all sessions, that looks and puts
}

// CodeUnapproved refuses a version or digest that nobody approved.
const CodeUnapproved = "package_not_approved"

const schema = `{"type":"object","additionalProperties":false,"required":["version","digest"],"properties":{
"version":{"type":"string","minLength":1,"maxLength":64},
"digest":{"type":"string","pattern":"^[0-9a-f]{64}$","description":"SHA-256 of the file, as the operator approved it"}}}`

// Operation returns the operation, or says what is wrong with the declaration.
func (p *Package) Operation() (operations.Operation, error) {
	if err := operations.CheckPath(p.Path); err != nil {
		return operations.Operation{}, err
	}
	for version, digest := range p.Approved {
		if b, err := hex.DecodeString(digest); err != nil || len(b) != sha256.Size {
			return operations.Operation{}, fmt.Errorf("version %s is approved by something that is no SHA-256", version)
		}
		if path, _, err := operations.FillPath(p.Path, map[string]any{"version": version}); err != nil || path == p.Path {
			return operations.Operation{}, errors.New("path needs {version} as one of its segments")
		}
	}
	p.turn = make(chan struct{}, 1)
	return operations.Operation{
		Name: p.Name, Summary: p.Summary, Schema: json.RawMessage(schema),
		Limits: operations.Limits{Calls: 5, Minute: 5, Timeout: 5 * time.Minute}, Do: p.publish,
	}, nil
}

func (p *Package) publish(ctx context.Context, c *operations.Call) (any, error) {
	var a struct{ Version, Digest string }
	if err := c.Into(&a); err != nil {
		return nil, err
	}
	if approved, ok := p.Approved[a.Version]; !ok || approved != a.Digest {
		return nil, problem.New(CodeUnapproved, "nobody approved that digest for that version", "Leave the file in /gatehouse/out and ask the operator to approve its digest.")
	}
	path, _, err := operations.FillPath(p.Path, map[string]any{"version": a.Version})
	if err != nil {
		return nil, err
	}
	// One at a time: the next sees what this one put, and one file is in memory.
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, problem.Wrap(ctx.Err(), operations.CodeLimit, "another call publishes this package", "Try again later with the same key.")
	}
	file, err := p.read(a.Digest)
	if err != nil {
		return nil, err
	}
	status, _, err := p.Remote.Ask(ctx, c, operations.Request{Method: http.MethodHead, Path: path})
	switch {
	case err != nil:
		return nil, err
	case status/100 == 2: // a version is put once, whoever put it
		return map[string]any{"version": a.Version, "existed": true}, nil
	case status != http.StatusNotFound:
		return nil, operations.Refused(status)
	}
	sum, err := hex.DecodeString(a.Digest)
	if err != nil {
		return nil, err
	}
	_, err = p.Remote.Send(ctx, c, operations.Request{Method: http.MethodPut, Path: path, Body: file, Header: http.Header{
		"Content-Type":   {"application/octet-stream"},
		"Content-Digest": {"sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":"},
		"If-None-Match":  {"*"},
	}})
	if err != nil {
		return nil, err
	}
	return map[string]any{"version": a.Version, "digest": a.Digest, "existed": false}, nil
}

// read returns the file and holds it against its digest once more: what was
// approved is what leaves, whatever lies in the store.
func (p *Package) read(digest string) ([]byte, error) {
	missing := problem.New(operations.CodeFailed, "no session left a file with that digest", "A session that makes it must have ended.")
	r, err := p.File(digest)
	if err != nil {
		return nil, missing
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, missing
	}
	if len(b) > maxFile {
		return nil, problem.New(operations.CodeFailed, fmt.Sprintf("the file is larger than %d MiB", maxFile>>20), "")
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != digest {
		return nil, problem.New(operations.CodeFailed, "the stored file does not have its digest", "")
	}
	return b, nil
}
