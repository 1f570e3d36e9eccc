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
	"time"

	"gatehouse/receipts"
)

// tampering is one negative case: a file, how it is read, and what the verifier
// must say. The subtests are named after the cases of docs/receipts-spec.md.
type tampering struct {
	file  []byte
	o     receipts.Options
	exit  receipts.Exit
	class receipts.Class
}

func runTamper(t *testing.T, cases map[string]tampering) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { want(t, verify(tc.file, tc.o), tc.exit, tc.class) })
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
		"RC-04_file_cut_anywhere": {a[:len(a)-700], o, 3, receipts.ClassTruncation},
		"RC-05_session":           {edit(t, ab, without(sessionB)), o, 1, receipts.ClassSessionMissing},
		"RC-05_only_session":      {edit(t, c, without(sessionC)), o, 3, receipts.ClassEmpty},
		"RC-05_from_the_log":      {edit(t, log, without(sessionB)), o, 1, receipts.ClassSessionMissing},
		"RC-07_empty_file":        {nil, fresh, 3, receipts.ClassEmpty},
		"RC-07_no_leaves":         {edit(t, a, func(fs []rawFrame) []rawFrame { return remove(fs, find(fs, "bundle")[0], find(fs, "checkpoint")[0]) }), o, 3, receipts.ClassEmpty},
		"RC-08_payloads":          {edit(t, a, func(fs []rawFrame) []rawFrame { r := find(fs, "receipt"); return swapBodies(fs, r[1], r[2]) }), o, 1, receipts.ClassPayload},
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
		"RC-20_first_index":                      {editLine(t, a, "seal", 2, 2, "4"), o, 1, receipts.ClassSeal},
		"RC-20_count":                            {editLine(t, a, "seal", 2, 3, "3"), o, 1, receipts.ClassSeal},
		"RC-20_no_leaves":                        {editLine(t, a, "seal", 2, 3, "0"), o, 1, receipts.ClassSeal},
		"RC-21_origin":                           {bytes.Replace(a, []byte("gatehouse-export/1 "+origin), []byte("gatehouse-export/1 gatehouse.example/node-2"), 1), o, 1, receipts.ClassSplice},
		"RC-47_older_checkpoint_with_its_prefix": {c, o, 3, receipts.ClassEndAsOf},
	}
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

