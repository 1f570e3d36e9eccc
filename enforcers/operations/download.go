package operations

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

// Caps of what is brought in from a host's stores.
const (
	maxDownload  = 32 << 20
	maxDelivered = 8 << 20 // one file of the inbox
	maxText      = 128 << 10
	maxListed    = 1000
)

// outsiderText is what a program printed somewhere else, as an agent is given
// it.
type outsiderText struct {
	Origin    string   `json:"origin"` // always outsider
	Text      string   `json:"untrusted_text"`
	Truncated bool     `json:"truncated"`
	Inbox     string   `json:"inbox,omitempty"` // path inside of a file with more of it
	Files     []string `json:"untrusted_files,omitempty"`
}

func (g *GitHub) logs(ctx context.Context, c *Call) (any, error) {
	var a struct{ Job int64 }
	if err := c.Into(&a); err != nil {
		return nil, err
	}
	api, err := g.client(ctx, c, accessLogs)
	if err != nil {
		return nil, err
	}
	u, resp, err := api.Actions.GetWorkflowJobLogs(ctx, g.Owner, g.Name, a.Job, 0)
	if err != nil {
		return nil, failed(c, resp, err)
	}
	b, err := g.download(ctx, c, u)
	if err != nil {
		return nil, err
	}
	out := text(b)
	if len(b) > maxDelivered {
		b = b[len(b)-maxDelivered:]
	}
	out.Inbox, err = g.deliver(c, fmt.Sprintf("job-%d.log", a.Job), b)
	return out, err
}

// inTurn has one of a session's calls at a time: each holds a download in memory,
// and a zip file's list takes three times its bytes.
func (g *GitHub) inTurn(do func(context.Context, *Call) (any, error)) func(context.Context, *Call) (any, error) {
	return func(ctx context.Context, c *Call) (any, error) {
		select {
		case g.turn <- struct{}{}:
			defer func() { <-g.turn }()
			return do(ctx, c)
		case <-ctx.Done():
			return nil, problem.Wrap(ctx.Err(), CodeLimit, "other downloads of this session took too long", "Try again with the same key, one at a time.")
		}
	}
}

// deliver leaves text of outsiders in the session's inbox.
func (g *GitHub) deliver(c *Call, name string, b []byte) (path string, err error) {
	if g.Inbox == nil {
		return "", nil
	}
	plain := []byte(scrub(b))
	if c.holds(plain) {
		return "", problem.New(enforcers.CodeReflected, "what was brought in held a credential", "") // ME-13
	}
	return g.Inbox.put(name, plain)
}

func (g *GitHub) artifact(ctx context.Context, c *Call) (any, error) {
	var a struct {
		Artifact int64
		Path     string
	}
	if err := c.Into(&a); err != nil {
		return nil, err
	}
	api, err := g.client(ctx, c, accessLogs)
	if err != nil {
		return nil, err
	}
	u, resp, err := api.Actions.DownloadArtifact(ctx, g.Owner, g.Name, a.Artifact, 0)
	if err != nil {
		return nil, failed(c, resp, err)
	}
	b, err := g.download(ctx, c, u)
	if err != nil {
		return nil, err
	}
	out, content, err := unpack(b, a.Path)
	if err == nil && a.Path != "" {
		sum := sha256.Sum256([]byte(a.Path))
		out.Inbox, err = g.deliver(c, fmt.Sprintf("artifact-%d-%x.txt", a.Artifact, sum[:4]), content)
	}
	return out, err
}

// download follows the one redirect of the API, without the credential.
func (g *GitHub) download(ctx context.Context, c *Call, u *url.URL) ([]byte, error) {
	resp, err := g.Download(ctx, u)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	c.Status(resp.StatusCode)
	if resp.StatusCode != http.StatusOK {
		return nil, problem.New(CodeFailed, fmt.Sprintf("the host's store answered %d", resp.StatusCode), "")
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxDownload+1))
	if err != nil {
		return nil, problem.Wrap(err, CodeFailed, "the download broke off", "Try again with the same key.")
	}
	if len(b) > maxDownload {
		return nil, problem.New(CodeResult, fmt.Sprintf("it is larger than %d MiB", maxDownload>>20), "")
	}
	return b, nil
}

// text returns the end of what was printed: that is where a log says what went
// wrong.
func text(b []byte) outsiderText {
	out := outsiderText{Origin: "outsider"}
	if len(b) > maxText {
		b, out.Truncated = b[len(b)-maxText:], true
	}
	out.Text = scrub(b)
	return out
}

// unpack lists a zip file, or returns one file of it: its beginning as text, and
// more of it as it is.
func unpack(b []byte, path string) (out outsiderText, content []byte, err error) {
	out.Origin = "outsider"
	bad := func(err error) error {
		return problem.Wrap(err, CodeFailed, "the artifact is not a zip file that can be read", "")
	}
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return out, nil, bad(err)
	}
	for _, f := range z.File {
		if path == "" {
			if len(out.Files) == maxListed {
				out.Truncated = true
				break
			}
			out.Files = append(out.Files, scrub([]byte(f.Name)))
			continue
		}
		if f.Name != path {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return out, nil, bad(err)
		}
		content, err := io.ReadAll(io.LimitReader(r, maxDelivered))
		_ = r.Close()
		if err != nil {
			return out, nil, bad(err)
		}
		out.Truncated = len(content) > maxText
		out.Text = scrub(content[:min(len(content), maxText)])
		return out, content, nil
	}
	if path != "" {
		return out, nil, problem.New(CodeArguments, "the artifact has no such file", "Leave path out to list its files.")
	}
	return out, nil, nil
}

// tokens are credentials by the marks that their makers put on them.
var tokens = regexp.MustCompile(`gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`)

// scrub makes text of what may be anything: no controls but line ends and tabs,
// and nothing that is marked as a credential.
func scrub(b []byte) string {
	s := strings.ToValidUTF8(string(b), string(utf8.RuneError))
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case r < ' ', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return -1
		}
		return r
	}, s)
	return tokens.ReplaceAllString(s, "[credential removed]")
}
