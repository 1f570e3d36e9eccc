package git

import (
	"errors"
	"io"
	"strings"

	"gatehouse/gatekeeper/sandbox/quarantine"
)

// What became of a push whose answer nobody saw.
const (
	Landed    = "push_landed"     // every command is in force
	NotLanded = "push_not_landed" // every reference is where it was before
	Unclear   = "push_unclear"    // neither: somebody else pushed, or the host did half of it
)

// Reconcile reads the references that git-upload-pack advertises (protocol
// version 0) and says what became of a push, by object ids alone.
func Reconcile(advertisement io.Reader, commands []quarantine.Command) (string, error) {
	now, err := readRefs(advertisement)
	if err != nil {
		return "", err
	}
	landed, before := 0, 0
	for _, c := range commands {
		at := now[c.Ref]
		if at == "" {
			at = none
		}
		switch at {
		case c.New:
			landed++
		case c.Old:
			before++
		}
	}
	switch len(commands) {
	case landed:
		return Landed, nil
	case before:
		return NotLanded, nil
	}
	return Unclear, nil
}

// readRefs reads the references that git-upload-pack advertises (protocol
// version 0): object ids by name, what a tag stands for under its name with ^{}.
func readRefs(advertisement io.Reader) (map[string]string, error) {
	in := packets{r: advertisement, left: maxAdvertised}
	refs := map[string]string{}
	flushes := 0
	for flushes < 2 {
		p, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errPkt // cut short: a reference that is not there may have been left out
		case err != nil:
			return nil, err
		case p.flush():
			flushes++
			continue
		}
		line, _, _ := strings.Cut(p.text(), "\x00")
		if id, ref, ok := strings.Cut(line, " "); ok && quarantine.ObjectID(id) {
			refs[ref] = id
		}
	}
	return refs, nil
}
