package receipts_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"gatehouse/receipts"
)

// tampering is one negative case: a file, how it is read, and what both verifiers
// must say. The subtests are named after the cases of docs/receipts-spec.md.
type tampering struct {
	file  []byte
	o     receipts.Options
	exit  receipts.Exit
	class receipts.Class
}

func runTamper(t *testing.T, cases map[string]tampering) {
	t.Helper()
	other := newTypeScript(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := verify(tc.file, tc.o)
			want(t, r, tc.exit, tc.class)
			other.agrees(t, r, tc.file, tc.o)
		})
	}
}

// edit returns the file with its frames changed by f.
func edit(t *testing.T, file []byte, f func([]rawFrame) []rawFrame) []byte {
	t.Helper()
	return join(f(split(t, file)))
}

// recount makes the end line count the receipts that are left, as someone would
// who knows the format.
func recount(fs []rawFrame) []rawFrame {
	fs[len(fs)-1].line = fmt.Sprintf("end %d", len(find(fs, "receipt")))
	return fs
}

func remove(fs []rawFrame, from, to int) []rawFrame {
	return recount(slices.Delete(slices.Clone(fs), from, to))
}

// without removes the receipts of a session and seals that are left alone.
func without(session string) func([]rawFrame) []rawFrame {
	return func(fs []rawFrame) (out []rawFrame) {
		for _, f := range fs {
			if f.word() == "receipt" && bytes.Contains(f.body, []byte(session)) {
				continue
			}
			if f.word() == "seal" && len(out) > 0 && out[len(out)-1].word() == "seal" {
				out = out[:len(out)-1]
			}
			out = append(out, f)
		}
		return recount(out)
	}
}

// hiding replaces the receipts of sessions by their hashes, as events may be.
func hiding(sessions ...string) func([]rawFrame) []rawFrame {
	return func(fs []rawFrame) (out []rawFrame) {
		for _, f := range fs {
			hide := f.word() == "receipt" && slices.ContainsFunc(sessions, func(s string) bool { return bytes.Contains(f.body, []byte(`"session":"`+s+`"`)) })
			if hide {
				f = rawFrame{line: "hidden" + strings.TrimPrefix(f.line, "receipt") + " " + receipts.Leaf(f.body).String()}
			}
			out = append(out, f)
		}
		return recount(out)
	}
}

// hiddenLater is a log that is shown up to an older manifest of its own and
// hidden behind it, read with a checkpoint of its end.
func hiddenLater(t *testing.T) tampering {
	t.Helper()
	w := newWorld(t)
	refuse := func(session string) {
		w.open(session, receipts.Open{State: "refused", Code: "no_match", Event: "github:main:f00d"})
		w.close(session, "refused", -1)
	}
	refuse(sessionA)
	early := w.checkpoint()
	refuse(sessionB)
	late := w.checkpoint()
	o := w.options()
	o.Checkpoint = late.note
	hide := func(index uint64, _ leaf) bool { return index > early.index }
	return tampering{w.export(cut{end: &early, hide: hide}), o, 3, receipts.ClassEndAsOf}
}

// unended removes what the log says about its end as well.
func unended(f func([]rawFrame) []rawFrame) func([]rawFrame) []rawFrame {
	return func(fs []rawFrame) []rawFrame {
		return slices.DeleteFunc(f(fs), func(f rawFrame) bool {
			return slices.Contains([]string{"checkpoint", "manifest", "head", "mark", "consistency"}, f.word())
		})
	}
}

// TestTamper runs every case of docs/receipts-spec.md that a file alone can show.
func TestTamper(t *testing.T) {
	for _, cases := range tamperings(t) {
		runTamper(t, cases)
	}
}

// tamperings returns all cases by group; TestVectors writes them to files.
func tamperings(t *testing.T) map[string]map[string]tampering {
	t.Helper()
	return map[string]map[string]tampering{
		"keyless": keylessCases(t), "keyed": keyedCases(t), "bytes": byteCases(t), "limits": limitCases(t), "openings": openingCases(t),
	}
}

