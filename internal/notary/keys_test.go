package notary_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

func TestKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	fpr, err := notary.GenerateKeys(dir, origin)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"root.key", "seal.key", "checkpoint.key", "node.key", "keyset.note"} {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || st.Mode() != 0o600 {
			t.Fatalf("%s: %v %v, want a regular file 0600", name, st, err)
		}
	}
	k, err := notary.LoadKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	if k.RootFingerprint() != fpr || k.Origin() != origin || k.RootOffline() || len(k.NodeKey().Reveal()) != 32 {
		t.Fatalf("loaded %v with root %s, generated %s", k, k.RootFingerprint(), fpr)
	}
	if ks, err := receipts.ParseKeyset(k.Note(), fpr); err != nil || ks.Digest() != k.Keyset().Digest() {
		t.Fatalf("an auditor who pins the fingerprint: %v", err)
	}
	if _, err := notary.GenerateKeys(dir, origin); problem.CodeOf(err) != problem.KeysExist {
		t.Fatalf("keys were overwritten: %v", err)
	}
	if _, err := notary.GenerateKeys(filepath.Join(t.TempDir(), "k"), "bad name"); problem.CodeOf(err) != problem.KeysInvalid {
		t.Fatalf("a malformed origin: %v", err)
	}

	t.Run("print nothing", func(t *testing.T) {
		var b bytes.Buffer
		fmt.Fprintf(&b, "%v %+v %#v %s %q %x", k, k, k, k, k, k)
		slog.New(slog.NewTextHandler(&b, nil)).Info("keys", "keys", k)
		for _, secret := range secretsOf(t, dir) {
			for _, form := range []string{string(secret), fmt.Sprintf("%x", secret), fmt.Sprint(secret), base64.StdEncoding.EncodeToString(secret)} {
				if strings.Contains(b.String(), form) {
					t.Fatalf("printed keys hold a private key: %s", b.String())
				}
			}
		}
	})
	t.Run("root offline", func(t *testing.T) {
		offline := clone(t, dir)
		if err := os.Remove(filepath.Join(offline, "root.key")); err != nil {
			t.Fatal(err)
		}
		k, err := notary.LoadKeys(offline)
		if err != nil || !k.RootOffline() || k.RootFingerprint() != fpr {
			t.Fatalf("%v %v", k, err)
		}
	})
	other := filepath.Join(t.TempDir(), "other")
	if _, err := notary.GenerateKeys(other, origin); err != nil {
		t.Fatal(err)
	}
	replace := func(dir, name string) error {
		b, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), b, 0o600)
	}
	for name, c := range map[string]struct {
		spoil func(dir string) error
		code  problem.Code
	}{
		"open to the group": {func(d string) error { return os.Chmod(filepath.Join(d, "seal.key"), 0o640) }, problem.KeysInvalid},
		"open to all":       {func(d string) error { return os.Chmod(filepath.Join(d, "node.key"), 0o604) }, problem.KeysInvalid},
		"symbolic link": {func(d string) error {
			p := filepath.Join(d, "seal.key")
			if err := os.Rename(p, p+".real"); err != nil {
				return err
			}
			return os.Symlink(p+".real", p)
		}, problem.KeysInvalid},
		"a folder": {func(d string) error {
			p := filepath.Join(d, "node.key")
			if err := os.Remove(p); err != nil {
				return err
			}
			return os.Mkdir(p, 0o700)
		}, problem.KeysInvalid},
		"seal key missing":     {func(d string) error { return os.Remove(filepath.Join(d, "seal.key")) }, problem.KeysMissing},
		"keyset missing":       {func(d string) error { return os.Remove(filepath.Join(d, "keyset.note")) }, problem.KeysMissing},
		"node key short":       {func(d string) error { return os.WriteFile(filepath.Join(d, "node.key"), []byte("AAAA\n"), 0o600) }, problem.KeysInvalid},
		"seal key empty":       {func(d string) error { return os.WriteFile(filepath.Join(d, "seal.key"), nil, 0o600) }, problem.KeysInvalid},
		"another seal key":     {func(d string) error { return replace(d, "seal.key") }, problem.KeysInvalid},
		"another root key":     {func(d string) error { return replace(d, "root.key") }, problem.KeysInvalid},
		"another keyset":       {func(d string) error { return replace(d, "keyset.note") }, problem.KeysInvalid},
		"keyset, one bit off":  {func(d string) error { return flip(filepath.Join(d, "keyset.note")) }, problem.KeysInvalid},
		"another checkpoint":   {func(d string) error { return replace(d, "checkpoint.key") }, problem.KeysInvalid},
		"seal key, larger":     {func(d string) error { return os.WriteFile(filepath.Join(d, "seal.key"), make([]byte, 2<<20), 0o600) }, problem.KeysInvalid},
		"folder does not exit": {func(d string) error { return os.RemoveAll(d) }, problem.KeysMissing},
	} {
		t.Run(name, func(t *testing.T) {
			d := clone(t, dir)
			if err := c.spoil(d); err != nil {
				t.Fatal(err)
			}
			if k, err := notary.LoadKeys(d); problem.CodeOf(err) != c.code || k != nil {
				t.Fatalf("%v %v, want %s", k, err, c.code)
			}
		})
	}
}

func flip(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 1
	return os.WriteFile(path, b, 0o600)
}

func clone(t *testing.T, dir string) string {
	t.Helper()
	out := t.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(out, e.Name()), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// secretsOf returns what the key files hold, decoded.
func secretsOf(t *testing.T, dir string) (out [][]byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "node.key"))
	if err != nil {
		t.Fatal(err)
	}
	node, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	out = append(out, node)
	for _, name := range []string{"root.key", "seal.key", "checkpoint.key"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		der, err := base64.StdEncoding.DecodeString(lines[1])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, der[len(der)-32:])
	}
	return out
}
