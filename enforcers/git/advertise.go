package git

import (
	"errors"
	"io"
	"slices"
	"strings"

	"gatehouse/internal/problem"
)

// maxAdvertised bounds the references of one repository: about 80 bytes each.
const maxAdvertised = 256 << 20

// advertised is an advertisement on its way in. What it offers that would lead
// the client elsewhere is left out (EG-84).
type advertised struct {
	io.ReadCloser
	in  packets
	out []byte
	err error
}

func (a *advertised) Read(p []byte) (int, error) {
	for len(a.out) == 0 {
		if a.err != nil {
			return 0, a.err
		}
		var pkt packet
		if pkt, a.err = a.in.next(); a.err != nil {
			if errors.Is(a.err, errPkt) {
				a.err = problem.Wrap(a.err, CodeAnswer, "the advertisement is not git's", "")
			}
			continue
		}
		a.out = a.out[:0]
		if pkt.data == nil {
			a.out = append(a.out, "000"...)
			a.out = append(a.out, byte('0'+pkt.special))
			continue
		}
		if line, ok := offered(string(pkt.data)); ok {
			a.out = appendPkt(a.out, line)
		}
	}
	n := copy(p, a.out)
	a.out = a.out[n:]
	return n, nil
}

// offered returns a line of an advertisement as it may be shown, and false when
// nothing of it may.
func offered(line string) (string, bool) {
	if strings.HasPrefix(line, "bundle-uri") {
		return "", false
	}
	if features, ok := strings.CutPrefix(line, "fetch="); ok && strings.Contains(features, "packfile-uris") {
		words := slices.DeleteFunc(strings.Fields(features), func(w string) bool { return strings.HasPrefix(w, "packfile-uris") })
		return "fetch=" + strings.Join(words, " ") + "\n", true
	}
	return line, true
}
