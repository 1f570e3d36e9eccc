package operations

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Remote is a connection as operations use it: one place, and a way there that
// adds the credential last. An operation never sees the credential.
type Remote struct {
	To      authority.Authority
	Exit    http.RoundTripper // fixed to To
	Guarded []secret.Value    // no answer may hold them
	MarkKey secret.Value      // seals the ids of what calls make
}

// Request is one request of an operation.
type Request struct {
	Method string
	Path   string // escaped, from the root
	Query  url.Values
	Header http.Header
	Body   []byte // JSON, unless Header says otherwise
}

// maxAnswer bounds an answer from outside. More of it is not read.
const maxAnswer = 1 << 20

// Send makes one request and returns the body of an answer that says it went
// well. What the other side says when it did not stays outside; its status does
// not.
func (r *Remote) Send(ctx context.Context, c *Call, q Request) ([]byte, error) {
	status, body, err := r.Ask(ctx, c, q)
	if err != nil {
		return nil, err
	}
	if status/100 != 2 {
		return nil, Refused(status)
	}
	return body, nil
}

// Refused is the error of an answer that says that it did not go well.
func Refused(status int) error {
	hint := ""
	if status == http.StatusTooManyRequests || status/100 == 5 {
		hint = "Try again later with the same key."
	}
	return problem.New(CodeFailed, fmt.Sprintf("the other side answered %d", status), hint)
}

// Ask is Send for an operation that reads more than one status.
func (r *Remote) Ask(ctx context.Context, c *Call, q Request) (status int, body []byte, err error) {
	for _, v := range r.Guarded {
		c.Watch(v)
	}
	u := &url.URL{Scheme: r.To.Scheme(), Host: r.To.HostHeader(), RawQuery: q.Query.Encode()}
	if u.Path, err = url.PathUnescape(q.Path); err != nil {
		return 0, nil, problem.New(CodeArguments, "the path cannot be written", "")
	}
	u.RawPath = q.Path
	req, err := http.NewRequestWithContext(ctx, q.Method, u.String(), bytes.NewReader(q.Body))
	if err != nil {
		return 0, nil, problem.New(problem.Internal, "the request cannot be written", "")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "gatehouse")
	if len(q.Body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, v := range q.Header {
		req.Header[name] = v
	}
	resp, err := r.Exit.RoundTrip(req) // follows nothing
	if err != nil {
		return 0, nil, unanswered(err)
	}
	defer resp.Body.Close()
	c.Status(resp.StatusCode)
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, Unknown(problem.Wrap(err, CodeFailed, "the answer broke off", "Try again with the same key."))
	case len(body) > maxAnswer:
		return 0, nil, problem.New(CodeResult, "it was carried out, and the answer is too large to be read", "")
	case c.holds(body):
		return 0, nil, problem.New(enforcers.CodeReflected, "the answer held a credential; the session has ended", "") // ME-13
	}
	return resp.StatusCode, body, nil
}

// unsent are the codes of calls of which no byte left.
var unsent = map[problem.Code]bool{
	enforcers.CodeAddressNotPublic: true, enforcers.CodeDNS: true, enforcers.CodeDNSName: true, enforcers.CodeDNSAnswers: true, enforcers.CodeConnect: true,
	enforcers.CodeTLS: true, enforcers.CodePeer: true, enforcers.CodePermit: true, enforcers.CodeCredential: true, enforcers.CodeWrongHost: true,
	enforcers.CodeReceiptUnavailable: true, enforcers.CodeLoop: true, enforcers.CodeMetadata: true, enforcers.CodeSpecialName: true,
}

func unanswered(err error) error {
	if code := problem.CodeOf(err); unsent[code] {
		return problem.Wrap(err, CodeFailed, "the other side could not be reached: "+string(code), "Try again later with the same key.")
	}
	if errors.Is(err, context.Canceled) {
		return Unknown(problem.Wrap(err, enforcers.CodeRevoked, "the session ended while the call was under way", ""))
	}
	return Unknown(problem.Wrap(err, CodeFailed, "the other side did not answer", "Try again with the same key."))
}

// Scrub makes text of what came from outside: no controls but line ends and
// tabs, nothing that is marked as a credential, and at most max bytes.
func Scrub(s string, max int) string {
	if len(s) > max {
		s = s[:max]
	}
	return scrub([]byte(s))
}

// ID is a version 4 UUID of a call alone: the same call tried again has the same
// one, so that what it made is found and not made twice. It is sealed: whoever
// knows the session and the call's key cannot be there first with something else
// under it (T-17).
func (r *Remote) ID(c *Call, purpose string) string {
	h := hmac.New(sha256.New, r.idKey())
	fmt.Fprintf(h, "gatehouse id\x00%s\x00%s\x00%s", purpose, c.Session, c.Key)
	b := h.Sum(nil)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// idKey is the node's key. Without one an id is nobody's, and no call is found again.
func (r *Remote) idKey() []byte {
	if k := r.MarkKey.Reveal(); len(k) > 0 {
		return k
	}
	return []byte(rand.Text())
}
