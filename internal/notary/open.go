package notary

import (
	"encoding/json"
	"strings"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Disclosed is a class of committed values that an export may open.
type Disclosed string

// Classes. Bodies, queries and arguments are never kept, so nothing can open
// them.
const (
	Paths Disclosed = "paths"
	Refs  Disclosed = "refs"
)

// labelsOf lists the labels of a class.
func labelsOf(d Disclosed) []string {
	switch d {
	case Paths:
		return []string{labelPath, labelChanged}
	case Refs:
		return []string{labelRef, labelUpdate}
	}
	return nil
}

// maxOpen bounds the openings of an export, as its reader does.
const maxOpen = 1 << 14

// openings collects what the filter opens. A value that does not open its
// commitment is left out: what was stored for replay is not evidence, the
// commitment is.
func (x *export) openings() (out []receipts.Opening, err error) {
	if len(x.f.Open) == 0 || x.f.Action == nil {
		return nil, nil
	}
	keys := map[string][]byte{}
	for group, err := range x.n.j.Groups(x.pos) {
		if err != nil {
			return nil, err
		}
		g, err := openGroup(group)
		if err != nil {
			return nil, err
		}
		for _, r := range group {
			if session, ok := strings.CutPrefix(r.Subject, keyPrefix); ok && r.Kind == journal.KindPrivate {
				keys[session] = r.Data
			}
		}
		if g.seal == nil || g.seal.First >= x.until {
			continue
		}
		for i, r := range g.records {
			if r.Kind != journal.KindReceipt || typeOf(r.Data) != string(receipts.TypeDecision) || !x.want[x.session(r.Subject)] {
				continue
			}
			rec, err := receipts.Decode(r.Data)
			if err != nil {
				return nil, inconsistent(r.Pos, err)
			}
			if out = x.open(out, rec, g.leaves[i], keys[rec.Session]); len(out) > maxOpen {
				return nil, problem.New(problem.Usage, "more committed values than one export may open", "Export single sessions.")
			}
		}
	}
	return out, nil
}

// open adds the openings of one decision.
func (x *export) open(out []receipts.Opening, r *receipts.Receipt, leaf receipts.Hash, key []byte) []receipts.Opening {
	if key == nil {
		return out
	}
	var values map[string]string
	for _, class := range x.f.Open {
		for _, label := range labelsOf(class) {
			if _, ok := r.Act.Args[label]; !ok {
				continue
			}
			if values == nil {
				values = committed(x.f.Action(leaf))
			}
			o := receipts.Opening{Session: r.Session, Seq: r.Seq, Label: label, Key: receipts.CommitKey(key, label), Value: []byte(values[label])}
			if o.Opens(r) { // RC-32
				out = append(out, o)
			}
		}
	}
	return out
}

// committed returns the values behind an action's commitments by label, from its
// canonical bytes.
func committed(action []byte) map[string]string {
	type target struct {
		Path     string   `json:"path"`
		Changed  []string `json:"changed"`
		Commands []struct{ Old, New, Ref string }
	}
	var a struct {
		HTTP      *target `json:"http_request"`
		Fetch     *target `json:"git_fetch"`
		Push      *target `json:"git_push"`
		Telemetry *target `json:"telemetry_emit"`
	}
	out := map[string]string{}
	if json.Unmarshal(action, &a) != nil {
		return out
	}
	for _, t := range []*target{a.HTTP, a.Fetch, a.Push, a.Telemetry} {
		if t == nil {
			continue
		}
		var refs, updates []string
		for _, c := range t.Commands {
			refs, updates = append(refs, c.Ref), append(updates, c.Old+" "+c.New)
		}
		out[labelPath], out[labelChanged] = t.Path, strings.Join(t.Changed, "\n")
		out[labelRef], out[labelUpdate] = strings.Join(refs, "\n"), strings.Join(updates, "\n")
	}
	return out
}
