package git

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"gatehouse/enforcers/door"
	"gatehouse/gatekeeper/sandbox/quarantine"
	"gatehouse/internal/problem"
)

// pushRefs answers info/refs for git-receive-pack. The references come from
// git-upload-pack under a git.fetch action: what a client must know before it
// pushes, whoever may fetch knows already, and no token that can write is
// minted before a push was permitted.
func (m *Mediator) pushRefs(w http.ResponseWriter, r *door.Request, h *host, repository Repository, t target) {
	from := t
	from.service = uploadPack
	p, d := r.Decide(fetchAction(r.Gate, h, repository, from, 0))
	if p == nil {
		refuse(w, d)
		return
	}
	resp, err := send(r, p, outgoing(r.Context(), repository, from, 0, nil), opRefs, uploadPack)
	if err != nil {
		fail(w, d, err)
		return
	}
	defer resp.Body.Close()
	in := packets{r: resp.Body, left: maxAdvertised}
	w.Header().Set("Content-Type", "application/x-"+receivePack+"-advertisement")
	w.Header().Set("Cache-Control", "no-cache")
	if err := writePushRefs(w, &in); err != nil {
		if errors.Is(err, errNothingWritten) {
			fail(w, d, problem.Wrap(err, CodeAnswer, "the advertisement is not one to push by", "The host's references could not be read, or use another hash than SHA-1."))
			return
		}
		panic(http.ErrAbortHandler)
	}
}

var errNothingWritten = errors.New("unexpected advertisement")

// writePushRefs turns an advertisement of git-upload-pack into one of
// git-receive-pack with this package's own capabilities. Only branches and tags
// are shown: nothing else can be pushed.
func writePushRefs(w io.Writer, in *packets) error {
	first, err := in.next()
	if err != nil || first.text() != "# service="+uploadPack {
		return errNothingWritten
	}
	if flush, err := in.next(); err != nil || !flush.flush() {
		return errNothingWritten
	}
	capabilities := "\x00" + strings.Join(pushCapabilities, " ")
	begin := appendFlush(appendPkt(nil, "# service="+receivePack+"\n"))
	written := false
	put := func(line string) error {
		b := appendPkt(begin, line+capabilities+"\n")
		begin, capabilities, written = nil, "", true
		_, err := w.Write(b)
		return err
	}
	for n := 0; ; n++ {
		pkt, err := in.next()
		if err == nil && pkt.data == nil && !pkt.flush() {
			err = errPkt
		}
		if err != nil {
			if !written {
				return errNothingWritten
			}
			return err
		}
		if pkt.flush() {
			break
		}
		line, offers, _ := strings.Cut(pkt.text(), "\x00")
		if n == 0 {
			for _, o := range strings.Fields(offers) {
				if f, ok := strings.CutPrefix(o, "object-format="); ok && f != "sha1" {
					return errNothingWritten
				}
			}
		}
		id, ref, _ := strings.Cut(line, " ")
		if strings.HasPrefix(id, "ERR") {
			return errNothingWritten
		}
		if !quarantine.ObjectID(id) || strings.HasSuffix(ref, "^{}") || !strings.HasPrefix(ref, "refs/heads/") && !strings.HasPrefix(ref, "refs/tags/") {
			continue
		}
		if err := put(id + " " + ref); err != nil {
			return err
		}
	}
	if !written {
		if err := put(none + " capabilities^{}"); err != nil {
			return err
		}
	}
	_, err = w.Write(appendFlush(nil))
	return err
}

const none = "0000000000000000000000000000000000000000"
