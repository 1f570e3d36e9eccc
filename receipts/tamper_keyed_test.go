package receipts_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"gatehouse/receipts"
)

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
	// RC-15: the log gives the session up as lost, and its old owner, who was only
	// paused, writes on: two signed histories from one index on.
	for name, whole := range map[string]bool{"RC-15_old_owner_writes_on": true, "RC-15_old_owner_closes_the_session": false} {
		v, _ := story(t)
		v.add(sessionC, receipts.Receipt{Type: receipts.TypeLoss, Loss: &receipts.Loss{Cause: "lost", First: v.tree.Size(), Count: 1}})
		v.close(sessionC, "lost", -1)
		lost := v.checkpoint()
		w, _ := story(t)
		w.outcome(sessionC, w.decide(sessionC, "c-2", receipts.Allow, true), "forwarded")
		end := w.checkpoint()
		for w.tree.Size() < lost.index+1 {
			end = w.checkpoint()
		}
		o := w.options()
		o.Checkpoint = lost.note
		c := cut{end: &end, older: []uint64{lost.index + 1}}
		if !whole {
			c.sessions = []string{sessionC}
		}
		if end.index == lost.index {
			c.older = nil // of one size: the two checkpoints contradict each other by themselves
		}
		cases[name] = tampering{w.export(c), o, 1, receipts.ClassFork}
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