// keylessCases: changes to a file by someone who has no key.
func keylessCases(t *testing.T) map[string]tampering {
	t.Helper()
	w, end := story(t)
	a := w.export(cut{sessions: []string{sessionA}, end: &end, bundles: [][]byte{bundleText}, events: true})
	ab := w.export(cut{sessions: []string{sessionA, sessionB}})
	c := w.export(cut{sessions: []string{sessionC}, end: &end})
	log := w.export(cut{end: &end})
	o := w.options()
	fresh := o
	fresh.Checkpoint = end.note

	flip := func(fs []rawFrame, i, at int) []rawFrame {
		fs[i].body = bytes.Clone(fs[i].body)
		fs[i].body[at] ^= 1
		return fs
	}
	swapBodies := func(fs []rawFrame, i, j int) []rawFrame {
		fs[i].body, fs[j].body = fs[j].body, fs[i].body
		return fs
	}
	return map[string]tampering{
		"RC-01_flip_a_payload_bit": {edit(t, a, func(fs []rawFrame) []rawFrame { return flip(fs, find(fs, "receipt")[2], 40) }), o, 1, receipts.ClassPayload},
		"RC-01_in_an_event":        {edit(t, a, func(fs []rawFrame) []rawFrame { return flip(fs, find(fs, "event")[0], 10) }), o, 1, receipts.ClassPayload},
		"RC-02_deny_becomes_allow": {bytes.Replace(a, []byte(`"verdict":"deny"`), []byte(`"verdict":"allo"`), 1), o, 1, receipts.ClassPayload},
		"RC-02_and_hashed_again":   {rehash(t, a), o, 1, receipts.ClassSeal},
		"RC-03_interior_receipt":   {edit(t, a, func(fs []rawFrame) []rawFrame { i := find(fs, "receipt")[3]; return remove(fs, i, i+1) }), o, 1, receipts.ClassGap},
		"RC-03_first_receipt":      {edit(t, ab, func(fs []rawFrame) []rawFrame { i := find(fs, "receipt")[0]; return remove(fs, i, i+1) }), o, 1, receipts.ClassGap},
		"RC-03_in_the_log":         {edit(t, log, func(fs []rawFrame) []rawFrame { i := find(fs, "receipt")[4]; return remove(fs, i, i+1) }), o, 1, receipts.ClassGap},
		"RC-03_event_in_the_log":   {edit(t, log, func(fs []rawFrame) []rawFrame { i := find(fs, "event")[0]; return remove(fs, i, i+1) }), o, 1, receipts.ClassGap},
		"RC-03_scope_begins_later": {editLine(t, log, "scope", 0, 2, "1"), o, 1, receipts.ClassOrder},
		"RC-04_last_receipt":       {edit(t, a, func(fs []rawFrame) []rawFrame { i := find(fs, "receipt"); j := i[len(i)-1]; return remove(fs, j, j+1) }), o, 3, receipts.ClassEndUnproven},
		"RC-04_known_to_the_log":   {edit(t, c, func(fs []rawFrame) []rawFrame { i := find(fs, "receipt"); j := i[len(i)-1]; return remove(fs, j, j+1) }), o, 3, receipts.ClassTruncation},
		"RC-04_end_line_as_it_was": {edit(t, c, func(fs []rawFrame) []rawFrame {
			i := find(fs, "receipt")
			j := i[len(i)-1]
			return slices.Delete(fs, j, j+1)
		}), o, 3, receipts.ClassTruncation},
		"RC-04_count_in_the_end_line": {edit(t, a, func(fs []rawFrame) []rawFrame {
			i := find(fs, "receipt")
			j := i[len(i)-1]
			return slices.Delete(fs, j, j+1)
		}), o, 3, receipts.ClassTruncation},
		"RC-04_and_the_head_edited": {edit(t, c, func(fs []rawFrame) []rawFrame {
			r := find(fs, "receipt")
			h := &fs[find(fs, "head")[0]]
			w := strings.Split(h.line, " ")
			w[2], w[3] = "2", receipts.Leaf(fs[r[len(r)-2]].body).String()
			h.line = strings.Join(w, " ")
			j := r[len(r)-1]
			return remove(fs, j, j+1)
		}), o, 1, receipts.ClassSeal},
		"RC-04_many_receipts": {edit(t, a, func(fs []rawFrame) []rawFrame {
			return remove(fs, find(fs, "receipt")[3], find(fs, "checkpoint")[0])
		}), o, 3, receipts.ClassEndUnproven},
		"RC-04_tail_of_the_log": {edit(t, log, func(fs []rawFrame) []rawFrame {
			s := find(fs, "seal")
			return remove(fs, s[len(s)-1], find(fs, "checkpoint")[0])
		}), o, 3, receipts.ClassTruncation},
		"RC-04_file_cut_anywhere":          {a[:len(a)-700], o, 3, receipts.ClassTruncation},
		"RC-05_session":                    {edit(t, ab, without(sessionB)), o, 1, receipts.ClassSessionMissing},
		"RC-05_only_session":               {edit(t, c, without(sessionC)), o, 3, receipts.ClassEmpty},
		"RC-05_from_the_log":               {edit(t, log, without(sessionB)), o, 1, receipts.ClassSessionMissing},
		"RC-05_hidden":                     {edit(t, log, hiding(sessionA, sessionC, receipts.ControlSession)), o, 1, receipts.ClassSessionMissing},
		"RC-05_hidden_no_end":              {edit(t, log, unended(hiding(sessionA, sessionC, receipts.ControlSession))), o, 3, receipts.ClassEndUnproven},
		"RC-05_hidden_fresh":               {edit(t, log, unended(hiding(sessionA, sessionC, receipts.ControlSession))), fresh, 3, receipts.ClassEndUnproven},
		"RC-05_hidden_behind_the_manifest": hiddenLater(t),
		"RC-07_empty_file":                 {nil, fresh, 3, receipts.ClassEmpty},
		"RC-07_no_leaves":                  {edit(t, a, func(fs []rawFrame) []rawFrame { return remove(fs, find(fs, "bundle")[0], find(fs, "checkpoint")[0]) }), o, 3, receipts.ClassEmpty},
		"RC-08_payloads":                   {edit(t, a, func(fs []rawFrame) []rawFrame { r := find(fs, "receipt"); return swapBodies(fs, r[1], r[2]) }), o, 1, receipts.ClassPayload},
		"RC-08_frames": {edit(t, log, func(fs []rawFrame) []rawFrame {
			r := find(fs, "receipt")
			for i := range r { // two that stand next to each other under one seal
				if r[i]+1 == r[i+1] {
					fs[r[i]], fs[r[i+1]] = fs[r[i+1]], fs[r[i]]
					return fs
				}
			}
			panic("no neighbours")
		}), o, 1, receipts.ClassOrder},
		"RC-08_groups": {edit(t, a, func(fs []rawFrame) []rawFrame {
			s := find(fs, "seal")
			out := slices.Concat(fs[:s[1]], fs[s[2]:s[3]], fs[s[1]:s[2]], fs[s[3]:])
			return out
		}), o, 1, receipts.ClassOrder},
		"RC-09_leaf": {edit(t, a, func(fs []rawFrame) []rawFrame {
			i := find(fs, "receipt")[2]
			return recount(slices.Insert(fs, i, fs[i]))
		}), o, 1, receipts.ClassDuplicate},
		"RC-09_event": {edit(t, a, func(fs []rawFrame) []rawFrame { i := find(fs, "event")[0]; return slices.Insert(fs, i, fs[i]) }), o, 1, receipts.ClassDuplicate},
		"RC-09_head":  {edit(t, c, func(fs []rawFrame) []rawFrame { i := find(fs, "head")[0]; return slices.Insert(fs, i, fs[i]) }), o, 1, receipts.ClassDuplicate},
		"RC-09_group": {edit(t, a, func(fs []rawFrame) []rawFrame {
			s := find(fs, "seal")
			return recount(slices.Insert(fs, s[2], fs[s[1]:s[2]]...))
		}), o, 1, receipts.ClassDuplicate},
		"RC-09_bundle": {edit(t, a, func(fs []rawFrame) []rawFrame { i := find(fs, "bundle")[0]; return slices.Insert(fs, i, fs[i]) }), o, 1, receipts.ClassDuplicate},
		"RC-13_receipt_of_another_session": {edit(t, w.export(cut{sessions: []string{sessionA, sessionC}}), func(fs []rawFrame) []rawFrame {
			i := slices.IndexFunc(fs, func(f rawFrame) bool { return f.line == "scope session "+sessionC })
			return slices.Delete(fs, i, i+1)
		}), o, 1, receipts.ClassSplice},
		"RC-13_head_of_another_session": {edit(t, a, func(fs []rawFrame) []rawFrame {
			k := split(t, c)
			return slices.Insert(fs, len(fs)-1, k[find(k, "head")[0]])
		}), o, 1, receipts.ClassSplice},
		"RC-13_event_of_nobody": {edit(t, w.export(cut{sessions: []string{sessionB}, events: true}), func(fs []rawFrame) []rawFrame { return fs }), o, 1, receipts.ClassSplice},
		"RC-13_bundle_of_nobody": {edit(t, a, func(fs []rawFrame) []rawFrame {
			fs[find(fs, "bundle")[0]].body = []byte(`{"name":"other"}`)
			return fs
		}), o, 1, receipts.ClassSplice},
		"RC-13_receipt_as_event": {edit(t, log, func(fs []rawFrame) []rawFrame {
			r := find(fs, "receipt")
			i := r[len(r)-1]
			fs[i].line = strings.Replace(fs[i].line, "receipt", "event", 1)
			return recount(fs)
		}), o, 1, receipts.ClassSplice},
		"RC-09_cosignature":                      {edit(t, c, repeatLine), o, 1, receipts.ClassSeal},
		"RC-20_first_index":                      {editLine(t, a, "seal", 2, 2, "4"), o, 1, receipts.ClassSeal},
		"RC-20_count":                            {editLine(t, a, "seal", 2, 3, "3"), o, 1, receipts.ClassSeal},
		"RC-20_no_leaves":                        {editLine(t, a, "seal", 2, 3, "0"), o, 1, receipts.ClassSeal},
		"RC-21_origin":                           {bytes.Replace(a, []byte("gatehouse-export/1 "+origin), []byte("gatehouse-export/1 gatehouse.example/node-2"), 1), o, 1, receipts.ClassSplice},
		"RC-47_older_checkpoint_with_its_prefix": {c, o, 3, receipts.ClassEndAsOf},
	}
}

