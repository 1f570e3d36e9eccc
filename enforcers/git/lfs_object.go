package git

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/gatekeeper/sandbox/quarantine"
	"gatehouse/internal/problem"
)

// lfsObject handles a request to an address that a batch's answer gave.
func (m *Mediator) lfsObject(w http.ResponseWriter, r *door.Request, h *host, repository Repository, t target, oid, rest string) {
	operation := map[string]string{http.MethodGet: "download", http.MethodPut: "upload", http.MethodPost: "verify"}[r.Method]
	if (rest == "verify") != (operation == "verify") || rest != "" && rest != "verify" {
		operation = ""
	}
	one, ok := m.offers.get(offerKey{repository.ID, oid, operation})
	object := lfsObject{oid, one.size}
	code := ""
	if !ok {
		code = CodeLFSAsked
		if operation == "" {
			code = CodeLFS
		}
	}
	file := ""
	if code == "" && operation == "upload" {
		// One at a time: what a session can make the node hold is one object.
		select {
		case m.turn <- struct{}{}:
			defer func() { <-m.turn }()
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
		file, code = m.stageLFS(r, object)
		if file != "" {
			defer os.Remove(file)
		}
	}
	a := lfsActionFor(r.Gate, h, repository, t, operation, one.ref, object)
	a.HardSet = code
	p, d := r.Decide(a)
	if p == nil {
		refuseLFS(w, d)
		return
	}
	var err error
	switch operation {
	case "download":
		err = m.downloadLFS(w, r, p, h, repository, one, object)
	case "upload":
		err = m.uploadLFS(r, p, h, repository, one, file)
	default:
		err = m.sendLFS(r, p, h, repository, one, lfsTo(one, http.MethodPost, object))
	}
	if err != nil {
		failLFS(w, d, err)
		return
	}
	if operation != "download" {
		w.Header().Set(door.ReceiptHeader, d.Receipt.String())
		w.WriteHeader(http.StatusOK)
	}
}

// stageLFS takes an object whole, and holds it against its name and size before
// any of it leaves.
func (m *Mediator) stageLFS(r *door.Request, object lfsObject) (file, code string) {
	body, err := decoded(r)
	if err != nil {
		return "", CodeLFSObject
	}
	f, err := os.CreateTemp(m.o.Push.Dir, "lfs-")
	if err != nil {
		return "", CodeInspection
	}
	defer f.Close()
	sum := sha256.New()
	planted := &finder{value: m.o.Placeholder.Reveal()}
	n, err := io.Copy(io.MultiWriter(f, sum, planted), io.LimitReader(body, object.Size+1))
	switch {
	case err != nil, n != object.Size, hex.EncodeToString(sum.Sum(nil)) != object.OID:
		return f.Name(), CodeLFSObject
	case planted.found:
		return f.Name(), quarantine.Canary
	}
	total := m.o.LFS.Total
	if total == 0 {
		total = defaultLFSTotal
	}
	if !m.offers.take(n, total) {
		return f.Name(), CodePushSize
	}
	return f.Name(), ""
}

// finder looks for a value in what is written to it.
type finder struct {
	value []byte
	tail  []byte
	found bool
}

func (f *finder) Write(b []byte) (int, error) {
	if len(f.value) > 0 && !f.found {
		window := append(f.tail, b...)
		f.found = bytes.Contains(window, f.value)
		f.tail = bytes.Clone(window[max(0, len(window)-len(f.value)+1):])
	}
	return len(b), nil
}

func (m *Mediator) uploadLFS(r *door.Request, p *enforcers.Permit, h *host, repository Repository, one offer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		p.Void(CodeInspection)
		return problem.Wrap(err, CodeInspection, "the object could not be read again", "")
	}
	defer f.Close()
	out := lfsTo(one, http.MethodPut, nil)
	out.Body, out.ContentLength = io.NopCloser(f), one.size
	if one.size == 0 {
		out.Body = http.NoBody
	}
	out.Header.Set("Content-Type", "application/octet-stream")
	return m.sendLFS(r, p, h, repository, one, out)
}

