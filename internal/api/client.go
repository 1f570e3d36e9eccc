package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Client calls a node over its unix socket. Its errors are problems: those of
// the node as it sent them, and problem.Unreachable when there is none.
type Client struct {
	http  *http.Client
	path  string
	token secret.Value
}

// NewClient returns a client for the socket at path.
func NewClient(path string) *Client {
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}}
}

// As makes the client speak as the owner of an API token instead of as the
// machine's user.
func (c *Client) As(token secret.Value) { c.token = token }

// Send posts in as JSON and decodes the answer into out. header may hold If-Match
// and the like.
func (c *Client) Send(ctx context.Context, path string, in any, header http.Header, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if header = header.Clone(); header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	r, err := c.do(ctx, http.MethodPost, path, b, header)
	if err != nil {
		return err
	}
	return decode(r, out)
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get decodes the answer of GET path?query into out.
func (c *Client) Get(ctx context.Context, path string, query url.Values, out any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.json(ctx, http.MethodGet, path, nil, out)
}

// Post sends a body as application/yaml (nil for none) and decodes the answer.
func (c *Client) Post(ctx context.Context, path string, yaml []byte, out any) error {
	return c.json(ctx, http.MethodPost, path, yaml, out)
}

// File returns the bytes of GET path?query. A read error means that the file is
// not whole.
func (c *Client) File(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	r, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	return r.Body, nil
}

func (c *Client) json(ctx context.Context, method, path string, yaml []byte, out any) error {
	var header http.Header
	if yaml != nil {
		header = http.Header{"Content-Type": {"application/yaml"}}
	}
	r, err := c.do(ctx, method, path, yaml, header)
	if err != nil {
		return err
	}
	return decode(r, out)
}

func decode(r *http.Response, out any) error {
	defer func() { _ = r.Body.Close() }()
	if err := json.NewDecoder(r.Body).Decode(out); err != nil {
		return fmt.Errorf("couldn't read the node's answer: %w", err)
	}
	return nil
}

// unreachable says why the node did not answer. Which request it was says
// nothing to a person who typed a verb.
func (c *Client) unreachable(err error) error {
	hint := "start it with `gatehouse serve`, or name its configuration with --config"
	if errors.Is(err, fs.ErrPermission) {
		hint = "the socket is for the user that runs the node: be that user"
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	return problem.Wrap(err, problem.Unreachable, "couldn't reach the node at "+c.path, hint)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://gatehouse"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if !c.token.Empty() {
		req.Header.Set("Authorization", "Bearer "+string(c.token.Reveal()))
	}
	r, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if r.StatusCode < 300 {
		return r, nil
	}
	defer func() { _ = r.Body.Close() }()
	var p Problem
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&p); err != nil || p.Code == "" {
		return nil, fmt.Errorf("the node answered %s", r.Status)
	}
	if p.Detail != "" {
		p.Title += ": " + p.Detail
	}
	return nil, problem.New(p.Code, p.Title, p.Hint)
}