// repeatLine repeats the last signature line of the enclosed checkpoint.
func repeatLine(fs []rawFrame) []rawFrame {
	cp := &fs[find(fs, "checkpoint")[0]]
	lines := bytes.SplitAfter(cp.body, []byte("\n"))
	cp.body = append(bytes.Clone(cp.body), lines[len(lines)-2]...)
	return fs
}

// editLine replaces word n of the i-th frame that begins with word.
func editLine(t *testing.T, file []byte, word string, i, n int, to string) []byte {
	t.Helper()
	return edit(t, file, func(fs []rawFrame) []rawFrame {
		f := &fs[find(fs, word)[i]]
		w := strings.Split(f.line, " ")
		w[n] = to
		f.line = strings.Join(w, " ")
		return fs
	})
}

// rehash turns a deny into an allow and repairs everything that needs no key:
// the chain behind it, every path and every root.
func rehash(t *testing.T, file []byte) []byte {
	t.Helper()
	fs := split(t, file)
	var prev receipts.Hash
	old := map[string]string{}
	for _, i := range find(fs, "receipt") {
		before := receipts.Leaf(fs[i].body).String()
		for from, to := range old {
			fs[i].body = bytes.ReplaceAll(fs[i].body, []byte(from), []byte(to))
		}
		fs[i].body = bytes.Replace(fs[i].body, []byte(`"reason":"not_listed","rule":"egress.default_deny","verdict":"deny"`), []byte(`"rule":"egress[0]","verdict":"deny"`), 1)
		prev = receipts.Leaf(fs[i].body)
		old[before] = prev.String()
	}
	// Groups of one: path empty, root = leaf.
	for _, s := range find(fs, "seal") {
		w := strings.Split(fs[s].line, " ")
		next := s + 1
		for ; fs[next].word() == "receipt" || fs[next].word() == "event"; next++ {
		}
		last := next - 1
		fs[last].line = fs[last].word() + " 0 -"
		w[3], w[4] = "1", receipts.Leaf(fs[last].body).String()
		fs[s].line = strings.Join(w, " ")
	}
	return join(fs)
}