// keyedCases: what a node could do whose keys are in wrong hands, or whose code
// is wrong.
func keyedCases(t *testing.T) map[string]tampering {
	t.Helper()
	closing := func(w *world) receipts.Receipt {
		return receipts.Receipt{Type: receipts.TypeSessionClose, Close: &receipts.Close{
			Reason: "completed", Count: w.chains[sessionC].seq + 1, Verdicts: w.chains[sessionC].tally.Verdicts}}
	}
	cases := map[string]tampering{}

	{ // RC-06: the log is sealed again without a session; the checkpoint is the old one.
		_, end := story(t)
		w := newWorld(t)
		w.open(sessionA, receipts.Open{State: "refused", Code: "no_match"})
		w.close(sessionA, "refused", -1)
		for w.tree.Size()+uint64(len(w.pending)) < end.index+1 {
			w.add(receipts.ControlSession, receipts.Receipt{Type: receipts.TypeHeartbeat, Beat: &receipts.Heartbeat{Size: 1}})
		}
		o := w.options()
		o.Checkpoint = end.note
		cases["RC-06_sealed_again"] = tampering{w.export(cut{}), o, 1, receipts.ClassFork}
	}
	{ // RC-10
		w, _ := story(t)
		other := key("stranger")
		w.add(sessionC, closing(w))
		w.flushWith(other, receipts.KeyID(origin+"/seal", public(other)))
		cases["RC-10_unknown_key_closes_the_session"] = tampering{w.export(cut{sessions: []string{sessionC}}), w.options(), 4, receipts.ClassKey}
	}
	{ // RC-10: a stranger under the true key's name and id
		w, _ := story(t)
		w.add(sessionC, closing(w))
		w.flushWith(key("stranger"), receipts.KeyID(origin+"/seal", public(w.seal)))
		cases["RC-10_under_the_true_key_id"] = tampering{w.export(cut{sessions: []string{sessionC}}), w.options(), 1, receipts.ClassSeal}
	}
	// RC-11: the key was good for the session's beginning and is so no more.
	for name, revoked := range map[string]bool{"RC-11_retired_key": false, "RC-11_revoked_key": true} {
		w, end := story(t)
		w.ks.Was, w.ks.Serial = append(w.ks.Was, w.ks.Digest()), 2
		w.ks.Keys[0].Until, w.ks.Keys[0].Revoked = w.tree.Size(), revoked
		fresh := key("seal 2")
		w.ks.Keys = append(w.ks.Keys, receipts.Key{Purpose: receipts.SealKey, Name: origin + "/seal", Public: public(fresh), From: w.tree.Size()})
		w.sign()
		if revoked { // without a checkpoint even the receipts before the revocation are in doubt
			cases["RC-11_revoked_key_without_checkpoint"] = tampering{w.export(cut{sessions: []string{sessionA}}), w.options(), 4, receipts.ClassKey}
		}
		w.add(sessionC, closing(w))
		w.flush() // with the old key
		cases[name] = tampering{w.export(cut{sessions: []string{sessionC}, end: &end}), w.options(), 4, receipts.ClassKey}
	}
	{ // RC-11: everything is by a revoked seal key; the checkpoint covers a part
		w, end := story(t)
		w.ks.Was, w.ks.Serial = append(w.ks.Was, w.ks.Digest()), 2
		w.ks.Keys[0].Until, w.ks.Keys[0].Revoked = 1000, true
		w.sign()
		o := w.options()
		o.Checkpoint = end.note
		cases["RC-11_revoked_and_covered"] = tampering{w.export(cut{end: &end}), o, 0, receipts.ClassComplete}
		w.add(sessionC, closing(w))
		w.flush()
		cases["RC-11_revoked_and_not_covered"] = tampering{w.export(cut{end: &end}), o, 4, receipts.ClassKey}
		cases["RC-11_revoked_behind_the_head"] = tampering{w.export(cut{sessions: []string{sessionC}, end: &end}), o, 4, receipts.ClassKey}
	}
	{ // RC-11: the checkpoint key is revoked
		w, end := story(t)
		w.ks.Was, w.ks.Serial = append(w.ks.Was, w.ks.Digest()), 2
		w.ks.Keys[1].Until, w.ks.Keys[1].Revoked = 1000, true
		w.sign()
		o := w.options()
		cases["RC-11_revoked_checkpoint_key_inside"] = tampering{w.export(cut{sessions: []string{sessionC}, end: &end}), o, 4, receipts.ClassKey}
		o.Checkpoint = end.note
		cases["RC-11_revoked_checkpoint_key_outside"] = tampering{w.export(cut{}), o, 4, receipts.ClassKey}
	}
	{ // RC-12
		w, _ := story(t)
		w.add(sessionA, decision("a-9", receipts.Dec{Verdict: receipts.Allow, Passed: true}))
		cases["RC-12_after_close"] = tampering{w.export(cut{sessions: []string{sessionA}}), w.options(), 1, receipts.ClassOrder}
	}
	{ // RC-13
		w := newWorld(t)
		w.chains[sessionA] = &chainState{prev: receipts.Genesis(origin, sessionB, w.ks.Digest()), opened: w.now}
		w.open(sessionA, receipts.Open{State: "refused", Code: "no_match"})
		w.close(sessionA, "refused", -1)
		cases["RC-13_genesis_of_another_session"] = tampering{w.export(cut{sessions: []string{sessionA}}), w.options(), 1, receipts.ClassSplice}
	}
	{ // RC-13: a keyset that this log never had
		w := newWorld(t)
		w.chains[sessionB] = &chainState{prev: receipts.Genesis(origin, sessionB, digest("other keyset")), opened: w.now}
		w.add(sessionB, receipts.Receipt{Type: receipts.TypeSessionOpen, Open: &receipts.Open{State: "refused", Code: "no_match", Keyset: digest("other keyset")},
			Obs: &receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"}})
		w.close(sessionB, "refused", -1)
		cases["RC-13_unknown_keyset"] = tampering{w.export(cut{sessions: []string{sessionB}}), w.options(), 1, receipts.ClassSplice}
	}
	{ // RC-13: a manifest that speaks of leaves behind it
		w, _ := story(t)
		w.add(receipts.ControlSession, receipts.Receipt{Type: receipts.TypeManifest, Man: &receipts.ManifestDoc{Size: 1000}})
		end := ending{manifest: w.pending[0].data, index: w.tree.Size()}
		w.flush()
		end.note = w.checkpointAt(w.tree.Size())
		cases["RC-13_manifest_of_the_future"] = tampering{w.export(cut{sessions: []string{sessionA}, end: &end}), w.options(), 1, receipts.ClassSplice}
		end.manifest = w.groups[0].leaves[0].data
		end.index = 0
		end.note = w.checkpointAt(1)
		cases["RC-13_checkpoint_without_manifest"] = tampering{w.export(cut{sessions: []string{sessionA}, end: &end}), w.options(), 1, receipts.ClassSplice}
	}
	{ // RC-13
		w, _ := story(t)
		r := w.fill(sessionC, closing(w))
		r.Prev = w.chains[sessionA].prev
		cases["RC-13_prev_of_another_chain"] = tampering{w.sealed(sessionC, r), w.options(), 1, receipts.ClassChain}
	}
	{ // RC-13
		w, _ := story(t)
		r := w.fill(sessionC, closing(w))
		r.Log = "gatehouse.example/node-2"
		cases["RC-13_receipt_of_another_log"] = tampering{w.sealed(sessionC, r), w.options(), 1, receipts.ClassSplice}
	}
	{ // RC-14
		w, _ := story(t)
		c := *w.chains[sessionC]
		w.add(sessionC, closing(w))
		w.chains[sessionC] = &c
		w.decide(sessionC, "c-2", receipts.Allow, true)
		cases["RC-14_same_number_twice"] = tampering{w.export(cut{sessions: []string{sessionC}}), w.options(), 1, receipts.ClassFork}
	}
	{ // RC-14
		w, _ := story(t)
		v, _ := story(t)
		w.decide(sessionC, "c-2", receipts.Allow, true)
		w.flush()
		v.decide(sessionC, "c-3", receipts.Allow, true)
		v.flush()
		w.groups = append(w.groups, v.groups[len(v.groups)-1])
		cases["RC-14_two_seals_over_one_index"] = tampering{w.export2(sessionC), w.options(), 1, receipts.ClassFork}
	}
	{ // RC-14: two seals over one index, and no chain that contradicts itself
		const other = "01JCX000000000000000000007"
		w, _ := story(t)
		v, _ := story(t)
		w.add(sessionC, closing(w))
		w.flush()
		v.open(other, receipts.Open{State: "refused", Code: "no_match"})
		v.close(other, "refused", -1)
		v.flush()
		one, two := []string{sessionC, other}, *v
		two.groups = v.groups[len(v.groups)-1:]
		a, b := split(t, w.export(cut{sessions: one})), split(t, two.export(cut{sessions: one}))
		cases["RC-14_two_seals_and_whole_chains"] = tampering{join(recount(slices.Concat(a[:len(a)-1], b[find(b, "seal")[0]:]))), w.options(), 1, receipts.ClassFork}
	}
	{ // RC-14: the manifest states another head than the chain has
		w, end := story(t)
		v := newWorld(t)
		v.admit(sessionC, digest("event"))
		for i := range 5 {
			v.outcome(sessionC, v.decide(sessionC, fmt.Sprintf("v-%d", i), receipts.Allow, true), "forwarded")
		}
		a, b := split(t, w.export(cut{sessions: []string{sessionC}, end: &end})), split(t, v.export(cut{sessions: []string{sessionC}}))
		cases["RC-14_chain_and_manifest"] = tampering{
			join(recount(slices.Concat(a[:find(a, "seal")[0]], b[find(b, "seal")[0]:len(b)-1], a[find(a, "checkpoint")[0]:]))), w.options(), 1, receipts.ClassFork}
	}
	{ // RC-18 waits for witnesses: until then nobody else's line may stand in a file
		w, end := story(t)
		end.note = append(bytes.Clone(end.note), "— witness.example/w BwcHBwEBAQE=\n"...)
		cases["foreign_line_in_the_checkpoint"] = tampering{w.export(cut{sessions: []string{sessionC}, end: &end}), w.options(), 1, receipts.ClassSeal}
	}
	{ // RC-14, RC-16: the outside checkpoint is of another history of the same size
		w, end := story(t)
		o := w.options()
		other, _ := receipts.SignCheckpoint(w.cp, receipts.Checkpoint{Origin: origin, Size: end.index + 1, Root: digest("other"), Time: w.now})
		o.Checkpoint = other
		cases["RC-14_two_checkpoints"] = tampering{w.export(cut{sessions: []string{sessionC}, end: &end}), o, 1, receipts.ClassFork}
		cases["RC-16_other_leaves_than_the_checkpoint"] = tampering{w.export(cut{}), o, 1, receipts.ClassFork}
	}
	{ // RC-16: what the reader has seen is newer than what the file ends with
		w, end := story(t)
		w.decide(sessionC, "c-2", receipts.Allow, true)
		later := w.checkpoint()
		w.groups = w.groups[:len(w.groups)-2]
		o := w.options()
		o.Checkpoint = later.note
		cases["RC-16_file_older_than_the_checkpoint"] = tampering{w.export(cut{sessions: []string{sessionC}, end: &end}), o, 3, receipts.ClassEndAsOf}
		cases["RC-16_log_rolled_back"] = tampering{w.export(cut{end: &end}), o, 3, receipts.ClassEndAsOf}
	}
	{ // RC-17
		w, first := story(t)
		w.decide(sessionC, "c-2", receipts.Allow, true)
		later := w.checkpoint()
		file := w.export(cut{sessions: []string{sessionC}, end: &later, older: []uint64{first.index + 1}})
		cases["RC-17_older_trees_out_of_order"] = tampering{edit(t, file, func(fs []rawFrame) []rawFrame {
			i := find(fs, "consistency")[0]
			return slices.Insert(fs, i, fs[i])
		}), w.options(), 1, receipts.ClassOrder}
		o := w.options()
		o.Checkpoint, _ = receipts.SignCheckpoint(w.cp, receipts.Checkpoint{Origin: origin, Size: first.index + 1, Root: digest("other"), Time: w.now})
		cases["RC-17_outside_checkpoint_is_no_prefix"] = tampering{file, o, 1, receipts.ClassFork}
		cases["RC-17_wrong_consistency_proof"] = tampering{editLine(t, file, "consistency", 0, 2, digest("other").String()), w.options(), 1, receipts.ClassRollback}
		o.Checkpoint = first.note
		cases["RC-17_control_the_true_one"] = tampering{file, o, 0, receipts.ClassComplete}
	}
	{ // RC-20
		w, _ := story(t)
		w.last = digest("another history")
		w.add(sessionC, closing(w))
		cases["RC-20_seal_behind_another_seal"] = tampering{w.export(cut{}), w.options(), 1, receipts.ClassFork}
	}
	{ // RC-21
		w, _ := story(t)
		w.add(sessionC, closing(w))
		s := w.flush()
		n, err := receipts.SealGroup(w.seal, s.KeyID, "gatehouse.example/node-2", s.First, s.Prev, []receipts.Hash{w.chains[sessionC].prev})
		if err != nil {
			t.Fatal(err)
		}
		s.Sig = n.Sig
		cases["RC-21_signature_of_another_origin"] = tampering{w.export(cut{sessions: []string{sessionC}}), w.options(), 1, receipts.ClassSeal}
	}
	{ // RC-27
		w, _ := story(t)
		r := closing(w)
		r.T = w.now.Add(-time.Hour)
		w.add(sessionC, r)
		cases["RC-27_clock_backwards"] = tampering{w.export(cut{sessions: []string{sessionC}}), w.options(), 5, receipts.ClassTime}
	}
	{ // RC-28
		w, _ := story(t)
		w.now = w.now.Add(2 * time.Minute)
		w.add(sessionC, closing(w))
		end := w.checkpoint()
		o := w.options()
		o.Checkpoint = end.note
		cases["RC-28_no_heartbeat"] = tampering{w.export(cut{end: &end}), o, 5, receipts.ClassGap}
	}
	{ // RC-28, the control
		w, _ := story(t)
		for range 12 {
			w.now = w.now.Add(10 * time.Second)
			w.add(receipts.ControlSession, receipts.Receipt{Type: receipts.TypeHeartbeat, Beat: &receipts.Heartbeat{Open: 1, Size: w.tree.Size()}})
		}
		w.add(sessionC, closing(w))
		end := w.checkpoint()
		o := w.options()
		o.Checkpoint = end.note
		cases["RC-28_control_with_heartbeats"] = tampering{w.export(cut{end: &end}), o, 0, receipts.ClassComplete}
	}
	{ // RC-29
		w, _ := story(t)
		w.add(sessionC, receipts.Receipt{Type: receipts.TypeLoss, Loss: &receipts.Loss{Cause: "disk_full", First: 9, Count: 3}})
		w.add(sessionC, closing(w))
		file := w.export(cut{sessions: []string{sessionC}})
		cases["RC-29_loss_admitted"] = tampering{file, w.options(), 5, receipts.ClassLoss}
		cases["RC-29_loss_removed"] = tampering{edit(t, file, func(fs []rawFrame) []rawFrame {
			i := slices.IndexFunc(fs, func(f rawFrame) bool { return bytes.Contains(f.body, []byte("disk_full")) })
			return remove(fs, i, i+1)
		}), w.options(), 1, receipts.ClassGap}
	}
	{ // Exit 5: a decision that has no outcome, and one whose outcome is unknown
		w, _ := story(t)
		w.decide(sessionC, "c-2", receipts.Allow, true)
		w.add(sessionC, closing(w))
		cases["unmatched_decision"] = tampering{w.export(cut{sessions: []string{sessionC}}), w.options(), 5, receipts.ClassUnmatched}
		w, _ = story(t)
		w.outcome(sessionC, w.decide(sessionC, "c-2", receipts.Allow, true), "unknown")
		w.add(sessionC, closing(w))
		cases["unknown_outcome"] = tampering{w.export(cut{sessions: []string{sessionC}}), w.options(), 5, receipts.ClassUnmatched}
	}
	{ // session.close counts wrongly
		w, _ := story(t)
		r := closing(w)
		r.Close.Count--
		w.add(sessionC, r)
		cases["close_counts_other_receipts"] = tampering{w.export(cut{sessions: []string{sessionC}}), w.options(), 1, receipts.ClassGap}
		w, _ = story(t)
		r = closing(w)
		r.Close.Verdicts = map[string]uint64{"allow": 7}
		w.add(sessionC, r)
		cases["close_counts_other_verdicts"] = tampering{w.export(cut{sessions: []string{sessionC}}), w.options(), 1, receipts.ClassChain}
	}
	return cases
}

// sealed appends r to a session as it is, seals it, and exports the session.
func (w *world) sealed(session string, r receipts.Receipt) []byte {
	w.t.Helper()
	b, err := r.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	return w.sealedBytes(session, r, b)
}

func (w *world) sealedBytes(session string, r receipts.Receipt, b []byte) []byte {
	w.push(session, &r, b)
	return w.export(cut{sessions: []string{session}})
}

// export2 exports a session from groups that may overlap: it writes them as two
// files and joins the second one's leaves to the first's.
func (w *world) export2(session string) []byte {
	n := len(w.groups)
	first, second := *w, *w
	first.groups, second.groups = w.groups[:n-1], w.groups[n-1:]
	a, b := split(w.t, first.export(cut{sessions: []string{session}})), split(w.t, second.export(cut{sessions: []string{session}}))
	return join(recount(slices.Concat(a[:len(a)-1], b[find(b, "seal")[0]:])))
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
		r := verify(w.export(cut{sessions: []string{sessionA}}), w.options())
		want(t, r, 0, receipts.ClassComplete)
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
	for name, form := range forms {
		t.Run("RC-33_"+name, func(t *testing.T) {
			w, _ := story(t)
			r := w.fill(sessionC, receipts.Receipt{Type: receipts.TypeSessionState,
				State: &receipts.State{From: "running", To: "ended", Reason: "x"}, X: map[string]string{"acme.note": "a " + form + " b"}})
			clean := r
			clean.X = map[string]string{"acme.note": "a " + form + " b"}
			b, err := d.Encode(&clean)
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
			want(t, verify(w.sealedBytes(sessionC, r, raw), o), 1, receipts.ClassRedaction)
		})
	}
}
