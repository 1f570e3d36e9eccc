package receipts_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"gatehouse/receipts"
)

// TestStockNoteTools: keysets, checkpoints and seals are C2SP signed notes that
// Go's own note package opens with the keys in the text form of that package.
func TestStockNoteTools(t *testing.T) {
	w, end := story(t)
	sealKey, _ := w.ks.Find(receipts.SealKey, receipts.KeyID(origin+"/seal", public(w.seal)))
	cpKey, _ := w.ks.Active(receipts.CheckpointKey)
	for name, tc := range map[string]struct {
		key  receipts.Key
		note []byte
	}{
		"keyset":     {w.ks.Root, w.note},
		"checkpoint": {cpKey, end.note},
		"seal":       {sealKey, w.groups[1].seal.Note()},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := note.NewVerifier(tc.key.VKey())
			if err != nil {
				t.Fatal(err)
			}
			n, err := note.Open(tc.note, note.VerifierList(v))
			if err != nil || len(n.Sigs) != 1 {
				t.Fatal(err)
			}
			if !strings.HasPrefix(tc.key.ID(), n.Sigs[0].Name+"+") || !strings.HasPrefix(receipts.Fingerprint(tc.key.Name, tc.key.Public), tc.key.ID()[len(tc.key.Name)+1:]) {
				t.Error("key id, key hash and fingerprint do not go together")
			}
		})
	}
}

// TestTreeIsTlog: Tree gives the roots and proofs of x/mod's tlog, and proofs are
// checked by it.
func TestTreeIsTlog(t *testing.T) {
	var tree receipts.Tree
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(ix []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(ix))
		for i, x := range ix {
			out[i] = stored[x]
		}
		return out, nil
	})
	const n = 70
	for i := range int64(n) {
		data := []byte{byte(i)}
		hs, err := tlog.StoredHashes(i, data, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hs...)
		tree.Append(receipts.Leaf(data))
	}
	for size := uint64(1); size <= n; size++ {
		want, err := tlog.TreeHash(int64(size), reader)
		if err != nil {
			t.Fatal(err)
		}
		root, err := tree.Root(size)
		if err != nil || tlog.Hash(root) != want {
			t.Fatalf("root of %d", size)
		}
		for i := range size {
			p, err := tree.Proof(i, size)
			if err != nil {
				t.Fatal(err)
			}
			leaf := receipts.Leaf([]byte{byte(i)})
			if err := p.Check(size, root, leaf); err != nil {
				t.Fatal(err)
			}
			if p.Check(size, root, receipts.Leaf([]byte{255})) == nil {
				t.Fatal("another leaf accepted")
			}
			path, err := tree.Consistency(i+1, size)
			if err != nil {
				t.Fatal(err)
			}
			old, _ := tree.Root(i + 1)
			if err := receipts.CheckConsistency(path, size, root, i+1, old); err != nil {
				t.Fatal(err)
			}
			if receipts.CheckConsistency(path, size, root, i+1, receipts.Leaf(nil)) == nil {
				t.Fatal("another old root accepted")
			}
		}
	}
	for name, err := range map[string]error{
		"root beyond the end":        second(tree.Root(n + 1)),
		"proof beyond the end":       second(tree.Proof(n, n)),
		"consistency from nothing":   second(tree.Consistency(0, n)),
		"consistency backwards":      second(tree.Consistency(n, n-1)),
		"check of index beyond size": receipts.Proof{Index: 1}.Check(1, receipts.Hash{}, receipts.Hash{}),
		"check of a huge tree":       receipts.Proof{}.Check(1<<63, receipts.Hash{}, receipts.Hash{}),
		"check of an endless path":   receipts.Proof{Path: make([]receipts.Hash, 65)}.Check(1<<40, receipts.Hash{}, receipts.Hash{}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestKeysetRules(t *testing.T) {
	fresh := receipts.Key{Purpose: receipts.SealKey, Name: origin + "/seal", Public: public(key("seal 2"))}
	for name, tc := range map[string]struct {
		change func(*receipts.Keyset)
		ok     bool
	}{
		"as it is": {func(*receipts.Keyset) {}, true},
		"rotated": {func(ks *receipts.Keyset) {
			ks.Keys[0].Until, fresh.From = 10, 10
			ks.Keys = append(ks.Keys, fresh)
		}, true},
		"retired without successor": {func(ks *receipts.Keyset) { ks.Keys[0].Until = 10 }, true},
		"two open seal keys":        {func(ks *receipts.Keyset) { ks.Keys = append(ks.Keys, fresh) }, false},
		"overlapping intervals": {func(ks *receipts.Keyset) {
			ks.Keys[0].Until, fresh.From = 10, 9
			ks.Keys = append(ks.Keys, fresh)
		}, false},
		"RC-11 retired key comes back": {func(ks *receipts.Keyset) {
			back := ks.Keys[0]
			ks.Keys[0].Until, back.From = 10, 10
			ks.Keys = append(ks.Keys, back)
		}, false},
		"root key as seal key":        {func(ks *receipts.Keyset) { ks.Keys[0].Public = ks.Root.Public }, false},
		"one key for two purposes":    {func(ks *receipts.Keyset) { ks.Keys[0].Public = ks.Keys[1].Public }, false},
		"checkpoint key of no origin": {func(ks *receipts.Keyset) { ks.Keys[1].Name = "other" }, false},
		"revoked without index":       {func(ks *receipts.Keyset) { ks.Keys[0].Revoked = true }, false},
		"unknown purpose":             {func(ks *receipts.Keyset) { ks.Keys[0].Purpose = "witness" }, false},
		"interval backwards":          {func(ks *receipts.Keyset) { ks.Keys[0].From, ks.Keys[0].Until = 10, 9 }, false},
		"serial without history":      {func(ks *receipts.Keyset) { ks.Serial = 2 }, false},
		"origin with space":           {func(ks *receipts.Keyset) { ks.Origin = "a b" }, false},
		"short key":                   {func(ks *receipts.Keyset) { ks.Keys[0].Public = ks.Keys[0].Public[:31] }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w.ks)
			b, err := w.ks.Sign(w.root)
			if (err == nil) != tc.ok {
				t.Fatalf("sign: %v", err)
			}
			if err != nil {
				return
			}
			ks, err := receipts.ParseKeyset(b, w.fingerprint())
			if err != nil || ks.Digest() != w.ks.Digest() {
				t.Error(err)
			}
		})
	}
	t.Run("signed by another root", func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.ks.Sign(key("other")); err == nil {
			t.Error("signed")
		}
	})
}

