package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"gatehouse/enforcers/git"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

// purposeLFS names the node's calls that carry a session's large files.
const purposeLFS = "scm.lfs"

// lfsTimeout bounds one of them: an object has at most a gigabyte.
const lfsTimeout = 30 * time.Minute

// largeFileStores are where github.com keeps large files: its batch API answers
// with addresses there. Any other host has them itself, or the connection says
// where.
var largeFileStores = []string{"github-cloud.s3.amazonaws.com", "github-cloud.githubusercontent.com", "lfs.github.com"}

// storesOf returns where a connection's large files may be besides its host.
func storesOf(c config.Connection) ([]authority.Pattern, error) {
	names := c.Stores
	if len(names) == 0 && c.Provider == "github" && c.API == "" {
		names = largeFileStores
	}
	var out []authority.Pattern
	for _, name := range names {
		p, err := authority.ParsePattern(name)
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "connections."+c.Name+".stores: want host names", "")
		}
		out = append(out, p)
	}
	return out, nil
}

// largeFiles carries out the calls for one session's large files: decided in its
// own chain, and each with a receipt in the node's.
func (m *gits) largeFiles(session string) func(context.Context, string, string, git.Access, *http.Request) (*http.Response, error) {
	node := &node{notary: m.notary, log: m.log}
	return func(ctx context.Context, connection, repository string, a git.Access, r *http.Request) (*http.Response, error) {
		at := slices.IndexFunc(m.hosts, func(h git.Host) bool { return h.Connection == connection })
		to, err := authority.ParseHostHeader(r.URL.Scheme, r.URL.Host)
		if err != nil || at < 0 {
			return nil, fmt.Errorf("a large file of connection %q: no such place", connection)
		}
		if a != "" {
			if to != m.hosts[at].To {
				return nil, problem.New(git.CodeLFSHref, "the credential is for another host", "")
			}
			token, err := m.credentials[at].Token(ctx, session, repository, a)
			if err != nil {
				return nil, err
			}
			m.credentials[at].Authorize(r, token)
		}
		up, err := m.up.Node(upstream.NodeOptions{Purpose: purposeLFS, To: to, Timeout: lfsTimeout, Begin: node.begin(purposeLFS, connection, to, m.dev)})
		if err != nil {
			return nil, err
		}
		return up.RoundTrip(r.WithContext(ctx))
	}
}