// sendLFS sends something whose answer is a status alone.
func (m *Mediator) sendLFS(r *door.Request, p *enforcers.Permit, h *host, repository Repository, one offer, out *http.Request) error {
	resp, err := m.callLFS(r.Context(), p, h, repository, one.access(Write), out)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return objectFault(resp.StatusCode)
	}
	return nil
}

// objectFault words a status that is no answer about an object.
func objectFault(status int) error {
	if status >= 300 && status < 400 {
		return redirected(nil)
	}
	return answerFault(status)
}

// redirected is what a store behind the host answers with (EG-84): the address
// would work by itself, and leads past what was judged.
func redirected(err error) error {
	return problem.Wrap(err, CodeLFSMoved, "the host answered with a redirect", hints[CodeLFSMoved])
}

// access is what a call to an offer's address needs a credential for: none at a
// store, whose address works by itself.
func (o offer) access(a Access) Access {
	if o.own {
		return a
	}
	return ""
}

// downloadLFS brings an object in. Its last byte waits until all of it is what
// its name says.
func (m *Mediator) downloadLFS(w http.ResponseWriter, r *door.Request, p *enforcers.Permit, h *host, repository Repository, one offer, object lfsObject) error {
	var resp *http.Response
	var err error
	out := lfsTo(one, http.MethodGet, nil)
	if one.own {
		// With the answer under watch for the credential that the request carries.
		resp, err = r.Up.Do(p, out.WithContext(r.Context()))
		if problem.CodeOf(err) == enforcers.CodeAnswerCredential {
			err = redirected(err) // to a signed address
		}
	} else {
		resp, err = m.callLFS(r.Context(), p, h, repository, "", out)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return objectFault(resp.StatusCode)
	}
	if resp.ContentLength >= 0 && resp.ContentLength != object.Size {
		return problem.New(CodeLFSObject, "the object has another size", hints[CodeLFSObject])
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := copyLFS(w, resp.Body, object); err != nil {
		if c, ok := resp.Body.(*carried); ok {
			c.out.Code = string(problem.CodeOf(err))
		}
		panic(http.ErrAbortHandler) // the client sees that it broke off
	}
	return nil
}

// copyLFS copies an object but for its last byte, and that one when the whole is
// what its name says.
func copyLFS(w io.Writer, body io.Reader, object lfsObject) error {
	sum := sha256.New()
	if object.Size > 0 {
		if _, err := io.CopyN(io.MultiWriter(w, sum), body, object.Size-1); err != nil {
			return err
		}
	}
	last, err := io.ReadAll(io.LimitReader(body, 2))
	if err != nil {
		return err
	}
	sum.Write(last)
	if int64(len(last)) != min(object.Size, 1) || hex.EncodeToString(sum.Sum(nil)) != object.OID {
		return problem.New(CodeLFSObject, "the object is not what its name says", hints[CodeLFSObject])
	}
	_, err = w.Write(last)
	return err
}

// lfsTo builds a request to an offer's address, with the fields that the host
// wants there and nothing of the client's.
func lfsTo(one offer, method string, body any) *http.Request {
	out := &http.Request{Method: method, Header: http.Header{}}
	if body != nil {
		out = jsonRequest(method, "", body)
	}
	for name, v := range one.header {
		out.Header.Set(name, string(v.Reveal()))
	}
	for _, name := range []string{"Host", "Connection", "Transfer-Encoding", "Content-Length", "Accept-Encoding"} {
		out.Header.Del(name)
	}
	out.Header.Set("User-Agent", userAgent)
	u, err := url.Parse(string(one.href.Reveal()))
	if err != nil {
		u = &url.URL{} // it was read when it was offered; this goes nowhere
	}
	out.URL = u
	return out
}

// jsonRequest is a request of the LFS API.
func jsonRequest(method, to string, body any) *http.Request {
	b, err := json.Marshal(body)
	if err != nil {
		b = nil // cannot happen: strings and numbers
	}
	u, err := url.Parse(to)
	if err != nil {
		u = &url.URL{}
	}
	return &http.Request{
		Method: method, URL: u, Body: io.NopCloser(bytes.NewReader(b)), ContentLength: int64(len(b)),
		Header: http.Header{"Content-Type": {lfsType}, "Accept": {lfsType}, "User-Agent": {userAgent}},
	}
}