func TestParseKeysetRoots(t *testing.T) {
	w := newWorld(t)
	for name, root := range map[string]string{"none": "", "another": strings.Repeat("0", 64), "upper case": strings.ToUpper(w.fingerprint())} {
		ks, err := receipts.ParseKeyset(w.note, root)
		if ks == nil || !errors.Is(err, receipts.ErrKey) {
			t.Errorf("%s: %v, %v", name, ks, err)
		}
	}
	for name, b := range map[string][]byte{
		"foreign signature line": append(bytes.Clone(w.note), "— w AAAAAAA=\n"...),
		"signature twice":        append(bytes.Clone(w.note), w.note[bytes.LastIndex(w.note, []byte("—")):]...),
		"no signature":           w.note[:bytes.Index(w.note, []byte("\n\n"))+2],
		"text changed":           bytes.Replace(w.note, []byte("serial 1"), []byte("serial 2"), 1),
		"line twice":             bytes.Replace(w.note, []byte("serial 1\n"), []byte("serial 1\nserial 1\n"), 1),
		"nothing":                nil,
		"spare base64 bits":      bytes.Replace(w.note, []byte("=\n"), []byte("B=\n"), 1),
	} {
		if ks, err := receipts.ParseKeyset(b, w.fingerprint()); ks != nil || err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	newer := bytes.Replace(w.note, []byte("gatehouse-keyset/1"), []byte("gatehouse-keyset/2"), 1)
	if _, err := receipts.ParseKeyset(newer, w.fingerprint()); !errors.Is(err, receipts.ErrUnsupported) {
		t.Errorf("newer: %v", err)
	}
}

func TestParseCheckpointRules(t *testing.T) {
	w, end := story(t)
	c, err := receipts.ParseCheckpoint(end.note, w.ks)
	if err != nil || c.Size != end.index+1 || !c.Time.Equal(w.now.Truncate(time.Second)) {
		t.Fatalf("%+v %v", c, err)
	}
	lines := bytes.SplitAfter(end.note, []byte("\n")) // 3 of text, empty, 2 signatures
	text, plain, timed := bytes.Join(lines[:4], nil), lines[4], lines[5]
	join := func(b ...[]byte) []byte { return bytes.Join(b, nil) }
	witnessed := join(text, []byte("— witness.example/w BwcHBwEBAQE=\n"), timed, plain)
	if _, err := receipts.ParseCheckpoint(witnessed, w.ks); err != nil {
		t.Errorf("a witness's signature is not ours to judge: %v", err)
	}
	stranger := *w
	stranger.cp = key("stranger")
	for name, tc := range map[string]struct {
		b      []byte
		notOur bool
	}{
		"no time":              {join(text, plain), true},
		"only the time":        {join(text, timed), true},
		"signed by a stranger": {stranger.checkpointAt(end.index + 1), true},
		"other size":           {bytes.Replace(end.note, lines[1], []byte("9\n"), 1), false},
		"extension line":       {join(lines[0], lines[1], lines[2], []byte("more\n"), lines[3], plain, timed), false},
		"no signature":         {text, false},
		"a keyset":             {w.note, true},
	} {
		if _, err := receipts.ParseCheckpoint(tc.b, w.ks); err == nil || errors.Is(err, receipts.ErrKey) != tc.notOur {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("RC-21 text of another log", func(t *testing.T) {
		root := base64.StdEncoding.EncodeToString(make([]byte, 32))
		b, err := note.Sign(&note.Note{Text: "gatehouse.example/node-2\n9\n" + root + "\n"}, &signer{w.cp, 1}, &signer{w.cp, 4})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := receipts.ParseCheckpoint(b, w.ks); err == nil {
			t.Error("accepted")
		}
		// The control: the same signer with the log's own origin.
		b, err = note.Sign(&note.Note{Text: origin + "\n9\n" + root + "\n"}, &signer{w.cp, 1}, &signer{w.cp, 4})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := receipts.ParseCheckpoint(b, w.ks); err != nil {
			t.Error(err)
		}
	})
	t.Run("RC-11 key out of its interval", func(t *testing.T) {
		w.ks.Keys[1].Until = end.index
		if _, err := receipts.ParseCheckpoint(end.note, w.ks); !errors.Is(err, receipts.ErrKey) {
			t.Error(err)
		}
	})
}

// signer signs any text under the log's name, as the package itself never does.
type signer struct {
	key ed25519.PrivateKey
	alg byte
}

func (s *signer) Name() string { return origin }

func (s *signer) KeyHash() uint32 {
	h := sha256.Sum256(append([]byte(origin+"\n"+string(rune(s.alg))), public(s.key)...))
	return binary.BigEndian.Uint32(h[:4])
}

func (s *signer) Sign(msg []byte) ([]byte, error) {
	if s.alg == 1 {
		return ed25519.Sign(s.key, msg), nil
	}
	timed := append([]byte("cosignature/v1\ntime 1\n"), msg...)
	return append([]byte{7: 1}, ed25519.Sign(s.key, timed)...), nil
}

func TestSealGroupRefuses(t *testing.T) {
	k := key("seal")
	id := receipts.KeyID(origin+"/seal", public(k))
	one := []receipts.Hash{digest("leaf")}
	for name, seal := range map[string]func() (*receipts.Seal, error){
		"no leaves": func() (*receipts.Seal, error) { return receipts.SealGroup(k, id, origin, 0, receipts.Hash{}, nil) },
		"too many leaves": func() (*receipts.Seal, error) {
			return receipts.SealGroup(k, id, origin, 0, receipts.Hash{}, make([]receipts.Hash, receipts.MaxGroup+1))
		},
		"first with a prev":  func() (*receipts.Seal, error) { return receipts.SealGroup(k, id, origin, 0, digest("x"), one) },
		"later without prev": func() (*receipts.Seal, error) { return receipts.SealGroup(k, id, origin, 1, receipts.Hash{}, one) },
		"malformed key id":   func() (*receipts.Seal, error) { return receipts.SealGroup(k, "seal", origin, 0, receipts.Hash{}, one) },
		"malformed origin":   func() (*receipts.Seal, error) { return receipts.SealGroup(k, id, "a b", 0, receipts.Hash{}, one) },
		"index above 2^53":   func() (*receipts.Seal, error) { return receipts.SealGroup(k, id, origin, 1<<53, digest("x"), one) },
	} {
		if s, err := seal(); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	s, err := receipts.SealGroup(k, id, origin, 0, receipts.Hash{}, one)
	if err != nil || !ed25519.Verify(public(k), s.Text(), s.Sig[:]) {
		t.Fatal(err)
	}
	p, err := receipts.ParseSeal(s.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if p.Bind([]receipts.Hash{digest("other")}) == nil || p.Bind(nil) == nil {
		t.Error("bound to leaves that it does not seal")
	}
	if err := p.Bind(one); err != nil || p.Header(0) != s.Header(0) {
		t.Error(err)
	}
}

func TestHeads(t *testing.T) {
	heads := []receipts.Head{
		{Session: "C", Seq: 3, Leaf: digest("c")}, {Session: "A", Seq: 1, Leaf: digest("a"), Closed: true}, {Session: "B", Leaf: digest("b")},
	}
	root, err := receipts.HeadsRoot(heads)
	if err != nil || heads[0].Session != "A" {
		t.Fatal(err)
	}
	man := &receipts.ManifestDoc{Heads: root, Tree: 3}
	for _, h := range heads {
		p, err := receipts.ProveHead([]receipts.Head{heads[2], heads[0], heads[1]}, h.Session)
		if err != nil || p.Head != h {
			t.Fatal(err)
		}
		if err := p.Check(man); err != nil {
			t.Error(err)
		}
		p.Seq++
		if p.Check(man) == nil {
			t.Error("another seq accepted")
		}
	}
	if _, err := receipts.ProveHead(heads, "D"); err == nil {
		t.Error("proof of a head that is not there")
	}
	if _, err := receipts.HeadsRoot([]receipts.Head{{Session: "A"}, {Session: "A"}}); err == nil {
		t.Error("one session twice")
	}
	if h, err := receipts.HeadsRoot(nil); err != nil || !h.IsZero() {
		t.Error("no heads are the zero hash")
	}
}
