package receipts_test

import (
	"bytes"
	"testing"

	"gatehouse/receipts"
)

// FuzzVerify: no input makes the verifier panic, take long or say complete,
// except an export that is one of the seeds byte for byte.
func FuzzVerify(f *testing.F) {
	session, o := everything(f)
	log, logOptions := wholeLog(f)
	f.Add(session)
	f.Add(log)
	f.Add([]byte("gatehouse-export/1 a\nscope log 0\nkeyset 1\nx\nend 0\n"))
	f.Add(session[:len(session)/2])
	o.MaxBytes, logOptions.MaxBytes = 1<<20, 1<<20
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, o := range []receipts.Options{o, logOptions} {
			r := verify(b, o)
			if r.Exit == 0 && !bytes.Equal(b, session) && !bytes.Equal(b, log) && !harmlessBytes(t, session, b) {
				t.Fatalf("exit 0 for %q", b)
			}
			_ = r.WriteText(&bytes.Buffer{})
		}
	})
}

// harmlessBytes is harmless for files; b verified as an export, so it splits.
func harmlessBytes(t *testing.T, was, b []byte) bool {
	is := split(t, b)
	return harmless(split(t, was), is)
}

func FuzzParseHeader(f *testing.F) {
	w, _ := story(f)
	for _, g := range w.groups {
		f.Add(g.seal.Header(g.seal.Count - 1))
	}
	f.Add("gatehouse-seal/1 a b+00000000 0 1 - - - 0 -")
	f.Fuzz(func(t *testing.T, v string) {
		h, err := receipts.ParseHeader(v)
		if err != nil {
			return
		}
		line := h.Seal.Encode()
		if !bytes.HasPrefix([]byte(v), line) {
			t.Fatalf("%q does not begin with %q", v, line)
		}
		s, err := receipts.ParseSeal(line)
		if err != nil || s.Hash() != h.Seal.Hash() {
			t.Fatalf("%q: %v", line, err)
		}
		_ = h.Verify(receipts.Hash{}, w.ks)
	})
}

func FuzzParseKeyset(f *testing.F) {
	w := newWorld(f)
	f.Add(w.note)
	w.ks.Was, w.ks.Serial = append(w.ks.Was, w.ks.Digest()), 2
	w.ks.Keys[0].Until, w.ks.Keys[0].Revoked = 7, true
	w.sign()
	f.Add(w.note)
	root := w.fingerprint()
	f.Fuzz(func(t *testing.T, b []byte) {
		ks, err := receipts.ParseKeyset(b, root)
		if err != nil {
			return
		}
		again, err := ks.Sign(w.root) // Ed25519 is deterministic: the same text has one signature
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q signs to %q, %v", b, again, err)
		}
	})
}

func FuzzParseCheckpoint(f *testing.F) {
	w, end := story(f)
	f.Add(end.note)
	f.Add(w.checkpointAt(1))
	f.Add(append(bytes.Clone(end.note), "— witness.example/w AAAAAAAA\n"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := receipts.ParseCheckpoint(b, w.ks)
		if err != nil {
			return
		}
		root, err := w.tree.Root(c.Size)
		if err != nil || root != c.Root {
			t.Fatalf("accepted %q", b)
		}
	})
}
