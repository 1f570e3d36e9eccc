package git

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gatehouse/gatekeeper/sandbox/quarantine"
)

// Caps of what precedes the pack of a push.
const (
	maxCommandBytes = 64 << 10
	maxCommands     = 64
	maxShallow      = 256
	maxRef          = 256
)

// pushCapabilities are what this package offers a pushing client. There are no
// thin packs, whose bases would have to be fetched to be looked into, and
// nothing that would need more than commands and a pack: no push options, no
// certificates, no other hash.
var pushCapabilities = []string{"report-status", "delete-refs", "side-band-64k", "quiet", "atomic", "ofs-delta", "no-thin", "object-format=sha1", "agent=gatehouse"}

// request is the head of a push: its commands and what the client can read.
type request struct {
	commands         []quarantine.Command
	atomic, sideband bool
	status           bool // report-status
	quiet            bool
}

// pack reports whether a pack follows: a push that only deletes has none.
func (p *request) pack() bool {
	return slices.ContainsFunc(p.commands, func(c quarantine.Command) bool { return !zeros(c.New) })
}

var errPush = errors.New("malformed push")

func badPush(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errPush, fmt.Sprintf(format, args...))
}

// readRequest reads up to the flush after the commands. What it does not know
// is refused, never passed on. The request is usable for an answer even when
// there is an error.
func readRequest(r io.Reader) (*request, error) {
	in := packets{r: r, left: maxCommandBytes}
	p := &request{}
	shallow := 0
	for {
		pkt, err := in.next()
		if err != nil {
			return p, badPush("%v", err)
		}
		if pkt.flush() {
			return p, nil
		}
		if pkt.data == nil {
			return p, badPush("a section")
		}
		line := string(pkt.data)
		if len(p.commands) == 0 {
			if id, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "shallow "); ok {
				// Where the client's history ends is not passed on: the new commits
				// must build on what the repository has.
				if shallow++; shallow > maxShallow || !quarantine.ObjectID(id) {
					return p, badPush("shallow")
				}
				continue
			}
			var capabilities string
			if line, capabilities, _ = strings.Cut(line, "\x00"); capabilities != "" {
				if err := p.take(strings.TrimSuffix(capabilities, "\n")); err != nil {
					return p, err
				}
			}
		}
		c, err := parseCommand(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return p, err
		}
		if slices.ContainsFunc(p.commands, func(o quarantine.Command) bool { return o.Ref == c.Ref }) {
			return p, badPush("a reference twice")
		}
		if p.commands = append(p.commands, c); len(p.commands) > maxCommands {
			return p, badPush("more than %d commands", maxCommands)
		}
	}
}

func (p *request) take(capabilities string) error {
	for _, c := range strings.Fields(capabilities) {
		name, value, _ := strings.Cut(c, "=")
		switch name {
		case "report-status", "report-status-v2":
			p.status = true
		case "side-band-64k":
			p.sideband = true
		case "atomic":
			p.atomic = true
		case "quiet":
			p.quiet = true
		case "ofs-delta", "delete-refs", "no-thin", "agent", "session-id":
		case "object-format":
			if value != "sha1" {
				return badPush("object format %s", value)
			}
		default: // push-options, push-cert and whatever comes next
			return badPush("capability %s", name)
		}
	}
	return nil
}

func parseCommand(line string) (quarantine.Command, error) {
	f := strings.SplitN(line, " ", 3)
	if len(f) != 3 || !quarantine.ObjectID(f[0]) || !quarantine.ObjectID(f[1]) {
		return quarantine.Command{}, badPush("a command")
	}
	c := quarantine.Command{Old: f[0], New: f[1], Ref: f[2]}
	switch {
	case !refName(c.Ref):
		return c, badPush("a reference's name")
	case c.Old == c.New:
		return c, badPush("a command that changes nothing")
	}
	return c, nil
}

// refName holds a name against git-check-ref-format(1), and against bytes that
// could be read in two ways.
func refName(s string) bool {
	if len(s) > maxRef || !strings.HasPrefix(s, "refs/") || strings.Contains(s, "..") || strings.Contains(s, "@{") || strings.HasSuffix(s, ".") {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return false
		}
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return strings.Count(s, "/") >= 2
}

func zeros(id string) bool { return strings.Trim(id, "0") == "" }

// encode writes the commands as they are sent: what was read, and nothing else.
// The old id in each is the lease: the host changes a reference only while it
// is there.
func (p *request) encode() []byte {
	capabilities := []string{"report-status", "side-band-64k", "object-format=sha1", "agent=git/gatehouse"}
	if !p.sideband {
		capabilities = slices.DeleteFunc(capabilities, func(c string) bool { return c == "side-band-64k" })
	}
	if p.atomic {
		capabilities = append(capabilities, "atomic")
	}
	if p.quiet {
		capabilities = append(capabilities, "quiet")
	}
	var b []byte
	for i, c := range p.commands {
		line := c.Old + " " + c.New + " " + c.Ref
		if i == 0 {
			line += "\x00 " + strings.Join(capabilities, " ")
		}
		b = appendPkt(b, line)
	}
	return appendFlush(b)
}

// report is the answer to a push that did not go on: report-status(-v2), which
// git prints a line of for each reference, and the same in words on the side
// band.
func (p *request) report(unpack, code string, words []string) []byte {
	status := appendPkt(nil, "unpack "+unpack+"\n")
	for _, c := range p.commands {
		status = appendPkt(status, "ng "+c.Ref+" "+code+"\n")
	}
	status = appendFlush(status)
	if !p.status {
		status = nil
	}
	if !p.sideband {
		return status
	}
	out := appendBand(nil, 2, []byte(strings.Join(words, "\n")+"\n"))
	out = appendBand(out, 1, status)
	return appendFlush(out)
}
