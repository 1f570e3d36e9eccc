package git

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/internal/problem"
)

// maxRequest bounds a fetch request, decoded: a negotiation names objects, 50
// bytes each.
const maxRequest = 8 << 20

// userAgent stands in for the client's own: hosts choose by it what they speak.
const userAgent = "git/2.39 (gatehouse)"

// fetch handles git-upload-pack: its references and its service.
func (m *Mediator) fetch(w http.ResponseWriter, r *door.Request, h *host, repository Repository, t target, code string) {
	version, ok := protocolOf(r.Header)
	if !ok && code == "" {
		code = enforcers.CodeMalformed
	}
	var body []byte
	if code == "" && t.op == opService {
		body, code = fetchRequest(r, version)
	}
	a := fetchAction(r.Gate, h, repository, t, version)
	a.HardSet = code
	p, d := r.Decide(a)
	if p == nil {
		refuse(w, d)
		return
	}
	out := outgoing(r.Context(), repository, t, version, body)
	resp, err := send(r, p, out, t.op, t.service)
	if err != nil {
		fail(w, d, err)
		return
	}
	if t.op == opRefs {
		resp.Body = &advertised{ReadCloser: resp.Body, in: packets{r: resp.Body, left: maxAdvertised}}
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	door.Relay(w, resp)
}

func fetchAction(g *enforcers.Gate, h *host, repository Repository, t target, version int) *enforcers.Action {
	a := g.Action(enforcers.GitFetch)
	a.Connection = h.Connection
	a.Fetch = &enforcers.Fetch{To: h.To, Repository: repository.ID, Path: t.path, Protocol: version}
	return a
}

// outgoing builds the request that is sent: the repository as the node lists
// it, and nothing of the client's but what was read.
func outgoing(ctx context.Context, repository Repository, t target, version int, body []byte) *http.Request {
	r := &http.Request{Method: http.MethodGet, Header: http.Header{"User-Agent": {userAgent}, "Accept": {"*/*"}}, ContentLength: int64(len(body))}
	path := "/" + repository.Name + ".git/"
	if t.op == opRefs {
		r.URL = &url.URL{Path: path + "info/refs", RawQuery: "service=" + t.service}
	} else {
		r.Method = http.MethodPost
		r.URL = &url.URL{Path: path + t.service}
		r.Header.Set("Content-Type", "application/x-"+t.service+"-request")
		r.Header.Set("Accept", "application/x-"+t.service+"-result")
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if version > 0 {
		r.Header.Set("Git-Protocol", fmt.Sprintf("version=%d", version))
	}
	return r.WithContext(ctx)
}

// send carries a request out and returns git's answer to it or an error. The
// caller closes the body.
func send(r *door.Request, p *enforcers.Permit, out *http.Request, op, service string) (*http.Response, error) {
	resp, err := r.Up.Do(p, out)
	if err != nil {
		return nil, err
	}
	want := "application/x-" + service + "-result"
	if op == opRefs {
		want = "application/x-" + service + "-advertisement"
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		err = answerFault(resp.StatusCode)
	case resp.Header.Get("Content-Type") != want:
		err = problem.New(CodeAnswer, "the answer is not git's", "The host did not speak smart HTTP.")
	default:
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, err
}

// answerFault words a status that is no answer.
func answerFault(status int) error {
	switch {
	case status >= 300 && status < 400:
		// EG-81: a renamed repository is another one until the node lists it.
		return problem.New(CodeMoved, "the repository has moved", "The repository was renamed or moved: ask the operator to list its new name under repositories.")
	case status == http.StatusNotFound, status == http.StatusUnauthorized, status == http.StatusForbidden:
		return problem.New(CodeAnswer, "the host refused", fmt.Sprintf("The host answered %d: ask the operator whether the connection may use this repository.", status))
	}
	return problem.New(CodeAnswer, "the host answered with an error", fmt.Sprintf("The host answered %d; try again later.", status))
}

// fetchRequest reads the whole of a git-upload-pack request, decoded, and
// returns a code when something in it is not known to only name objects.
func fetchRequest(r *door.Request, version int) (body []byte, code string) {
	raw, err := decoded(r)
	if err != nil {
		return nil, enforcers.CodeMalformed
	}
	body, err = io.ReadAll(io.LimitReader(raw, maxRequest+1))
	if err != nil || len(body) > maxRequest || r.Header.Get("Content-Type") != "application/x-git-upload-pack-request" {
		return nil, enforcers.CodeMalformed
	}
	return body, fetchCode(body, version)
}

// decoded returns the body without its content encoding.
func decoded(r *door.Request) (io.Reader, error) {
	switch codings := r.Header["Content-Encoding"]; {
	case len(codings) == 0:
		return r.Body, nil
	case len(codings) > 1:
		return nil, errors.New("more than one content encoding")
	case codings[0] == "gzip", codings[0] == "x-gzip":
		return gzip.NewReader(r.Body)
	case codings[0] == "identity":
		return r.Body, nil
	}
	return nil, errors.New("unknown content encoding")
}

// What a fetch request may hold. bundle-uri and packfile-uris would bring
// addresses that work without a credential (EG-84); what is not here is not
// known, and refused.
var (
	fetchCommands = []string{"ls-refs", "fetch"}
	fetchWords    = []string{
		"want", "have", "done", "shallow", "deepen", "deepen-since", "deepen-not", "deepen-relative", "filter",
		"thin-pack", "no-progress", "include-tag", "ofs-delta", "want-ref", "sideband-all", "wait-for-done",
		"peel", "symrefs", "ref-prefix", "unborn", // ls-refs
		"agent", "server-option", "object-format", "session-id", // capabilities of a request
	}
)

func fetchCode(body []byte, version int) string {
	in := packets{r: bytes.NewReader(body), left: maxRequest}
	command := version < 2
	for {
		p, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			if !command && len(body) > 0 {
				return enforcers.CodeMalformed
			}
			return ""
		case err != nil:
			return enforcers.CodeMalformed
		case p.data == nil:
			continue
		}
		line := p.text()
		if name, ok := strings.CutPrefix(line, "command="); ok && version == 2 {
			if !slices.Contains(fetchCommands, name) {
				return CodeUnlistedQ
			}
			command = true
			continue
		}
		end := strings.IndexAny(line, " =")
		if end < 0 {
			end = len(line)
		}
		if !slices.Contains(fetchWords, line[:end]) {
			return CodeUnlistedQ
		}
	}
}