// byteCases: sealed payloads that no careful writer makes.
func byteCases(t *testing.T) map[string]tampering {
	t.Helper()
	cases := map[string]tampering{}
	base := func() (*world, receipts.Receipt, string) {
		w, _ := story(t)
		r := w.fill(sessionC, receipts.Receipt{Type: receipts.TypeOutcome, Out: &receipts.Out{Ref: digest("x"), Effect: "forwarded", Code: "code"}})
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return w, r, string(b)
	}
	for name, tc := range map[string]struct {
		old, new string
		exit     receipts.Exit
		class    receipts.Class
	}{
		"RC-22_space":            {`{"epoch":1`, `{"epoch": 1`, 1, receipts.ClassCanonical},
		"RC-22_newline":          {`"v":1}`, "\"v\":1}\n", 1, receipts.ClassCanonical},
		"RC-22_key_order":        {`"effect":"forwarded","ref"`, `"ref"`, 1, receipts.ClassSchema}, // a member removed: canonical, not a receipt
		"RC-22_swapped_keys":     {`"type":"outcome","v":1`, `"v":1,"type":"outcome"`, 1, receipts.ClassCanonical},
		"RC-22_duplicate_key":    {`"type":"outcome"`, `"type":"outcome","type":"outcome"`, 1, receipts.ClassCanonical},
		"RC-22_fraction":         {`{"epoch":1`, `{"epoch":1.0`, 1, receipts.ClassCanonical},
		"RC-22_exponent":         {`{"epoch":1`, `{"epoch":1e0`, 1, receipts.ClassCanonical},
		"RC-22_leading_zero":     {`{"epoch":1`, `{"epoch":01`, 1, receipts.ClassCanonical},
		"RC-22_escaped_ASCII":    {`"code":"code"`, `"code":"\u0063ode"`, 1, receipts.ClassCanonical},
		"RC-22_escaped_slash":    {`gatehouse.example/node`, `gatehouse.example\/node`, 1, receipts.ClassCanonical},
		"RC-22_null":             {`"code":"code"`, `"code":null`, 1, receipts.ClassCanonical},
		"RC-22_byte_order_mark":  {`{"epoch"`, "\ufeff{\"epoch\"", 1, receipts.ClassCanonical},
		"RC-22_zero_written_out": {`{"code":"code"`, `{"code":"code","down":0`, 1, receipts.ClassSchema},
		"RC-22_unknown_key":      {`"v":1}`, `"v":1,"w":1}`, 1, receipts.ClassSchema},
		"RC-22_unknown_enum":     {`"effect":"forwarded"`, `"effect":"maybe"`, 1, receipts.ClassSchema},
		"RC-23_critical":         {`"v":1}`, `"v":1,"x":{"!acme.rule":"1"}}`, 6, receipts.ClassUnsupported},
		"RC-23_control":          {`"v":1}`, `"v":1,"x":{"acme.rule":"1"}}`, 3, receipts.ClassEndUnproven},
		"RC-24_version_2":        {`"v":1}`, `"v":2}`, 6, receipts.ClassUnsupported},
		"RC-24_unknown_type":     {`"type":"outcome"`, `"type":"takeover"`, 6, receipts.ClassUnsupported},
		"RC-24_unknown_epoch":    {`{"epoch":1`, `{"epoch":2`, 1, receipts.ClassSchema},
		"RC-30_level_3":          {`"out":`, `"obs":{"kind":"egress-proxy","level":3,"mediation":"sole","point":"door"},"out":`, 1, receipts.ClassSchema},
		"RC-30_control":          {`"out":`, `"obs":{"kind":"egress-proxy","level":2,"mediation":"sole","point":"door"},"out":`, 3, receipts.ClassEndUnproven},
		"RC-45_2_to_the_53":      {`"code":"code"`, `"code":"code","down":9007199254740992`, 1, receipts.ClassCanonical},
		"RC-45_2_to_the_64":      {`"code":"code"`, `"code":"code","down":18446744073709551617`, 1, receipts.ClassCanonical},
		"RC-45_nested":           {`"code":"code"`, `"code":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000), 1, receipts.ClassCanonical},
		"RC-45_huge":             {`"code":"code"`, `"code":"` + strings.Repeat("x", receipts.MaxReceipt) + `"`, 1, receipts.ClassSchema},
	} {
		w, r, b := base()
		if !strings.Contains(b, tc.old) {
			t.Fatalf("%q is not in %s", tc.old, b)
		}
		b = strings.Replace(b, tc.old, tc.new, 1)
		cases[name] = tampering{w.sealedBytes(sessionC, r, []byte(b)), w.options(), tc.exit, tc.class}
	}
	return cases
}

// limitCases: files that want to hurt the reader.
func limitCases(t *testing.T) map[string]tampering {
	t.Helper()
	w, end := story(t)
	file := w.export(cut{sessions: []string{sessionA}, end: &end})
	o := w.options()
	small := o
	small.MaxBytes = int64(len(file)) - 1
	at := bytes.Index(file, []byte("\nseal "))
	head := file[:at+1]
	seal := func(n int) string { return split(t, file)[find(split(t, file), "seal")[n]].line }
	return map[string]tampering{
		"RC-45_file_above_the_limit": {file, small, 2, receipts.ClassUnreadable},
		"RC-45_endless_line":         {append(slices.Clone(head), bytes.Repeat([]byte("x"), 1<<20)...), o, 2, receipts.ClassUnreadable},
		"RC-45_endless_first_line":   {bytes.Repeat([]byte("x"), 1<<20), o, 2, receipts.ClassUnreadable},
		"RC-45_body_of_an_exabyte":   {append(slices.Clone(head), seal(0)+"\nreceipt 0 - 1152921504606846976\n{}"...), o, 2, receipts.ClassUnreadable},
		"RC-45_body_of_2_megabytes":  {append(slices.Clone(head), seal(0)+"\nreceipt 0 - 2097152\n{}"...), o, 2, receipts.ClassUnreadable},
		"RC-45_endless_path":         {append(slices.Clone(head), seal(0)+"\nreceipt 0 "+strings.Repeat("A", 6000)+" 2\n{}\n"...), o, 2, receipts.ClassUnreadable},
		"RC-45_position_2_to_the_53": {append(slices.Clone(head), seal(0)+"\nreceipt 9007199254740991 - 2\n{}\nend 1\n"...), o, 1, receipts.ClassSeal},
		"RC-45_group_of_a_million":   {editLine(t, file, "seal", 0, 3, "1000000"), o, 2, receipts.ClassUnreadable},
		"RC-22_line_end_in_a_digest": {editLine(t, file, "seal", 0, 5, strings.Repeat("A", 42)+"\r"), o, 2, receipts.ClassUnreadable},
		"RC-45_compressed":           {append([]byte{0x1f, 0x8b, 8}, file...), o, 2, receipts.ClassUnreadable},
	}
}

// TestTamperMessages: one message of a stream against its headers.
func TestTamperMessages(t *testing.T) {
	w, _ := story(t)
	g := w.groups[2]
	msg := receipts.Message{Data: g.leaves[1].data, Type: "decision", Seal: g.seal.Header(1), ID: receipts.Leaf(g.leaves[1].data).String()}
	if h, r, err := msg.Open(w.ks); err != nil || r.Dec == nil || h.Index() != g.seal.First+1 {
		t.Fatalf("untouched message: %v", err)
	}
	for name, change := range map[string]func(*receipts.Message){
		"RC-01_payload":      func(m *receipts.Message) { m.Data = append(bytes.Clone(m.Data[:len(m.Data)-1]), ' ') },
		"RC-20_position":     func(m *receipts.Message) { m.Seal = g.seal.Header(0) },
		"RC-25_type":         func(m *receipts.Message) { m.Type = "outcome" },
		"RC-25_event":        func(m *receipts.Message) { m.Type = "loss" },
		"RC-26_id":           func(m *receipts.Message) { m.ID = digest("x").String() },
		"RC-26_seal_missing": func(m *receipts.Message) { m.Seal = "" },
		"RC-26_other_seal":   func(m *receipts.Message) { m.Seal = w.groups[3].seal.Header(1) },
	} {
		t.Run(name, func(t *testing.T) {
			m := msg
			change(&m)
			if _, _, err := m.Open(w.ks); err == nil {
				t.Error("accepted")
			}
		})
	}
	t.Run("RC-21_seal_of_another_log", func(t *testing.T) {
		s, err := receipts.SealGroup(w.seal, g.seal.KeyID, "gatehouse.example/node-2", 0, receipts.Hash{}, []receipts.Hash{receipts.Leaf(msg.Data)})
		if err != nil {
			t.Fatal(err)
		}
		m := msg
		m.Seal = s.Header(0)
		if _, _, err := m.Open(w.ks); err == nil {
			t.Error("accepted")
		}
	})
	t.Run("RC-13_receipt_of_another_log", func(t *testing.T) {
		r := sample(t)
		r.Log = "gatehouse.example/node-2"
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		s, err := receipts.SealGroup(w.seal, g.seal.KeyID, origin, 0, receipts.Hash{}, []receipts.Hash{receipts.Leaf(b)})
		if err != nil {
			t.Fatal(err)
		}
		m := receipts.Message{Data: b, Type: "decision", Seal: s.Header(0), ID: receipts.Leaf(b).String()}
		if _, _, err := m.Open(w.ks); err == nil {
			t.Error("accepted")
		}
	})
	t.Run("RC-11_retired_key", func(t *testing.T) {
		ks := *w.ks
		ks.Keys = slices.Clone(ks.Keys)
		ks.Keys[0].Until = g.seal.First + 1
		if _, _, err := msg.Open(&ks); !errors.Is(err, receipts.ErrKey) {
			t.Errorf("%v", err)
		}
	})
	t.Run("RC-10_unknown_key", func(t *testing.T) {
		ks := *w.ks
		ks.Keys = ks.Keys[1:]
		if _, _, err := msg.Open(&ks); !errors.Is(err, receipts.ErrKey) {
			t.Errorf("%v", err)
		}
	})
}

func TestTamperObservation(t *testing.T) {
	w, _ := story(t)
	t.Run("RC-31_point_never_reported", func(t *testing.T) {
		file := w.export(cut{sessions: []string{sessionA}})
		r := verify(file, w.options())
		want(t, r, 0, receipts.ClassComplete)
		newTypeScript(t).agrees(t, r, file, w.options())
		if o := r.Observation; !slices.Equal(o.Missing, []string{"git"}) || !slices.Equal(o.Reported, []string{"door"}) {
			t.Errorf("observation %+v", o)
		}
		if !strings.Contains(r.Lines()[3], `silent: "git"`) {
			t.Error(r.Lines()[3])
		}
	})
}

// openingCases: what an opening may claim.
func openingCases(t *testing.T) map[string]tampering {
	t.Helper()
	w, _ := story(t)
	good := receipts.Opening{Session: sessionA, Seq: 2, Label: "path", Key: receipts.CommitKey(sessionKey, "path"), Value: []byte(requestPath)}
	cases := map[string]tampering{}
	for name, change := range map[string]func(*receipts.Opening){
		"control":       func(*receipts.Opening) {},
		"wrong_key":     func(o *receipts.Opening) { o.Key = receipts.CommitKey(sessionKey, "query") },
		"wrong_label":   func(o *receipts.Opening) { o.Label = "query" },
		"wrong_value":   func(o *receipts.Opening) { o.Value = []byte("/other") },
		"wrong_receipt": func(o *receipts.Opening) { o.Seq = 1 },
		"other_session": func(o *receipts.Opening) { o.Session = sessionC },
	} {
		o := good
		change(&o)
		tc := tampering{w.export(cut{sessions: []string{sessionA}, openings: []receipts.Opening{o}}), w.options(), 1, receipts.ClassRedaction}
		if name == "control" {
			tc.exit, tc.class = 0, receipts.ClassComplete
		}
		cases["RC-32_"+name] = tc
	}
	return cases
}

const canary = "ghs_c4n4ry/+Secret?Value\"42\\zz"

// TestTamperCanary: a known secret in any field and any encoding is found in a
// file, and never gets into one through a Redactor.
func TestTamperCanary(t *testing.T) {
	rev := []byte(canary)
	slices.Reverse(rev)
	forms := map[string]string{
		"plain": canary, "reversed": string(rev),
		"base64":         base64.StdEncoding.EncodeToString([]byte("user:" + canary)),
		"base64_1":       base64.StdEncoding.EncodeToString([]byte("u" + canary + "x")),
		"base64_2":       base64.StdEncoding.EncodeToString([]byte("us" + canary)),
		"base64url":      base64.RawURLEncoding.EncodeToString([]byte(canary)),
		"hex":            hex.EncodeToString([]byte(canary)),
		"HEX":            strings.ToUpper(hex.EncodeToString([]byte(canary))),
		"percent":        url.QueryEscape(canary),
		"percent_path":   url.PathEscape(canary),
		"percent_wholly": "%" + strings.Join(strings.Split(fmt.Sprintf("% X", canary), " "), "%"),
	}
	d := receipts.NewRedactor([]byte(canary))
	other := newTypeScript(t)
	for name, form := range forms {
		t.Run("RC-33_"+name, func(t *testing.T) {
			w, _ := story(t)
			r := w.fill(sessionC, receipts.Receipt{Type: receipts.TypeSessionState,
				State: &receipts.State{From: "running", To: "ended", Reason: "x"}, X: map[string]string{"acme.note": "a " + form + " b"}})
			clean := r
			clean.X = map[string]string{"acme.note": "a " + form + " b"}
			b, err := d.Append(nil, &clean)
			if err != nil {
				t.Fatal(err)
			}
			if d.Found(b) || clean.Red["secret"] != 1 || clean.X["acme.note"] != receipts.Redacted || clean.State.To != "ended" {
				t.Errorf("not redacted: %s", b)
			}
			raw, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			o := w.options()
			o.Canaries = [][]byte{[]byte(canary)}
			file := w.sealedBytes(sessionC, r, raw)
			res := verify(file, o)
			want(t, res, 1, receipts.ClassRedaction)
			other.agrees(t, res, file, o)
		})
	}
}
